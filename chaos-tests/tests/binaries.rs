//! What happens when the control plane's programs are missing, with a script in the place of Go.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use chaos_tests::procfs::{self, Watched};
use rustix::process::{Pid, Signal, kill_process};

/// A `PATH` with what the harness itself needs and nothing of the control plane, and an empty cache.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("bin")).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        for tool in ["sh", "setpriv", "rm", "sleep", "cat"] {
            let found =
                std::env::split_paths(&path).map(|directory| directory.join(tool)).find(|tool| tool.exists());
            symlink(found.unwrap(), root.path().join("bin").join(tool)).unwrap();
        }
        Self { root }
    }

    fn with_go(script: &str) -> Self {
        let machine = Self::new();
        let path = machine.root.path().join("bin/go");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        machine
    }

    fn cache(&self) -> PathBuf {
        self.root.path().join("cache")
    }

    fn up(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_control-plane"));
        command
            .arg("up")
            .env("PATH", self.root.path().join("bin"))
            .env("XDG_CACHE_HOME", self.cache())
            .env_remove("KUBEBUILDER_ASSETS");
        command
    }

    fn complaint(&self) -> String {
        let output = self.up().output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    }
}

/// The files in and below `directory`, but for the lock.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| !path.ends_with("lock")).collect()
}

#[test]
fn without_go_the_message_says_what_to_install() {
    let complaint = Machine::new().complaint();
    assert!(complaint.contains("etcd is not in KUBEBUILDER_ASSETS, PATH or the cache"), "{complaint}");
    assert!(complaint.contains("install Go 1."), "{complaint}");
}

#[test]
fn an_old_go_is_named_with_the_version_that_is_needed() {
    let complaint = Machine::with_go("echo go1.19.4").complaint();
    assert!(complaint.contains("etcd needs Go 1.") && complaint.contains("\"go1.19.4\""), "{complaint}");
}

#[test]
fn a_failed_build_shows_its_output_and_leaves_no_files() {
    let machine = Machine::with_go("[ $1 = env ] && echo go1.99.0 && exit; echo no space left >&2; exit 1");
    let complaint = machine.complaint();
    assert!(
        complaint.contains("no space left\n") && complaint.contains("go build of etcd failed"),
        "{complaint}"
    );
    assert_eq!(files(&machine.cache()), Vec::<PathBuf>::new());
}

#[test]
fn a_killed_build_leaves_neither_compilers_nor_files() {
    let machine = Machine::with_go(
        r#"[ $1 = env ] && echo go1.99.0 && exit; echo partial >"$GOTMPDIR/object"; sleep 600 & echo "compiler $!" >&2; wait"#,
    );
    let mut command = machine.up().stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(command.stderr.take().unwrap()).lines();
    let compiler =
        lines.map(Result::unwrap).find_map(|line| line.strip_prefix("compiler ").map(str::to_owned));
    let compiler = Watched::new(compiler.unwrap().parse().unwrap()).unwrap();
    let janitor = janitor_of(command.id());
    kill_process(Pid::from_child(&command), Signal::KILL).unwrap();
    command.wait().unwrap();
    for process in [compiler, janitor] {
        process.wait_end(Duration::from_secs(60)).unwrap();
    }
    assert_eq!(files(&machine.cache()), Vec::<PathBuf>::new());
}

/// The child that will remove the build's directory.
fn janitor_of(parent: u32) -> Watched {
    let is_janitor = |pid: &u32| procfs::command_line(*pid).unwrap().contains("rm -rf");
    Watched::new(procfs::children(parent).unwrap().into_iter().find(is_janitor).unwrap()).unwrap()
}

#[test]
fn programs_are_built_into_the_cache_once_and_found_there() {
    let machine = Machine::with_go(
        r#"[ $1 = env ] && echo go1.99.0 && exit; while [ "$1" != -o ]; do shift; done; printf '#!/bin/sh\nexit 5\n' >"$2"; /bin/chmod +x "$2""#,
    );
    let complaint = machine.complaint();
    for program in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        assert!(complaint.contains(&format!("building {program} v")), "{complaint}");
    }
    assert!(complaint.contains("has ended"), "the programs of this test end at once: {complaint}");
    assert_eq!(files(&machine.cache()).len(), 4);
    let complaint = machine.complaint();
    assert!(!complaint.contains("building"), "{complaint}");
}
