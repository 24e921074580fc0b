//! The product that tests run is the one of this checkout.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use chaos_tests::product::{self, KNOWN_BUG, Profile};

#[test]
fn the_product_is_built_and_found() {
    let program = product::build(Profile::Dev).unwrap();
    assert!(program.is_file(), "{} is no file", program.display());
    assert_eq!(program.file_name().unwrap(), "kube-provisioner");
}

#[test]
fn a_program_with_known_bugs_says_so_and_takes_no_others() {
    let (clean, program) =
        (product::build(Profile::Dev).unwrap(), product::build(Profile::KnownBugs).unwrap());
    assert_ne!(clean, program);
    let version = |program| String::from_utf8(run(program, "--version", "").stdout).unwrap();
    assert!(version(&program).contains("WITH KNOWN BUGS"), "{}", version(&program));
    assert!(!version(&clean).contains("BUGS"), "{}", version(&clean));
    let refused = String::from_utf8(run(&program, "run", "no-such-bug").stderr).unwrap();
    assert!(refused.contains("there is no known bug \"no-such-bug\""), "{refused}");
    let refused = String::from_utf8(run(&clean, "run", "no-guard").stderr).unwrap();
    assert!(refused.contains("no option has this name"), "{refused}");
}

fn run(program: &std::path::Path, command: &str, bug: &str) -> Output {
    Command::new(program).arg(command).env(KNOWN_BUG, bug).output().unwrap()
}
