//! The command line: one file per sub-command, the configuration they share, and the exit codes.
//!
//! Nothing here decides about claims or volumes; the controller does.

mod check;
mod config;
mod explain;
mod orphans;
mod reload;
mod run;
mod signals;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::known_bugs;

/// What `--version` tells.
const VERSION: &str = if known_bugs::BUILT_IN {
    concat!(env!("CARGO_PKG_VERSION"), " WITH KNOWN BUGS to switch on: for tests only")
} else {
    env!("CARGO_PKG_VERSION")
};

/// What the program ends with. `docs/reference/exit-codes.md` tells people.
mod exit {
    /// Something failed that was right when it was configured.
    pub(super) const RUNTIME: u8 = 1;
    /// The command line or the configuration is wrong; trying again does not help.
    pub(super) const CONFIGURATION: u8 = 2;
    /// An error in the program itself. What `sysexits.h` calls `EX_SOFTWARE`.
    pub(super) const INTERNAL: u8 = 70;
    /// Ended by a signal: this plus its number, as shells have it.
    pub(super) const SIGNAL: u8 = 128;
}

/// Turns PersistentVolumeClaims into PersistentVolumes, and cleans up after them.
#[derive(Debug, Parser)]
#[command(name = "kube-provisioner", version = VERSION)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller until SIGTERM or SIGINT.
    Run(config::Flags),
    /// Check the configuration that `run` would use, and print it with the source of each value.
    Check(config::Flags),
    /// Say why a claim is pending or a volume is not deleted. Only reads.
    Explain(explain::Arguments),
    /// List what the audit would say of each asset, and why. Changes nothing.
    Orphans(orphans::Arguments),
}

/// The whole program: parse, dispatch, exit code.
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Run(flags) }) => end(run::run(&flags)),
        Ok(Cli { command: Command::Check(flags) }) => end(check::check(&flags)),
        Ok(Cli { command: Command::Explain(arguments) }) => end(explain::explain(&arguments)),
        Ok(Cli { command: Command::Orphans(arguments) }) => end(orphans::orphans(&arguments)),
        Err(usage) => tell_usage(&usage),
    }
}

/// Why a sub-command did not succeed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Wrong configuration.
    #[error("wrong configuration: {0}")]
    Configuration(#[from] config::ConfigError),
    /// The kubeconfig can't be read, or there is none.
    #[error("wrong configuration: {0}")]
    Unreachable(String),
    /// Something outside failed.
    #[error("{0}")]
    Runtime(String),
    /// Something inside failed that never should.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Failure {
    const fn code(&self) -> u8 {
        match self {
            Self::Configuration(_) | Self::Unreachable(_) => exit::CONFIGURATION,
            Self::Runtime(_) => exit::RUNTIME,
            Self::Internal(_) => exit::INTERNAL,
        }
    }
}

fn end(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Not eprintln: it panics where nobody reads, and the exit code must still be right.
            let _ = writeln!(io::stderr(), "kube-provisioner: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

/// Prints help, version or what is wrong with the command line.
fn tell_usage(usage: &clap::Error) -> ExitCode {
    let wrong = usage.use_stderr();
    // Whoever closed our output does not want to hear of it.
    let _ = usage.print();
    if wrong { ExitCode::from(exit::CONFIGURATION) } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
