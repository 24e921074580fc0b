//! `cargo chaos`: see `chaos_tests::chaos`.

use std::process::ExitCode;

use chaos_tests::chaos::{self, Cli};
use clap::Parser;

fn main() -> ExitCode {
    chaos::main(Cli::parse())
}
