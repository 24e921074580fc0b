//! The one place where the machine is fed: under one lock, with the time, and with what follows from it
//! (the guard, the published status, the log lines) done before anybody else looks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::{
    CandidateOptions, Epoch, LeaderGuard, LeaseState, LeaseStatus, Takeover,
    machine::{Candidate, Ending, Machine, Restored},
};
use crate::clock::{BootTime, Clock};

/// Who reports what is wrong. Each has one place, so that one success does not hide another's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reporter {
    /// The attempts to acquire or renew.
    Attempts,
    /// The watch on the Lease.
    Watch,
    /// The hook that says whether the rest of the process lives.
    Liveness,
}

pub(super) struct Desk {
    inner: Mutex<Inner>,
    clock: Arc<dyn Clock>,
    lease: String,
    status: watch::Sender<LeaseStatus>,
    /// The plan of the campaign may have changed.
    pub(super) changed: Notify,
}

struct Inner {
    machine: Machine,
    guard: Option<LeaderGuard>,
    attempts: Option<String>,
    watch: Option<String>,
    liveness: Option<String>,
}

impl Desk {
    pub(super) fn new(options: &CandidateOptions, candidate: Candidate, clock: Arc<dyn Clock>) -> Self {
        let lease = format!("{}/{}", options.lease.namespace, options.lease.name);
        let unread = format!("the Lease {lease} has not been read yet");
        let status = LeaseStatus {
            state: LeaseState::NotReady { reason: unread.clone() },
            identity: options.identity.clone(),
            takeover: None,
            leaderships: 0,
            problem: Some(unread.clone()),
            restores: 0,
            restored: None,
            restored_from: 0,
        };
        let inner = Inner {
            machine: Machine::new(Arc::new(candidate)),
            guard: None,
            attempts: Some(unread),
            watch: None,
            liveness: None,
        };
        let status = watch::Sender::new(status);
        Self { inner: Mutex::new(inner), clock, lease, status, changed: Notify::new() }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<LeaseStatus> {
        self.status.subscribe()
    }

    pub(super) fn now(&self) -> BootTime {
        self.clock.now()
    }

    /// The Lease as `namespace/name`, for messages.
    pub(super) fn lease(&self) -> &str {
        &self.lease
    }

    pub(super) fn guard(&self) -> Option<LeaderGuard> {
        self.lock().guard.clone()
    }

    /// Feeds the machine, and carries out what follows from it.
    pub(super) fn with<R>(&self, input: impl FnOnce(&mut Machine, BootTime) -> R) -> R {
        let mut inner = self.lock();
        let before = inner.machine.free_from();
        let answer = input(&mut inner.machine, self.clock.now());
        self.follow(&mut inner, before);
        if inner.machine.free_from() != before {
            self.changed.notify_one();
        }
        answer
    }

    /// Takes note of what is wrong, or that it is no longer.
    pub(super) fn report(&self, reporter: Reporter, problem: Option<String>) {
        let mut inner = self.lock();
        let place = match reporter {
            Reporter::Attempts => &mut inner.attempts,
            Reporter::Watch => &mut inner.watch,
            Reporter::Liveness => &mut inner.liveness,
        };
        if *place != problem {
            *place = problem;
            self.follow(&mut inner, None);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock can only come from a bug in the machine: its guard lapses by itself.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, inner: &mut Inner, before: Option<(BootTime, BootTime)>) {
        let ending = inner.machine.take_ending();
        self.follow_the_end(inner, ending.as_ref());
        let begun = self.follow_the_term(inner, before);
        let forgets = inner.machine.take_forgets();
        self.publish(inner, begun, forgets);
    }

    fn follow_the_end(&self, inner: &mut Inner, ending: Option<&Ending>) {
        let ended = match (&inner.guard, inner.machine.term()) {
            (Some(guard), Some(term)) => guard.epoch().number != term.number,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if ended && let Some(guard) = inner.guard.take() {
            guard.end();
            guard.believes();
            let lease = &self.lease;
            let why = ending.map_or_else(|| Ending::Lapsed.to_string(), ToString::to_string);
            tracing::warn!(lease, epoch = %guard.epoch(), why, "no longer leader");
        }
    }

    /// Extends the guard, or makes one for a new term. Answers how a new one came about.
    fn follow_the_term(&self, inner: &mut Inner, before: Option<(BootTime, BootTime)>) -> Option<Takeover> {
        let term = inner.machine.term()?;
        if let Some(guard) = &inner.guard {
            if guard.extend(term.valid_until).is_err() {
                // It lapsed while the renewal was being judged: what lapsed is never brought back to life.
                inner.machine.lapse(BootTime::from_boot(std::time::Duration::MAX));
                let ending = inner.machine.take_ending();
                self.follow_the_end(inner, ending.as_ref());
            } else {
                guard.believes();
            }
            return None;
        }
        let epoch = Epoch { number: term.number, lease_uid: term.lease_uid.clone() };
        let now = self.clock.now();
        let (last_sign, free_at) = before.unwrap_or((now, now));
        let takeover = Takeover {
            since_last_sign: now.saturating_since(last_sign),
            since_free: now.saturating_since(free_at),
        };
        tracing::info!(
            lease = &self.lease, epoch = %epoch, since_last_sign = ?takeover.since_last_sign,
            since_free = ?takeover.since_free, "leader"
        );
        let guard = LeaderGuard::new(epoch, term.valid_until, self.clock.clone());
        guard.believes();
        inner.guard = Some(guard);
        Some(takeover)
    }

    fn publish(&self, inner: &Inner, begun: Option<Takeover>, forgets: bool) {
        let problem = inner.problem(&self.lease);
        let state = inner.state(problem.as_deref());
        let Restored { told, from } = inner.machine.restored();
        self.status.send_if_modified(|status| {
            let same = status.state.says_the_same(&state)
                && status.problem == problem
                && (status.restored.as_deref(), status.restored_from) == (told.as_deref(), from);
            if same && !forgets {
                return false;
            }
            self.log(status, &state, problem.as_deref());
            status.state = state;
            status.problem = problem;
            status.leaderships += u64::from(begun.is_some());
            status.takeover = begun.or(status.takeover);
            status.restores += u64::from(forgets);
            status.restored = told.as_deref().map(ToOwned::to_owned);
            status.restored_from = from;
            true
        });
    }

    fn log(&self, before: &LeaseStatus, state: &LeaseState, problem: Option<&str>) {
        let lease = &self.lease;
        match problem {
            Some(problem) if before.problem.as_deref() != Some(problem) => {
                tracing::warn!(lease, problem, "leader election is impaired");
            }
            None if before.problem.is_some() => tracing::info!(lease, "leader election works"),
            _ => {}
        }
        if let LeaseState::Standby { holder } = state
            && !before.state.says_the_same(state)
        {
            tracing::info!(lease, holder = holder.as_deref().unwrap_or("nobody"), "standby");
        }
    }
}

impl Inner {
    fn state(&self, problem: Option<&str>) -> LeaseState {
        if let Some(guard) = &self.guard {
            return LeaseState::Leading(guard.clone());
        }
        match problem {
            Some(reason) => LeaseState::NotReady { reason: reason.into() },
            None => LeaseState::Standby { holder: self.machine.holder().map(ToString::to_string) },
        }
    }

    fn problem(&self, lease: &str) -> Option<String> {
        let foreign = self.machine.other_provisioner().map(|other| {
            let ours = &self.machine.who().provisioner;
            format!(
                "the Lease {lease} belongs to the provisioner {other:?}, not to {ours:?}: give one of them \
                 another Lease with --lease-name"
            )
        });
        let endless = || {
            let duration = self.machine.absurd_duration()?;
            Some(format!(
                "the Lease {lease} says that it lasts {duration:?}, which nobody can wait for: put its \
                 leaseDurationSeconds right, or delete it"
            ))
        };
        let reported = [&self.liveness, &self.attempts, &self.watch];
        foreign.or_else(endless).or_else(|| reported.into_iter().find_map(Clone::clone))
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lapsed => f.write_str("the hold ran out without a renewal"),
            Self::Overwritten(Some(holder)) => write!(f, "{holder} stands in the Lease"),
            Self::Overwritten(None) => f.write_str("the Lease was emptied"),
            Self::Deleted => f.write_str("the Lease was deleted"),
            Self::Restored => f.write_str("the API server's store was restored from a backup"),
            Self::OtherProvisioner(name) => write!(f, "the Lease says it belongs to {name}"),
            Self::GivenUp => f.write_str("given up"),
        }
    }
}
