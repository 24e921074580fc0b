//! Where the control plane's programs, and those that stand beside it, come from: the environment, the user's cache, or a Go build.
//!
//! How a program is built lives in `build`, which sources it is built from in `module`.

mod build;
mod module;

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

/// A program that is part of a control plane, or stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// The key-value store behind the API server.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The built-in controllers, the binder of claims and volumes among them.
    KubeControllerManager,
    /// The scheduler, which selects nodes for claims that wait for their first consumer.
    KubeScheduler,
    /// The trace store.
    Jaeger,
    /// Prometheus' tool that tries rules and expressions.
    Promtool,
    /// A provisioner on the Go library, from `chaos-tests/peer`: what our replicas are compared to, and contest with.
    GoPeer,
}

impl Program {
    /// The file name of the program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Jaeger => "jaeger",
            Self::Promtool => "promtool",
            Self::GoPeer => "go-peer",
        }
    }
}

/// The paths of `programs`. What neither `KUBEBUILDER_ASSETS`, `PATH` nor the cache holds is built first,
/// which takes minutes and is told on standard error.
///
/// Blocks: call it on a thread that may wait.
///
/// # Errors
/// If a program is missing and cannot be built.
pub fn locate_or_build(programs: &[Program]) -> Result<BTreeMap<Program, PathBuf>> {
    programs
        .iter()
        .map(|&program| {
            let path = match find(program)? {
                Some(path) => path,
                None => build_once(program)?,
            };
            Ok((program, path))
        })
        .collect()
}

fn find(program: Program) -> Result<Option<PathBuf>> {
    // Nobody but us has a program of our own: what has its name elsewhere is another one.
    let assets = if module::of(program).is_our_own() { Vec::new() } else { asset_directories() };
    let candidates = assets.into_iter().chain([cache_directory(program)?]);
    Ok(candidates.map(|directory| directory.join(program.name())).find(|path| is_executable(path)))
}

/// `KUBEBUILDER_ASSETS` goes before `PATH`: whoever sets it means these programs.
fn asset_directories() -> Vec<PathBuf> {
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    assets.into_iter().chain(env::split_paths(&path)).filter(|directory| directory.is_absolute()).collect()
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Named after the pinned version and a digest of the pins, so that every checkout with the same pins finds
/// the same programs and a changed pin never meets an old one.
fn cache_directory(program: Program) -> Result<PathBuf> {
    Ok(cache_root()?.join(module::of(program).identity()))
}

fn cache_root() -> Result<PathBuf> {
    let absolute =
        |value: Option<std::ffi::OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(env::var_os("XDG_CACHE_HOME"))
        .or_else(|| absolute(env::var_os("HOME")).map(|home| home.join(".cache")))
        .map(|cache| cache.join("kube-provisioner").join("control-plane"))
        .context(
            "no directory for the control plane's programs: set HOME or XDG_CACHE_HOME to an absolute path",
        )
}

/// One build at a time on the machine: another process may have built the program while this one waited.
fn build_once(program: Program) -> Result<PathBuf> {
    let _lock = lock(&cache_root()?)?;
    match find(program)? {
        Some(path) => Ok(path),
        None => build::build(program, &cache_directory(program)?),
    }
}

fn lock(root: &Path) -> Result<File> {
    fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    let path = root.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("waiting for another build of the control plane's programs ({})", path.display());
        flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// Tools may be found by a relative entry of `PATH`, as a shell would.
fn on_path(tool: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(tool)).find(|path| is_executable(path))
}
