//! Builds one program with Go, and says on standard error how it goes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use super::{
    Program,
    module::{self, Module},
    on_path,
};
use crate::{
    directory::Directory,
    process::{Fate, Launch},
};

/// How often a running build says that it is still at it.
const PROGRESS_EVERY: Duration = Duration::from_secs(30);

/// Builds `program` into `cache`. The file appears there whole or not at all.
pub(super) fn build(program: Program, cache: &Path) -> Result<PathBuf> {
    let module = module::of(program);
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let sources = write_sources(program, module, cache)?;
    let go = require_go(program, module, sources.path())?;
    eprintln!(
        "building {} {} with {go} into {} (once; minutes on a cold Go cache)",
        program.name(),
        module.version(),
        cache.display()
    );
    let fresh = sources.path().join(program.name());
    compile(program, module, sources.path(), &fresh)?;
    let path = cache.join(program.name());
    fs::rename(&fresh, &path)
        .with_context(|| format!("cannot move the built program to {}", path.display()))?;
    Ok(path)
}

/// Beside the programs, so that the finished one is renamed within one file system.
fn write_sources(program: Program, module: &Module, cache: &Path) -> Result<Directory> {
    let path = cache.join(format!("build-{}-{}", program.name(), std::process::id()));
    let directory = Directory::create(Some(&path))?;
    for (name, text) in module.files() {
        let path = directory.path().join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(directory)
}

fn require_go(program: Program, module: &Module, sources: &Path) -> Result<String> {
    let needed = module.go_version();
    let Some(go) = on_path("go") else {
        bail!(
            "{0} is not in KUBEBUILDER_ASSETS, PATH or the cache, and there is no go on PATH to build it: install \
             Go {needed} or newer, or put {0} into one of these",
            program.name()
        );
    };
    // In the module's directory: there a Go that may fetch newer toolchains reports the one it will use.
    let output =
        Command::new(go).args(["env", "GOVERSION"]).current_dir(sources).output().context("cannot run go")?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(
        is_at_least(&found, needed),
        "{} needs Go {needed} or newer to be built, and the go on PATH is {found:?}: install a newer Go, or put {} \
         into KUBEBUILDER_ASSETS or PATH",
        program.name(),
        program.name()
    );
    Ok(found)
}

/// Whether a version that Go reports, such as `go1.26.8` or `go1.27rc1`, is `needed` or newer.
fn is_at_least(found: &str, needed: &str) -> bool {
    let numbers = |version: &str| -> Vec<u32> {
        let version = version.trim_start_matches("go");
        let release = version.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap_or_default();
        let mut numbers: Vec<u32> = release.split('.').filter_map(|number| number.parse().ok()).collect();
        numbers.resize(3, 0);
        numbers
    };
    numbers(found) >= numbers(needed)
}

fn compile(program: Program, module: &Module, sources: &Path, output: &Path) -> Result<()> {
    let flags = module.linker_flags();
    let args = ["build", "-trimpath", "-ldflags", &flags, "-o"].map(Into::into);
    let go = Launch {
        program: "go".into(),
        args: args.into_iter().chain([output.into(), module::package(program).into()]).collect(),
        directory: Some(sources.to_owned()),
        // A go that is killed leaves its work directory behind, and its compilers running.
        env: vec![("GOTMPDIR".into(), sources.into())],
        fate: Fate::Family,
        ..Launch::default()
    };
    let child = go.start()?;
    let succeeded = with_progress(program, || child.wait_blocking().is_some_and(|status| status.success()));
    ensure!(succeeded, "go build of {} failed; its output is above", program.name());
    Ok(())
}

fn with_progress<T>(program: Program, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let (done, waiting) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while waiting.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
                eprintln!("still building {} ({} s)", program.name(), started.elapsed().as_secs());
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_compared_by_their_numbers() {
        assert!(is_at_least("go1.26.8", "1.26.0"));
        assert!(is_at_least("go1.26", "1.26.0"));
        assert!(is_at_least("go1.100", "1.26.0"));
        assert!(is_at_least("go1.27rc1", "1.26.0"));
        assert!(is_at_least("go1.26.0-custom", "1.26"));
        assert!(!is_at_least("go1.25.9", "1.26.0"));
        assert!(!is_at_least("", "1.26.0"));
    }
}
