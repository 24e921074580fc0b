//! One replica's campaign for one Lease: the public face, its clients, and the two loops it runs.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, client::ClientBuilder};
use kube_leader_election::{LeaseLock, LeaseLockParams};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    CandidateOptions, LeaseStatus,
    contest::{Contest, SPREAD},
    desk::Desk,
    layer::LeaseWire,
    machine::{Candidate, Relapse},
    options::jitter,
    trouble::Troubles,
    watching,
    wire::Marks,
};
use crate::{clock::Clock, connection};

/// Why a campaign could not begin.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a client for the Lease {lease}")]
pub struct CampaignError {
    lease: String,
    #[source]
    source: Box<kube::Error>,
}

/// What became of the Lease when this replica gave it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resigned {
    /// It was released: a standby takes over at once.
    Released,
    /// It was not ours, so there was nothing to release.
    NotHeld,
    /// The API server did not confirm in time. The Lease runs out by itself.
    Unconfirmed,
}

/// The order to give the Lease up and to end the campaign.
pub(super) struct Order {
    pub(super) budget: Duration,
    pub(super) reply: oneshot::Sender<Resigned>,
}

/// Ends a campaign in order.
#[derive(Clone, Debug)]
pub struct Resignation(mpsc::Sender<Order>);

impl Resignation {
    /// Ends the guard, then releases the Lease within `budget`, then ends the campaign.
    ///
    /// To be called when leader-only work has stopped: a standby may lead a few milliseconds later.
    pub async fn resign(&self, budget: Duration) -> Resigned {
        let (reply, answer) = oneshot::channel();
        if self.0.send(Order { budget, reply }).await.is_err() {
            return Resigned::NotHeld;
        }
        answer.await.unwrap_or(Resigned::NotHeld)
    }
}

/// Where a replica tells that it found out, by other means than the Lease, that the store was restored.
#[derive(Clone)]
pub struct RestoreReport(Arc<Desk>);

impl RestoreReport {
    /// An asset was made for a claim at this version, which the claims have not reached. Ends a leadership, unless the
    /// Lease tells of a restore already.
    pub fn mark_ahead(&self, version: u64) {
        self.0.with(|machine, _| machine.relapsed(Relapse::Mark(version)));
        self.0.changed.notify_one();
    }
}

/// A candidate for one Lease. Made in one place, driven by [`run`](Self::run) on any tokio runtime.
pub struct Campaign {
    options: CandidateOptions,
    config: kube::Config,
    desk: Arc<Desk>,
    orders: (mpsc::Sender<Order>, mpsc::Receiver<Order>),
}

impl Campaign {
    /// A campaign of `options.identity` for `options.lease`, at the API server of `config`. Does nothing
    /// before it is run.
    #[must_use]
    pub fn new(options: CandidateOptions, config: kube::Config, clock: Arc<dyn Clock>) -> Self {
        let desk = Arc::new(Desk::new(&options, candidate(&options), clock));
        Self { options, config, desk, orders: mpsc::channel(1) }
    }

    /// Tells of every change: leader, standby, not ready. Changes in quick succession may come as one, so
    /// compare the epochs of two guards.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<LeaseStatus> {
        self.desk.subscribe()
    }

    /// What ends the campaign in order.
    #[must_use]
    pub fn resignation(&self) -> Resignation {
        Resignation(self.orders.0.clone())
    }

    /// Where it is told that the store was restored.
    #[must_use]
    pub fn restore_report(&self) -> RestoreReport {
        RestoreReport(self.desk.clone())
    }

    /// What a test runs against a scripted API server.
    #[cfg(test)]
    pub(super) fn parts(self) -> (Arc<Desk>, (mpsc::Sender<Order>, mpsc::Receiver<Order>)) {
        (self.desk, self.orders)
    }

    /// Contests the Lease until it is told to resign. Losing the Lease ends nothing: it contests again.
    ///
    /// `keep_going` is asked before every attempt. While it denies, this replica neither leads nor
    /// contests: a leader whose other parts are dead must not go on renewing. Dropping the future ends the
    /// leadership without releasing the Lease.
    ///
    /// # Errors
    /// [`CampaignError`] when no client can be made of the configuration.
    pub async fn run(self, keep_going: impl Fn() -> bool) -> Result<(), CampaignError> {
        let lease = self.options.lease.clone();
        let client = |config| {
            connection::builder(config).map(ClientBuilder::build).map_err(|source| CampaignError {
                lease: self.desk.lease().to_owned(),
                source: Box::new(source),
            })
        };
        let writes = client(for_attempts(self.config.clone(), &self.options))?;
        let watches = client(for_watches(self.config.clone()))?;
        let api = Api::namespaced(watches, &lease.namespace);
        contest(self.options, writes, api, self.desk, self.orders, keep_going).await;
        Ok(())
    }
}

/// Runs the campaign with clients that are given: the real ones, or a scripted API server.
pub(super) async fn contest(
    options: CandidateOptions,
    server: Client,
    watched: Api<Lease>,
    desk: Arc<Desk>,
    // The sender is kept, so that the receiver never ends while nobody has taken one.
    (_sender, orders): (mpsc::Sender<Order>, mpsc::Receiver<Order>),
    keep_going: impl Fn() -> bool,
) {
    let _end = EndWithRun(desk.clone());
    let contest = contest_of(&options, server, desk.clone());
    tokio::select! {
        () = contest.run(orders, keep_going) => {}
        () = watching::follow(watched, &options.lease.name, desk) => {}
    }
}

/// However the run ends, its leadership ends with it.
struct EndWithRun(Arc<Desk>);

impl Drop for EndWithRun {
    fn drop(&mut self) {
        self.0.with(|machine, _| machine.abandon());
    }
}

pub(super) fn contest_of(options: &CandidateOptions, server: Client, desk: Arc<Desk>) -> Contest {
    let troubles = Arc::<Troubles>::default();
    let wire = LeaseWire {
        server,
        desk: desk.clone(),
        marks: Arc::new(marks(options)),
        name: options.lease.name.as_str().into(),
        lease: options.lease.timing.lease(),
        troubles: troubles.clone(),
    };
    let params = LeaseLockParams {
        lease_name: options.lease.name.clone(),
        holder_id: options.identity.to_string(),
        lease_ttl: options.lease.timing.lease(),
    };
    let lock =
        LeaseLock::new(Client::new(wire, options.lease.namespace.as_str()), &options.lease.namespace, params);
    let spread = jitter(SPREAD);
    Contest { lock, desk, timing: options.lease.timing, troubles, spread }
}

fn marks(options: &CandidateOptions) -> Marks {
    Marks {
        me: options.identity.name(),
        provisioner: options.provisioner.as_str().into(),
        labels: options.lease.labels.clone(),
    }
}

pub(super) fn candidate(options: &CandidateOptions) -> Candidate {
    Candidate {
        me: options.identity.name(),
        provisioner: options.provisioner.as_str().into(),
        lease: options.lease.timing.lease(),
        hold: options.lease.timing.hold(),
        #[cfg(test)]
        mistakes: super::machine::mistakes::Mistakes::default(),
        #[cfg(test)]
        wall_ahead: 0,
    }
}

/// No retry of its own (it would send without a check), and nothing that outlives a hold. Its connections
/// stay open between two renewals.
fn for_attempts(mut config: kube::Config, options: &CandidateOptions) -> kube::Config {
    let timing = options.lease.timing;
    config.default_retry = false;
    config.connect_timeout = Some(timing.attempt());
    config.write_timeout = Some(timing.attempt());
    config.read_timeout = Some(timing.hold());
    config
}

fn for_watches(mut config: kube::Config) -> kube::Config {
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(3));
    config.read_timeout = Some(watching::READ_TIMEOUT);
    config
}
