//! `cargo demo`: the provisioner at work on a real control plane, with its leader killed on the way.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    chaos_tests::demo::main(chaos_tests::demo::Options::parse())
}
