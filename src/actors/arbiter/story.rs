//! What is remembered for traces: what each key waits for now, and the claims whose volume is saved but not
//! bound yet. What counts as waiting is decided in `mod.rs`; how spans are written is the actor's business.

use std::{collections::HashMap, time::Duration};

use super::world::Key;
use crate::{actors::volume::ProvisionTask, clock::BootTime, lifecycle::objects::Claim};

/// Waiting for a slot.
pub(super) const QUEUED: &str = "Queued";
/// Waiting to try again.
pub(super) const BACKING_OFF: &str = "BackingOff";
/// Retries ended at the threshold: waiting for a change.
pub(super) const GIVEN_UP: &str = "GivenUp";
/// The backend left it alone: waiting for a change.
pub(super) const IGNORED: &str = "Ignored";
/// Nobody led.
pub(super) const LEADERLESS: &str = "Leaderless";

/// Waits too short to be worth a span.
const SHORT: Duration = Duration::from_millis(1);
/// Claims remembered between saving and binding. Without their whole objects about 1 KB each.
const UNBOUND: usize = 4096;

/// A wait that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The UID of the claim, or of the volume where it is removed.
    pub uid: Box<str>,
    /// What was waited for, one word of a fixed set.
    pub reason: &'static str,
    /// From when.
    pub start: BootTime,
    /// Until when.
    pub end: BootTime,
}

/// A claim whose story is over, to be told once.
#[derive(Debug)]
pub struct Story {
    /// The claim (without its whole object), its class and its volume's name.
    pub task: ProvisionTask,
    /// When its volume was saved.
    pub saved: BootTime,
    /// When it was bound; `None` where that was not seen.
    pub bound: Option<BootTime>,
}

#[derive(Debug)]
struct Open {
    uid: Box<str>,
    reason: &'static str,
    since: BootTime,
}

/// See the module. Every key has one open wait at most.
#[derive(Debug, Default)]
pub(super) struct Stories {
    waits: HashMap<Key, Open>,
    unbound: HashMap<Key, (ProvisionTask, BootTime)>,
}

impl Stories {
    /// The key waits for `reason` from now on. What it waited for until now, if that is something else. An
    /// orphan has no UID and no trace.
    pub(super) fn wait(
        &mut self,
        key: &Key,
        uid: &str,
        reason: &'static str,
        now: BootTime,
    ) -> Option<Waited> {
        if self.waits.get(key).is_some_and(|open| open.reason == reason && &*open.uid == uid) {
            return None;
        }
        if uid.is_empty() {
            return self.go_on(key, now);
        }
        let open = Open { uid: uid.into(), reason, since: now };
        self.waits.insert(key.clone(), open).and_then(|open| open.close(now))
    }

    /// The key does not wait any more. What it waited for until now.
    pub(super) fn go_on(&mut self, key: &Key, now: BootTime) -> Option<Waited> {
        self.waits.remove(key).and_then(|open| open.close(now))
    }

    /// Nothing is to be told of what the key waits for.
    pub(super) fn forget(&mut self, key: &Key) {
        self.waits.remove(key);
    }

    /// This replica leads from now on, and nobody did for `gap`. What waited in its queue while another led
    /// was that one's to tell of; what waited while nobody led is returned.
    pub(super) fn lead_after(&mut self, gap: Duration, now: BootTime) -> Vec<Waited> {
        let queued = self.waits.values_mut().filter(|open| open.reason == QUEUED);
        let waited = queued.filter_map(|open| {
            let start = open.since.max(now - gap);
            open.since = now;
            Open { uid: open.uid.clone(), reason: LEADERLESS, since: start }.close(now)
        });
        waited.collect()
    }

    /// The claim's volume is saved; its story ends when it is bound. The story where that can't be awaited.
    pub(super) fn saved(&mut self, key: &Key, task: &ProvisionTask, now: BootTime) -> Option<Story> {
        let claim = Claim { whole: None, ..(*task.claim).clone() };
        let task = ProvisionTask { claim: claim.into(), ..task.clone() };
        if self.unbound.len() >= UNBOUND {
            return Some(Story { task, saved: now, bound: None });
        }
        self.unbound.insert(key.clone(), (task, now));
        None
    }

    /// The claim is bound, or (`None`) will not be seen to be: its story, if it was not told yet.
    pub(super) fn end(&mut self, key: &Key, bound: Option<BootTime>) -> Option<Story> {
        let (task, saved) = self.unbound.remove(key)?;
        Some(Story { task, saved, bound })
    }

    /// Nothing more will be seen: all stories that were not told yet.
    pub(super) fn end_all(&mut self) -> Vec<Story> {
        self.unbound.drain().map(|(_, (task, saved))| Story { task, saved, bound: None }).collect()
    }
}

impl Open {
    fn close(self, end: BootTime) -> Option<Waited> {
        let Self { uid, reason, since } = self;
        (end.saturating_since(since) >= SHORT).then_some(Waited { uid, reason, start: since, end })
    }
}
