//! One Kubernetes control plane of real processes on loopback: start, faults of its parts, end.
//!
//! What tests do on it (namespaces, claims, replicas) is in [`crate::cluster`].

mod certificates;
mod components;
pub(crate) mod kubeconfig;
mod ready;
mod snapshot;

pub use self::snapshot::Snapshot;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustix::process::Signal;

use self::components::Plan;
use crate::{
    binaries::{self, Program},
    directory::Directory,
    ports::Port,
    process::{Launch, Process},
};

/// The API server goes before what would make it complain, and etcd last: an API server without its etcd takes
/// longer to end.
const STOP_ORDER: [Program; 5] = [
    Program::KubeApiserver,
    Program::KubeControllerManager,
    Program::KubeScheduler,
    Program::Jaeger,
    Program::Etcd,
];

/// What a control plane consists of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where its files are. Absent or empty, as it is removed afterwards; by default a temporary directory.
    pub directory: Option<PathBuf>,
    /// Requests per second of kube-controller-manager, which binds at about a fifth of that. Default: its own, 20.
    pub controller_manager_qps: Option<u32>,
    /// Whether Jaeger runs beside it.
    pub jaeger: bool,
    /// Whether the API server logs each request (who, what, answer).
    pub audit_log: bool,
    /// Whether the scheduler runs.
    pub scheduler: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            directory: None,
            controller_manager_qps: None,
            jaeger: false,
            audit_log: false,
            scheduler: true,
        }
    }
}

/// Where Jaeger is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jaeger {
    /// The endpoint for OTLP over HTTP.
    pub otlp: String,
    /// The address of its API and pages.
    pub query: String,
}

impl Jaeger {
    /// The page that shows the trace of the object with this UID, and with it those of its volume.
    #[must_use]
    pub fn page_of(&self, uid: &str) -> String {
        format!("{}/trace/{}", self.query, uid.replace('-', ""))
    }

    /// Where the same trace is for programs.
    #[must_use]
    pub fn data_of(&self, uid: &str) -> String {
        format!("{}/api/traces/{}", self.query, uid.replace('-', ""))
    }
}

/// A running control plane. All of it ends and its files vanish when this value is dropped, and also when this
/// process ends in any other way.
#[derive(Debug)]
pub struct ControlPlane {
    running: Mutex<BTreeMap<Program, Running>>,
    server: String,
    authority: PathBuf,
    kubeconfig: PathBuf,
    audit_log: Option<PathBuf>,
    jaeger: Option<Jaeger>,
    _ports: Vec<Port>,
    /// The last field: it goes when nothing uses it any more.
    directory: Directory,
}

#[derive(Debug)]
struct Running {
    launch: Launch,
    process: Process,
}

impl ControlPlane {
    /// Starts a control plane and waits until it serves and the namespace `default` is ready for pods and claims.
    /// Builds the programs first if they are nowhere to be found, which takes minutes.
    ///
    /// # Errors
    /// If a program cannot be found or built, ends early, or is not ready within two minutes. Nothing stays behind.
    pub async fn start(options: Options) -> Result<Self> {
        let wanted = programs(&options);
        let found = tokio::task::spawn_blocking(move || binaries::locate_or_build(&wanted)).await??;
        let directory = Directory::create(options.directory.as_deref())?;
        let Plan { launches, server, authority, kubeconfig, audit_log, jaeger, ports } =
            components::plan(directory.path(), &options, &found)?;
        let running = Mutex::new(BTreeMap::new());
        let new =
            Self { running, server, authority, kubeconfig, audit_log, jaeger, _ports: ports, directory };
        new.bring_up(launches).await?;
        Ok(new)
    }

    /// The controller manager and the scheduler give up on an API server that takes too long, so they come after it.
    async fn bring_up(&self, mut launches: BTreeMap<Program, Launch>) -> Result<()> {
        for program in [Program::Jaeger, Program::Etcd, Program::KubeApiserver] {
            launches.remove(&program).map_or(Ok(()), |launch| self.launch(program, launch))?;
        }
        ready::api_server(self).await?;
        for (program, launch) in launches {
            self.launch(program, launch)?;
        }
        ready::default_namespace(self).await?;
        ready::jaeger(self).await
    }

    fn launch(&self, program: Program, launch: Launch) -> Result<()> {
        let process = launch.start()?;
        self.running().insert(program, Running { launch, process });
        Ok(())
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<Program, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, program: Program, act: impl FnOnce(&Running) -> Result<T>) -> Result<T> {
        let running = self.running();
        act(running
            .get(&program)
            .with_context(|| format!("{} is not part of this control plane", program.name()))?)
    }
}

/// Where things are.
impl ControlPlane {
    /// The kubeconfig file of a cluster administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The address of the API server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The address of etcd.
    ///
    /// # Errors
    /// If it is told none, which cannot be.
    pub fn etcd(&self) -> Result<String> {
        const FLAG: &str = "--advertise-client-urls=";
        self.with(Program::Etcd, |etcd| {
            let args = etcd.launch.args.iter().filter_map(|arg| arg.to_str());
            let url = args.filter_map(|arg| arg.strip_prefix(FLAG)).next();
            url.map(str::to_owned).context("etcd has no address")
        })
    }

    /// The certificate of the authority that signed the API server's.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// The directory with logs, keys and data.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The log of all requests, a JSON object per line, if it was asked for.
    #[must_use]
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit_log.as_deref()
    }

    /// Where Jaeger is, if it was asked for.
    #[must_use]
    pub const fn jaeger(&self) -> Option<&Jaeger> {
        self.jaeger.as_ref()
    }

    /// The log of a program's output.
    #[must_use]
    pub fn log(&self, program: Program) -> PathBuf {
        self.directory().join(format!("{}.log", program.name()))
    }

    /// How an administrator's client connects.
    ///
    /// # Errors
    /// If the kubeconfig file cannot be read.
    pub async fn client_config(&self) -> Result<Config> {
        client_config(&self.kubeconfig).await
    }

    /// A new administrator's client. It belongs to the runtime that it is made on.
    ///
    /// # Errors
    /// If the kubeconfig file cannot be read.
    pub async fn client(&self) -> Result<Client> {
        Client::try_from(self.client_config().await?)
            .context("cannot make a client of the test control plane")
    }
}

/// Faults.
impl ControlPlane {
    /// The process ids by program; of a killed one that was not restarted, the last.
    #[must_use]
    pub fn pids(&self) -> BTreeMap<Program, u32> {
        self.running().iter().map(|(program, running)| (*program, running.process.pid())).collect()
    }

    /// Sends a signal to a program.
    ///
    /// # Errors
    /// If the program is not part of this control plane or does not run.
    pub fn signal(&self, program: Program, signal: Signal) -> Result<()> {
        self.with(program, |running| running.process.signal(signal))
    }

    /// Stops a program in its tracks: its connections stay open and silent.
    ///
    /// # Errors
    /// If the program is not part of this control plane or does not run.
    pub fn pause(&self, program: Program) -> Result<()> {
        self.signal(program, Signal::STOP)
    }

    /// Lets a paused program go on.
    ///
    /// # Errors
    /// If the program is not part of this control plane or does not run.
    pub fn resume(&self, program: Program) -> Result<()> {
        self.signal(program, Signal::CONT)
    }

    /// Kills a program and waits for its end. Its port stays reserved and its data where it is.
    ///
    /// # Errors
    /// If the program is not part of this control plane.
    pub fn kill(&self, program: Program) -> Result<()> {
        self.with(program, |running| {
            running.process.kill_and_wait();
            Ok(())
        })
    }

    /// Starts a program again, on the same port and data, after killing it if it runs. Waits until etcd, the API
    /// server or Jaeger serve; the controller manager and the scheduler serve nothing and may take seconds to work.
    ///
    /// # Errors
    /// If the program is not part of this control plane, or is not ready in time.
    pub async fn restart(&self, program: Program) -> Result<()> {
        let launch = self.with(program, |running| {
            running.process.kill_and_wait();
            Ok(running.launch.clone())
        })?;
        self.launch(program, launch)?;
        match program {
            Program::Etcd | Program::KubeApiserver => ready::api_server(self).await,
            Program::Jaeger => ready::jaeger(self).await,
            Program::KubeControllerManager | Program::KubeScheduler | Program::Promtool | Program::GoPeer => {
                Ok(())
            }
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let mut running = std::mem::take(&mut *self.running());
        for program in STOP_ORDER {
            drop(running.remove(&program));
        }
    }
}

/// Reads how a client connects from a kubeconfig file.
pub(crate) async fn client_config(kubeconfig: &Path) -> Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read kubeconfig {}", kubeconfig.display()))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("kubeconfig {} is not usable", kubeconfig.display()))
}

fn programs(options: &Options) -> Vec<Program> {
    let mut programs = vec![Program::Etcd, Program::KubeApiserver, Program::KubeControllerManager];
    programs.extend(options.scheduler.then_some(Program::KubeScheduler));
    programs.extend(options.jaeger.then_some(Program::Jaeger));
    programs
}
