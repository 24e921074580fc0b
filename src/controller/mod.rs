//! [`ProvisionController`]: what a library user makes and runs. `crew.rs` wires the actors.

mod crew;
mod panics;

use std::{future::Future, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use crate::{
    clock::{Clock, SystemClock},
    connection,
    lease::Identity,
    options::{ControllerOptions, InvalidOption, LeaderElectionOptions},
    provisioner::Provisioner,
    telemetry::{health::Health, metrics::Metrics, trace::Traces},
};

/// Provisions claims and removes volumes with the backends it was given, as one replica among several.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use kube_provisioner::{ControllerOptions, LeaderElectionOptions, ProvisionController, provisioner::Provisioner};
/// # async fn example(backend: Arc<dyn Provisioner>) -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = kube::Config::infer().await?;
/// let controller = ProvisionController::builder(cluster)
///     .provisioner(ControllerOptions::new("example.com/disk"), LeaderElectionOptions::default(), backend)
///     .build()?;
/// controller.run(async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await?;
/// # Ok(())
/// # }
/// ```
pub struct ProvisionController {
    cluster: kube::Config,
    served: Vec<Served>,
    server_git_version: Option<String>,
    identity: Identity,
    clock: Arc<dyn Clock>,
    health: Health,
    metrics: Metrics,
    traces: Traces,
}

/// One provisioner name with its options and its backend.
struct Served {
    options: ControllerOptions,
    election: LeaderElectionOptions,
    backend: Arc<dyn Provisioner>,
}

/// Why a controller ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A client could not be made of the cluster's configuration.
    #[error("cannot make a client for {server}")]
    Client {
        /// The API server.
        server: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// Threads could not be started.
    #[error("cannot start the controller's threads")]
    Threads(#[source] std::io::Error),
    /// An actor panicked. The process lives, the controller has ended.
    #[error("internal error: an actor panicked: {0}")]
    Panicked(String),
}

impl ProvisionController {
    /// A controller for one provisioner name with the arguments that the Go library's constructor had.
    /// [`builder`](Self::builder) has all the options there are now.
    ///
    /// `client` is the configuration of the client, not a client: the controller makes several, each with
    /// its own limits, on the runtime that it keeps for itself. `server_git_version` is asked of the
    /// server when absent; it only ever leads to a warning. A `failed_retry_threshold` of 0 is for ever.
    ///
    /// # Errors
    /// [`InvalidOption`] if the name is none or the period is too short.
    pub fn new(
        client: kube::Config,
        resync_period: Duration,
        provisioner_name: &str,
        provisioner: Arc<dyn Provisioner>,
        server_git_version: Option<String>,
        exponential_backoff_on_error: bool,
        failed_retry_threshold: u32,
    ) -> Result<Self, InvalidOption> {
        let options = ControllerOptions {
            resync_period,
            exponential_backoff_on_error,
            failed_provision_threshold: failed_retry_threshold,
            failed_delete_threshold: failed_retry_threshold,
            ..ControllerOptions::new(provisioner_name)
        };
        let mut builder = Self::builder(client);
        builder.server_git_version = server_git_version;
        builder.provisioner(options, LeaderElectionOptions::default(), provisioner).build()
    }

    /// Begins a controller for the cluster that `client` describes.
    #[must_use]
    pub fn builder(client: kube::Config) -> ProvisionControllerBuilder {
        ProvisionControllerBuilder {
            cluster: connection::named(client),
            served: Vec::new(),
            server_git_version: None,
            identity: Identity::of_this_process(),
            clock: SystemClock::shared(),
            health: None,
            metrics: None,
            traces: Traces::off(),
        }
    }

    /// Runs until `stop` is ready, then stops in order: running operations may end within the drain
    /// budget, what is left is cancelled, the Lease is released. Dropping the future stops as well, on the
    /// controller's own thread.
    ///
    /// Any tokio program can await it: the actors live on a thread and a runtime of their own. Losing the
    /// Lease, or the API server, ends nothing.
    ///
    /// # Errors
    /// [`RunError`] when it can't begin, or an actor panicked.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), RunError> {
        let (ask, asked) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("provisioner".to_owned())
            .spawn(move || drop(end.send(crew::work(self, asked))))
            .map_err(RunError::Threads)?;
        let mut ended = std::pin::pin!(ended);
        tokio::select! {
            outcome = &mut ended => return outcome.unwrap_or_else(|_| Err(vanished())),
            () = stop => {}
        }
        drop(ask);
        ended.await.unwrap_or_else(|_| Err(vanished()))
    }
}

fn vanished() -> RunError {
    RunError::Panicked("its thread has vanished".to_owned())
}

/// Collects what a [`ProvisionController`] is to work with.
pub struct ProvisionControllerBuilder {
    cluster: kube::Config,
    served: Vec<Served>,
    server_git_version: Option<String>,
    identity: Identity,
    clock: Arc<dyn Clock>,
    health: Option<Health>,
    metrics: Option<Metrics>,
    traces: Traces,
}

impl ProvisionControllerBuilder {
    /// Serves one more provisioner name. Each has a Lease of its own; watches are shared.
    #[must_use]
    pub fn provisioner(
        mut self,
        options: ControllerOptions,
        election: LeaderElectionOptions,
        backend: Arc<dyn Provisioner>,
    ) -> Self {
        self.served.push(Served { options, election, backend });
        self
    }

    /// Reports to this board instead of one of its own: what the probes of the program read.
    #[must_use]
    pub fn health(mut self, health: Health) -> Self {
        self.health = Some(health);
        self
    }

    /// Counts in these metrics instead of its own.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Traces volumes there. Otherwise nothing is traced.
    #[must_use]
    pub fn traces(mut self, traces: Traces) -> Self {
        self.traces = traces;
        self
    }

    /// The identity of this replica, instead of one made of the pod's name and UID and a nonce.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Makes the controller.
    ///
    /// # Errors
    /// [`InvalidOption`] names the first option that breaks a rule.
    pub fn build(self) -> Result<ProvisionController, InvalidOption> {
        for served in &self.served {
            served.options.validate()?;
            served.election.validate(&served.options)?;
        }
        let Self { cluster, served, server_git_version, identity, clock, health, metrics, traces } = self;
        let health = health.unwrap_or_else(|| Health::new(clock.clone()));
        let metrics = metrics.unwrap_or_else(|| Metrics::new(&clock));
        Ok(ProvisionController {
            cluster,
            served,
            server_git_version,
            identity,
            clock,
            health,
            metrics,
            traces,
        })
    }
}

#[cfg(test)]
mod tests;
