//! Rung two: the real kube-leader-election behind our layer, against a scripted API server, in virtual time.

mod campaign;
mod flaws;
mod server;
mod wire;

use std::{sync::Arc, time::Duration};

use kube_leader_election::{LeaseLock, LeaseLockParams};
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use self::server::Server;
use super::{
    CandidateOptions, Identity, LeaderGuard, LeaseOptions, LeaseState, LeaseStatus, LeaseTiming, Resignation,
    campaign::{Campaign, candidate, contest, contest_of},
    desk::Desk,
    machine::{
        Candidate, Shown,
        mistakes::{Mistake, Mistakes},
    },
};
use crate::clock::{BootTime, Clock};

/// Virtual time as boot time.
#[derive(Debug)]
pub(super) struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now(&self) -> BootTime {
        BootTime::from_boot(Duration::from_secs(1_000) + self.0.elapsed())
    }
}

fn clock() -> Arc<dyn Clock> {
    thread_local!(static BEGINNING: Instant = Instant::now());
    Arc::new(VirtualClock(BEGINNING.with(|beginning| *beginning)))
}

fn options(name: &str) -> CandidateOptions {
    let lease = LeaseOptions { name: "lease".into(), ..LeaseOptions::new("ns", "example.com/nfs", None) };
    CandidateOptions { lease, provisioner: "example.com/nfs".into(), identity: Identity::new(name, None, 1) }
}

/// One attempt at a time, by hand: the crate, the layer and the desk, without the campaign's loops.
struct Bench {
    contest: super::contest::Contest,
    desk: Arc<Desk>,
}

impl Bench {
    fn new(server: &Server, name: &str) -> Self {
        Self::with_mistakes(server, name, &[])
    }

    fn with_mistakes(server: &Server, name: &str, mistakes: &[Mistake]) -> Self {
        let options = options(name);
        let candidate = Candidate { mistakes: Mistakes::of(mistakes), ..candidate(&options) };
        let desk = Arc::new(Desk::new(&options, candidate, clock()));
        Self { contest: contest_of(&options, server.client(), desk.clone()), desk }
    }

    /// Whether the crate says that it acquired or renewed.
    async fn attempt(&self) -> bool {
        use kube_leader_election::LeaseLockResult::Acquired;
        let limit = LeaseTiming::DEFAULT.attempt();
        let answer = tokio::time::timeout(limit, self.contest.lock.try_acquire_or_renew()).await;
        self.desk.with(|machine, now| machine.lapse(now));
        matches!(answer, Ok(Ok(Acquired(_))))
    }

    fn guard(&self) -> Option<LeaderGuard> {
        self.desk.guard()
    }

    fn leads(&self) -> bool {
        self.guard().is_some_and(|guard| guard.is_valid())
    }
}

/// A campaign under way.
struct Replica {
    status: watch::Receiver<LeaseStatus>,
    resignation: Resignation,
    run: JoinHandle<()>,
}

impl Replica {
    fn start(server: &Server, name: &str) -> Self {
        Self::start_with(server, options(name), || true)
    }

    fn start_with(
        server: &Server,
        options: CandidateOptions,
        keep_going: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::spawn(server.client(), server.client(), options, keep_going)
    }

    /// Attempts go to one server, the watch to another.
    fn start_watching(server: &Server, watched: &Server, options: CandidateOptions) -> Self {
        Self::spawn(server.client(), watched.client(), options, || true)
    }

    fn spawn(
        writes: kube::Client,
        watches: kube::Client,
        options: CandidateOptions,
        keep_going: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let config = kube::Config::new("http://localhost".parse().unwrap());
        let campaign = Campaign::new(options.clone(), config, clock());
        let (status, resignation) = (campaign.status(), campaign.resignation());
        let watched = kube::Api::namespaced(watches, "ns");
        let (desk, orders) = campaign.parts();
        let run = tokio::spawn(async move {
            contest(options, writes, watched, desk, orders, keep_going).await;
        });
        Self { status, resignation, run }
    }

    fn leads(&self) -> bool {
        matches!(&self.status.borrow().state, LeaseState::Leading(guard) if guard.is_valid())
    }

    async fn until(&mut self, wanted: impl Fn(&LeaseStatus) -> bool) -> LeaseStatus {
        let found = self.status.wait_for(|status| wanted(status)).await.unwrap();
        found.clone()
    }

    async fn until_leading(&mut self) -> LeaderGuard {
        match self.until(|status| matches!(status.state, LeaseState::Leading(_))).await.state {
            LeaseState::Leading(guard) => guard,
            other => panic!("{other:?}"),
        }
    }

    async fn until_standby(&mut self) {
        self.until(|status| matches!(status.state, LeaseState::Standby { .. })).await;
    }

    fn reason(&self) -> Option<String> {
        match &self.status.borrow().state {
            LeaseState::NotReady { reason } => Some(reason.clone()),
            _ => None,
        }
    }

    fn kill(&self) {
        self.run.abort();
    }
}

/// The crate alone, for what it does without us.
fn bare(server: &Server, name: &str) -> LeaseLock {
    let params = LeaseLockParams {
        lease_name: "lease".into(),
        holder_id: name.into(),
        lease_ttl: LeaseTiming::DEFAULT.lease(),
    };
    LeaseLock::new(server.client(), "ns", params)
}

/// The mistake F4: the Lease is shown as it is, but for what decides.
pub(super) fn show_without_filling(lease: &mut Value, me: &str, shown: Shown) {
    let before = lease["spec"].clone();
    super::wire::show(lease, me, shown);
    let spec = lease["spec"].as_object_mut().unwrap();
    spec.retain(|field, _| before.get(field).is_some());
}

async fn pass(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}
