//! The program with known bugs to switch on: what the chaos tests must catch. Only built for them.

use std::process::ExitCode;

fn main() -> ExitCode {
    kube_provisioner::cli::main()
}
