//! What a leader begins, and for how long it believes to lead, as log lines of a target of their own: with the time,
//! and what was left of its guard.
//!
//! They show that nothing was begun outside a leadership, and that no two believed to lead at a time. Off unless the log level asks for them
//! (`kube_provisioner::history=debug`).

use std::{fmt::Display, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use super::{LeaderGuard, NotLeading};
use crate::known_bugs::{self, Bug};

/// The target of the lines.
pub const TARGET: &str = "kube_provisioner::history";

impl LeaderGuard {
    /// [`remaining`](Self::remaining) for whoever begins `what` now, which changes something outside.
    ///
    /// # Errors
    /// [`NotLeading`] when the guard has ended: nothing may be begun.
    pub fn begin(&self, what: impl Display) -> Result<Duration, NotLeading> {
        let left = self.remaining()?;
        // A bug that acts without a guard does not hide that it has none.
        let held = if known_bugs::is(Bug::NoGuard) { self.left().unwrap_or_default() } else { left };
        tracing::debug!(
            target: TARGET,
            at = raw_nanos(),
            left = nanos(held),
            epoch = self.epoch().number,
            %what,
            "begins"
        );
        Ok(left)
    }

    /// Puts on record until when the holder of this guard now believes to lead: for no longer, if it has ended.
    pub(super) fn believes(&self) {
        let left = self.remaining().unwrap_or_default();
        let epoch = self.epoch().number;
        tracing::debug!(target: TARGET, at = raw_nanos(), left = nanos(left), epoch, "believes");
    }
}

/// `CLOCK_MONOTONIC_RAW`: one clock for all processes of a machine, which no test fakes.
fn raw_nanos() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    let part = |value| u64::try_from(value).unwrap_or_default();
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
