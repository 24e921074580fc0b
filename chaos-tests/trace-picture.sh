#!/bin/sh
# Makes docs/images/trace.png: runs the test in which a leader is killed during a provisioning, and takes a picture
# of the page that Jaeger shows of it. Needs Debian's chromium.
set -eu
cd "$(dirname "$0")/.."
mkdir -p docs/images
TRACE_PICTURE="$PWD/docs/images/trace.png" cargo test --package chaos-tests --test observability -- --exact \
    traces::one_trace_tells_a_provisioning_across_the_death_of_a_leader_and_the_deletion_links_to_it
