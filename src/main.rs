//! The program. All of it lives in the library, where it is tested.

use std::process::ExitCode;

fn main() -> ExitCode {
    kube_provisioner::cli::main()
}
