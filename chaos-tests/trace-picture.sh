#!/bin/sh
# Makes docs/images/trace.png: runs the test in which a leader is killed during a provisioning, takes the traces
# that Jaeger has of it, and draws them. Needs Debian's chromium.
set -eu
cd "$(dirname "$0")/.."
traces=$(mktemp -d)
trap 'rm -rf "$traces"' EXIT
TRACES_TO="$traces" cargo test --package chaos-tests --test observability -- --exact \
    traces::one_trace_tells_a_provisioning_across_the_death_of_a_leader_and_the_deletion_links_to_it
mkdir -p docs/images
cargo chaos run picture "$traces/provision.json" "$traces/delete.json" --out "$traces/trace.png"
mv "$traces/trace.png" docs/images/trace.png
