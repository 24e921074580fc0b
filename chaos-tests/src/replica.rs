//! A replica of the product: the real program as a child process, and what tests do to it.
//!
//! What it is told (arguments, environment) is the caller's business.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{
    cluster::Scope,
    http::{self, Answer},
    ports::Port,
    process::{Launch, Process},
    procfs,
};

/// How often a replica that does not listen yet is asked whether it is ready.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// How long it may take to answer when all time is over.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How a replica is started.
#[derive(Debug)]
pub struct Spec {
    /// Its name within the test; its log is named after it.
    pub name: String,
    /// The product's program, or one that runs it.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables, beyond this process's and `KUBECONFIG`.
    pub env: Vec<(String, String)>,
    /// Its identity, see [`Scope::service_account_kubeconfig`].
    pub kubeconfig: PathBuf,
    /// The port of its probes, which the arguments or the environment tell it.
    pub http: Port,
}

/// A running or ended replica. Dropping it kills it, with the programs that it runs.
#[derive(Debug)]
pub struct Replica {
    name: String,
    launch: Launch,
    process: Process,
    http: Port,
}

impl Replica {
    /// Starts a replica whose output goes to a log of `scope`.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(scope: &Scope<'_>, spec: Spec) -> Result<Self> {
        let Spec { name, program, args, env, kubeconfig, http } = spec;
        let own = [("KUBECONFIG".into(), kubeconfig.into())];
        let launch = Launch {
            program,
            args: args.into_iter().map(Into::into).collect(),
            env: own
                .into_iter()
                .chain(env.into_iter().map(|(name, value)| (name.into(), value.into())))
                .collect(),
            log: Some(scope.directory().join(format!("{name}.log"))),
            ..Launch::default()
        };
        let process = launch.start().with_context(|| format!("replica {name} does not start"))?;
        Ok(Self { name, launch, process, http })
    }

    /// Starts it again as it was started before, with the same log. Kills it first if it runs.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn restart(&mut self) -> Result<()> {
        self.process.kill_and_wait();
        self.process =
            self.launch.start().with_context(|| format!("replica {} does not start", self.name))?;
        Ok(())
    }

    /// Its name within the test.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> &Path {
        self.launch.log.as_deref().unwrap_or(Path::new(""))
    }

    /// The text of its log so far.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn log_text(&self) -> Result<String> {
        let text = fs::read(self.log()).with_context(|| format!("cannot read {}", self.log().display()))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// How it ended, or `None` while it runs.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.process.exit_status()
    }
}

/// Its HTTP server.
impl Replica {
    /// Gets a path such as `/metrics` of its HTTP server.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        http::get(&format!("http://{}{path}", self.http.socket())).await
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Errors
    /// If it does not within `deadline`, or the replica ends.
    pub async fn wait_ready(&self, deadline: Duration) -> Result<()> {
        let started = Instant::now();
        let mut ticks = interval(POLL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(status) = self.exit_status() {
                bail!("replica {} ended ({status}) before it was ready", self.name);
            }
            // The last look has its time, too: what it sees is in the message.
            let left = deadline.saturating_sub(started.elapsed()).max(ANSWER_WITHIN);
            let last = match tokio::time::timeout(left, self.get("/readyz")).await {
                Ok(Ok(Answer { status: 200, .. })) => return Ok(()),
                Ok(Ok(Answer { status, body })) => format!("{status}: {}", body.trim()),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "no answer".to_owned(),
            };
            if started.elapsed() >= deadline {
                bail!("replica {} is not ready after {deadline:?}; /readyz: {last}", self.name);
            }
        }
    }
}

/// What is done to it.
impl Replica {
    /// Kills it (SIGKILL) and waits for its end. Programs that it runs go on, as they would anywhere.
    ///
    /// # Errors
    /// If it has ended already, or does not end.
    pub async fn kill(&self) -> Result<ExitStatus> {
        self.process.signal(Signal::KILL)?;
        self.wait_exit(Duration::from_secs(30)).await
    }

    /// Asks it to stop (SIGTERM) and waits until it has.
    ///
    /// # Errors
    /// If it has ended already, or still runs after `deadline`.
    pub async fn terminate(&self, deadline: Duration) -> Result<ExitStatus> {
        self.process.signal(Signal::TERM)?;
        self.wait_exit(deadline).await
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// If it still runs after `deadline`.
    pub async fn wait_exit(&self, deadline: Duration) -> Result<ExitStatus> {
        self.process.wait(deadline).await.with_context(|| format!("replica {} does not end", self.name))
    }

    /// Sends it any signal.
    ///
    /// # Errors
    /// If it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Stops it in its tracks (SIGSTOP); its clocks go on.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// The memory that it has resident, in bytes.
    ///
    /// # Errors
    /// If it has ended.
    pub fn resident_bytes(&self) -> Result<u64> {
        procfs::resident_bytes(self.pid())
    }
}
