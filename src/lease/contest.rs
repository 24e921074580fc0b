//! When the Lease is contested: renewals of a leader, the computed instant of a standby, retries, and the
//! step-down at the end. What an attempt means is the machine's business.

use std::{future::pending, sync::Arc, time::Duration};

use kube_leader_election::LeaseLock;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{
    LeaseTiming,
    campaign::{Order, Resigned},
    desk::{Desk, Reporter},
    machine::Machine,
    trouble::{Trouble, Troubles},
};
use crate::clock::BootTime;

/// Standbys that wait for the same instant spread over this.
pub(super) const SPREAD: Duration = Duration::from_millis(30);

/// So long before the computed instant a standby reads the Lease once: what it takes to connect is then
/// behind it. While the holder renews, that instant never comes.
const GLANCE: Duration = Duration::from_millis(250);

/// The least time between two attempts, whatever seems to call for one.
const PACE: Duration = Duration::from_millis(10);

pub(super) struct Contest {
    pub(super) lock: LeaseLock,
    pub(super) desk: Arc<Desk>,
    pub(super) timing: LeaseTiming,
    pub(super) troubles: Arc<Troubles>,
    /// By how much later than computed this replica acts on an expiry.
    pub(super) spread: Duration,
}

/// The latest attempt.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    begun: BootTime,
    ended: BootTime,
    /// The API server answered as it should, be it that somebody else was faster.
    answered: bool,
    /// Nothing is left to be done: the Lease was written, or it is held.
    done: bool,
}

impl Contest {
    /// Contests until an order to resign comes.
    pub(super) async fn run(self, mut orders: mpsc::Receiver<Order>, keep_going: impl Fn() -> bool) {
        let mut latest = None;
        loop {
            let due = self.due(latest);
            tokio::select! {
                biased;
                order = next(&mut orders) => return self.resign(order).await,
                () = self.desk.changed.notified() => continue,
                () = sleep(due.saturating_since(self.desk.now())) => {}
            }
            self.desk.with(|machine, now| machine.lapse(now));
            if self.due(latest) > self.desk.now() {
                continue;
            }
            if !self.alive(&keep_going) {
                latest = Some(self.nothing_done());
                continue;
            }
            // Waiting for an answer must not delay a step-down: what is under way is then settled by it.
            tokio::select! {
                biased;
                order = next(&mut orders) => return self.resign(order).await,
                attempt = self.attempt() => latest = Some(attempt),
            }
        }
    }

    /// When to wake up: for the next attempt, or because a leadership lapses.
    fn due(&self, latest: Option<Attempt>) -> BootTime {
        let Some(latest) = latest else { return self.desk.now() };
        self.desk.with(|machine, _| match machine.term() {
            Some(term) => self.next_renewal(latest).min(term.valid_until),
            None => self.next_chance(machine, latest),
        })
    }

    fn next_renewal(&self, latest: Attempt) -> BootTime {
        if latest.done { latest.begun + self.timing.renew() } else { latest.ended + self.timing.retry() }
    }

    fn next_chance(&self, machine: &Machine, latest: Attempt) -> BootTime {
        if !latest.answered {
            return latest.ended + self.timing.renew();
        }
        let soon = latest.ended + PACE;
        match machine.free_from() {
            // The watch tells of a change. In case it does not, look again.
            _ if machine.other_provisioner().is_some() => latest.ended + self.timing.lease(),
            None => latest.ended + self.timing.retry(),
            // It was released, or is our own and lapsed.
            Some((seen, free)) if free <= seen => soon,
            Some((_, free)) if latest.ended < free - GLANCE => free - GLANCE,
            Some((_, free)) => soon.max(free + self.spread),
        }
    }

    fn alive(&self, keep_going: &impl Fn() -> bool) -> bool {
        let alive = keep_going();
        let problem = "other parts of this process do not answer: it neither leads nor contests";
        self.desk.report(Reporter::Liveness, (!alive).then(|| problem.to_owned()));
        if !alive {
            self.desk.with(|machine, _| machine.abandon());
        }
        alive
    }

    fn nothing_done(&self) -> Attempt {
        let now = self.desk.now();
        Attempt { begun: now, ended: now, answered: false, done: false }
    }

    /// One read and, if the machine sees fit, one write: within a fraction of the hold, and within what is
    /// left of a leadership.
    async fn attempt(&self) -> Attempt {
        let begun = self.desk.now();
        let left = self.desk.guard().and_then(|guard| guard.remaining().ok());
        let limit = left.map_or(self.timing.attempt(), |left| left.min(self.timing.attempt()));
        self.troubles.take();
        let answer = timeout(limit, self.lock.try_acquire_or_renew()).await;
        let trouble = match &answer {
            Ok(_) => self.troubles.take(),
            Err(_) => Some(Trouble::Unreachable),
        };
        if let Ok(Err(error)) = &answer {
            tracing::debug!(lease = self.desk.lease(), %error, "attempt failed");
        }
        let answered = trouble.is_none();
        self.desk.report(Reporter::Attempts, trouble.map(|trouble| trouble.describe(self.desk.lease())));
        self.desk.with(|machine, now| machine.lapse(now));
        Attempt { begun, ended: self.desk.now(), answered, done: matches!(answer, Ok(Ok(_))) }
    }

    async fn resign(&self, order: Order) {
        let held = self.desk.with(|machine, now| {
            machine.lapse(now);
            let held = machine.may_hold();
            machine.step_down();
            held
        });
        let resigned = if held { self.release(order.budget).await } else { Resigned::NotHeld };
        tracing::info!(lease = self.desk.lease(), outcome = ?resigned, "resigned");
        // Nobody may be waiting any more.
        let _ = order.reply.send(resigned);
    }

    async fn release(&self, budget: Duration) -> Resigned {
        let attempts = async {
            loop {
                match timeout(self.timing.attempt(), self.lock.step_down()).await {
                    Ok(Ok(())) => return Resigned::Released,
                    Ok(Err(kube_leader_election::Error::ReleaseLockWhenNotLeading { .. })) => {
                        return Resigned::NotHeld;
                    }
                    _ => sleep(self.timing.retry().min(budget / 8)).await,
                }
            }
        };
        timeout(budget, attempts).await.unwrap_or(Resigned::Unconfirmed)
    }
}

async fn next(orders: &mut mpsc::Receiver<Order>) -> Order {
    match orders.recv().await {
        Some(order) => order,
        None => pending().await,
    }
}
