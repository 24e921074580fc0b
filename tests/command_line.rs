//! The program's exit codes and messages, seen from outside. No cluster is needed for any of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};

fn program(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-provisioner"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KUBE_PROVISIONER_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_wrong_value_ends_with_2_and_names_key_source_and_what_is_allowed() {
    let output =
        program(&["run", "--provisioner-name=a", "--backend=directory", "--provision-workers", "none"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "kube-provisioner: wrong configuration: provisionWorkers: \"none\" from flag \
                    --provision-workers must be a whole number from 1 to 10000\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn wrong_usage_ends_with_2_and_help_and_version_with_0() {
    for wrong in [&["walk"][..], &[], &["run", "--no-such-flag"], &["run", "--retry-max"]] {
        let output = program(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty(), "{wrong:?} is explained on standard error");
    }
    for right in [&["--help"][..], &["run", "--help"], &["--version"]] {
        assert_eq!(program(right).status.code(), Some(0), "{right:?}");
    }
}

#[test]
fn a_file_that_is_missing_or_wrong_is_named() {
    let output = program(&["check", "--config", "/no/such/file"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot read the configuration file /no/such/file"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, "provisionerName: a\nprovisionerNam: b\n").unwrap();
    let path = file.to_str().unwrap();
    let output = program(&["check", "--config", path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains(&format!("{path}:2: unknown key \"provisionerNam\"")),
        "{}",
        stderr(&output)
    );
}

#[test]
fn check_prints_the_merged_configuration_with_its_sources() {
    let output =
        program(&["check", "--provisioner-name=a/b", "--backend=directory", "--directory-path=/srv"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("name: \"a/b\" # flag --provisioner-name"), "{printed}");
    assert!(printed.contains("resyncPeriod: \"15m\" # default"), "{printed}");
}
