//! The last attempt, as our events tell it, and when the next one is due.
//!
//! The controller keeps its counters to itself, so the next try is an estimate: it supposes the default
//! waits, and that the event's count is true.

use serde::Serialize;

use super::{
    Finding, State,
    facts::{Event, Moment},
};
use crate::lifecycle::{retry::Backoff, tell::Reason};

/// How often the Recorder raises the count of an event at most: within it, attempts go untold.
const UNTOLD_SECONDS: u64 = 60;
/// An attempt that is due may take this long until it is told.
const GRACE_SECONDS: u64 = 60;

/// What was last tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When, as far as it was told.
    pub at: Moment,
    /// When the first one of this row failed.
    pub first_at: Moment,
    /// How many of this row are known.
    pub count: u32,
    /// The event's reason.
    pub reason: String,
    /// Its words: the error.
    pub message: String,
    /// What kind of error that is, if it failed.
    pub cause: Option<Cause>,
    /// Who told it: the provisioner's name.
    pub told_by: String,
}

/// The kinds of error that are told apart, by their words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Cause {
    /// A quota is used up.
    Quota,
    /// A permission is missing.
    Permission,
    /// There is no space left.
    Space,
    /// Any other.
    Other,
}

/// When it will be tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextTry {
    /// The time.
    pub at: Moment,
    /// Always true: only the controller knows.
    pub estimated: bool,
    /// The time has passed, and no attempt was told since: it is running, or waits for its turn.
    pub overdue: bool,
}

impl Attempt {
    /// The last attempt that `events` tell of. Events with words of `no_attempts` told of something else;
    /// so did those of kube-controller-manager.
    pub(super) fn last(events: &[Event], no_attempts: &[String]) -> Option<Self> {
        let attempts = || events.iter().filter(|event| is_ours(event) && !no_attempts.contains(&event.note));
        let last = attempts().max_by_key(|event| event.last.or(event.first))?;
        let at = last.last.or(last.first)?;
        // Another replica counts from the beginning, and so does what failed after a success.
        let row =
            || attempts().filter(|event| event.instance == last.instance && event.reason == last.reason);
        let first_at = row().filter_map(|event| event.first).min().unwrap_or(at);
        let failed = last.reason != Reason::ProvisioningSucceeded.as_str()
            && last.reason != Reason::Provisioning.as_str();
        Some(Self {
            at,
            first_at,
            count: row().map(|event| event.count.max(1)).fold(0, u32::saturating_add),
            reason: last.reason.clone(),
            message: last.note.clone(),
            cause: failed.then(|| Cause::of(&last.note)),
            told_by: last.controller.clone(),
        })
    }

    pub(super) const fn failed(&self) -> bool {
        self.cause.is_some()
    }

    /// Estimates the next try: the waits from the last told attempt on, past those that went untold.
    pub(super) fn next(&self, now: Moment) -> Option<NextTry> {
        self.cause?;
        let wait = |failures| Backoff::GO_LIBRARY.wait(failures, 0.0).as_secs();
        let mut failures = self.count.max(1);
        let mut at = self.at.plus(wait(failures));
        while at < now && at.seconds_since(self.at) < UNTOLD_SECONDS {
            failures = failures.saturating_add(1);
            at = at.plus(wait(failures));
        }
        let overdue = at.plus(GRACE_SECONDS) < now;
        Some(NextTry { at, estimated: true, overdue })
    }

    /// That this failed, and what to do about it.
    pub(super) fn finding(&self, work: &str) -> Finding {
        let (state, advice) = match self.cause {
            Some(Cause::Quota) => (
                State::QuotaExceeded,
                "Raise the quota that the error names, or free something that counts against it.",
            ),
            Some(Cause::Permission) => (
                State::PermissionDenied,
                "Give the provisioner the right that the error names: RBAC for the API server (deploy/rbac.yaml \
                 lists what is needed), the backend's own rights for everything else.",
            ),
            Some(Cause::Space) => (State::BackingOff, "Make room where the volumes are, or ask for less."),
            _ => (State::BackingOff, "Mend what the error says; it is the backend's own."),
        };
        Finding::new(state, format!("the last attempt to {work} failed: {}", self.message))
            .waits_for(format!("the next attempt to {work}"))
            .since(self.first_at)
            .advise(advice)
            .advise("Then wait for the next try; a change of the claim or its class, or a restart of the leader, hastens it.")
    }
}

impl Cause {
    /// By the words that systems use. A quota of Kubernetes says "forbidden" too, so it comes first.
    fn of(message: &str) -> Self {
        let message = message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if says(&["quota", "limit exceeded", "limitexceeded"]) {
            Self::Quota
        } else if says(&[
            "permission denied",
            "forbidden",
            "unauthorized",
            "not authorized",
            "access denied",
            "operation not permitted",
        ]) {
            Self::Permission
        } else if says(&["no space left", "not enough space", "insufficient space", "out of space"]) {
            Self::Space
        } else {
            Self::Other
        }
    }
}

fn is_ours(event: &Event) -> bool {
    const OURS: [Reason; 6] = [
        Reason::Provisioning,
        Reason::ProvisioningSucceeded,
        Reason::ProvisioningFailed,
        Reason::ProvisioningCleanupFailed,
        Reason::VolumeFailedDelete,
        Reason::VolumeDelete,
    ];
    // kube-controller-manager uses the same reason when a class is missing.
    event.controller != "persistentvolume-controller"
        && OURS.iter().any(|reason| reason.as_str() == event.reason)
}
