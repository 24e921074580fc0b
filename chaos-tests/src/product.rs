//! The product's program, built from this checkout.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::{Fate, Launch};

const PROGRAM: &str = "kube-provisioner";
/// The variable that switches a known bug on in a program of [`Profile::KnownBugs`].
pub const KNOWN_BUG: &str = "KUBE_PROVISIONER_KNOWN_BUG";
/// A program of its own: it does not take the place of the one without.
const WITH_KNOWN_BUGS: &str = "kube-provisioner-known-bugs";
/// The backend of tests, in this package.
const LEDGER: (&str, &str) = (env!("CARGO_PKG_NAME"), "ledger-backend");

/// How the product is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// As tests are: quick to build.
    Dev,
    /// As it is shipped: for the demo and for measurements.
    Release,
    /// As tests are, under a name of its own, with known bugs that [`KNOWN_BUG`] switches on.
    KnownBugs,
}

/// Builds the product with the same Cargo as this program and returns the path of its executable. Cargo does
/// nothing if it is up to date, and one build waits for another. Blocks; the build ends with this process.
///
/// # Errors
/// If Cargo fails; its messages are on standard error.
pub fn build(profile: Profile) -> Result<PathBuf> {
    let program = if profile == Profile::KnownBugs { WITH_KNOWN_BUGS } else { PROGRAM };
    build_program((PROGRAM, program), profile)
}

/// Builds the ledger's program in the same way, for who runs outside of Cargo's own tests.
///
/// # Errors
/// As [`build`].
pub fn build_ledger() -> Result<PathBuf> {
    build_program(LEDGER, Profile::Dev)
}

/// Of this package, this program.
fn build_program((package, program): (&str, &str), profile: Profile) -> Result<PathBuf> {
    compile((package, program), profile)?;
    // Cargo has nothing left to do but to say where the executable is.
    let mut cargo = Command::new("env");
    cargo
        .args(cargo_build((package, program), profile))
        .args(["--quiet", "--message-format", "json-render-diagnostics"])
        .current_dir(workspace())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = cargo.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo build of {program} failed ({})", output.status);
    executable(&String::from_utf8_lossy(&output.stdout), program)
        .with_context(|| format!("cargo built no {program}"))
}

fn compile(what: (&str, &str), profile: Profile) -> Result<()> {
    let mut args = cargo_build(what, profile);
    // A release build takes minutes: Cargo says how it goes.
    args.extend((profile != Profile::Release).then(|| "--quiet".into()));
    let directory = Some(workspace().to_owned());
    let cargo = Launch { program: "env".into(), args, directory, fate: Fate::Family, ..Launch::default() };
    let status = cargo.start()?.wait_blocking();
    ensure!(
        status.is_some_and(|status| status.success()),
        "cargo build of {} failed; its output is above",
        what.1
    );
    Ok(())
}

/// The arguments of `env` that run Cargo without what an outer Cargo has set.
fn cargo_build((package, program): (&str, &str), profile: Profile) -> Vec<OsString> {
    let unset = inherited_from_outer_cargo(env::vars_os().map(|(name, _)| name));
    let mut args: Vec<OsString> = unset.flat_map(|name| ["-u".into(), name]).collect();
    args.push(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    args.extend(["build", "--package", package, "--bin", program].map(Into::into));
    args.extend(match profile {
        Profile::Dev => None,
        Profile::Release => Some("--release".into()),
        Profile::KnownBugs => Some("--features=known-bugs".into()),
    });
    args
}

fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// What Cargo sets for the programs that it runs. Build scripts look at some of these: with them, the inner Cargo
/// would rebuild dependencies, and the next outer one rebuild them back.
fn inherited_from_outer_cargo(names: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    names.filter(move |name| prefixes.iter().any(|prefix| starts_with(name, prefix)))
}

fn starts_with(name: &OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}

fn executable(messages: &str, program: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    artifacts
        .filter(|artifact| artifact.pointer("/target/name").and_then(Value::as_str) == Some(program))
        .find_map(|artifact| artifact.get("executable").and_then(Value::as_str).map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_the_programs_not_the_librarys() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"kube_provisioner"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"kube-provisioner"},"executable":"/t/kube-provisioner"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executable(messages, PROGRAM), Some("/t/kube-provisioner".into()));
    }

    #[test]
    fn settings_of_the_user_stay_and_marks_of_the_outer_cargo_go() {
        let names = ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "PATH"];
        let removed: Vec<_> = inherited_from_outer_cargo(names.map(OsString::from).into_iter()).collect();
        assert_eq!(removed, ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"]);
    }
}
