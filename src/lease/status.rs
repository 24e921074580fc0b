//! What a campaign publishes: leader, standby or not ready, and what metrics want to know about it.

use std::time::Duration;

use super::{Identity, LeaderGuard};

/// What this replica is, as far as the Lease goes.
#[derive(Clone, Debug)]
pub enum LeaseState {
    /// It leads, for as long as the guard holds.
    Leading(LeaderGuard),
    /// It is ready to take over.
    Standby {
        /// Who holds the Lease, `None` when nobody does.
        holder: Option<String>,
    },
    /// It can't lead at present.
    NotReady {
        /// Why, and what to do about it.
        reason: String,
    },
}

impl LeaseState {
    /// Whether `other` says the same (a leadership is told by its epoch).
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leading(one), Self::Leading(other)) => one.epoch() == other.epoch(),
            (Self::Standby { holder: one }, Self::Standby { holder: other }) => one == other,
            (Self::NotReady { reason: one }, Self::NotReady { reason: other }) => one == other,
            _ => false,
        }
    }
}

/// How this replica came to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// From the last change of the Lease that was seen before (a renewal of the earlier holder, or its
    /// release) to the leadership.
    pub since_last_sign: Duration,
    /// From the instant at which the Lease was free to the leadership.
    pub since_free: Duration,
}

/// The state, with what surrounds it.
#[derive(Clone, Debug)]
pub struct LeaseStatus {
    /// Leader, standby or not ready.
    pub state: LeaseState,
    /// The identity of this start of this replica.
    pub identity: Identity,
    /// How the latest leadership of this replica began.
    pub takeover: Option<Takeover>,
    /// How often this replica has come to lead.
    pub leaderships: u64,
    /// Something is wrong that does not (or not yet) end a leadership: readiness should say so.
    pub problem: Option<String>,
    /// How often it was found out that the API server's store was restored from a backup: what is cached of it must
    /// be read anew.
    pub restores: u64,
    /// What the Lease tells of a restore, until people have taken that off: orphans are only reported.
    pub restored: Option<String>,
    /// The newest version of a claim that is known from before a restore: marks up to it show no other one.
    pub restored_from: u64,
}
