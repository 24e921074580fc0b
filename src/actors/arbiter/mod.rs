//! Who works on what, when: the `World`, the queue, and the memory of every key's attempts.
//!
//! Plain and synchronous: news, outcomes, leadership and the time come in, [`Effect`]s come out.
//! `actor.rs` feeds it and carries the effects out.

mod actor;
mod entry;
mod news;
mod outcome;
mod queue;
mod repeats;
mod story;
#[cfg(test)]
mod tests;
mod work;
mod world;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
    sync::Arc,
    time::Duration,
};

pub use self::{
    actor::{
        ArbiterActor, Drain, Finished, Forget, LeadershipChanged, MarkRead, News, RemoveOrphans, Setup,
        UnknownAmong,
    },
    queue::Lane,
    story::{Story, Waited},
    world::{Key, Kind, World},
};
use self::{
    entry::{Entry, State},
    queue::{Line, Ticket},
    story::Stories,
};
use crate::{
    actors::volume::Task,
    clock::BootTime,
    lease::LeaderGuard,
    lifecycle::{
        claim::{self, Served},
        names::VolumeNaming,
        objects::Version,
        retry::Backoff,
        tell::Note,
    },
};

/// Volumes at once whose finalizer is put on or taken off, in the background.
const TENDED_AT_ONCE: usize = 2;

/// The rules of work.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How volumes are named.
    pub naming: VolumeNaming,
    /// The wait after failures.
    pub backoff: Backoff,
    /// Claims provisioned at once.
    pub provision_workers: usize,
    /// Volumes removed at once.
    pub delete_workers: usize,
    /// Failures after which a claim in one version is given up; 0: never.
    pub provision_threshold: u32,
    /// Failures after which a volume in one version is given up; 0: never.
    pub delete_threshold: u32,
    /// Whether the start of each provisioning is told.
    pub tell_start: bool,
}

/// Something that the Arbiter wants done.
#[derive(Debug)]
pub enum Effect {
    /// Start an operation under this guard.
    Start {
        /// What it is to achieve.
        task: Task,
        /// The permission to act.
        guard: LeaderGuard,
        /// The number of this attempt, from 1.
        attempt: u32,
        /// How long the key waited in the queue.
        waited: Duration,
    },
    /// Cancel the running operation of this key; it reports its end.
    Stop(Key),
    /// Tell people.
    Tell(Note),
    /// Read the mark of a new leadership.
    ReadMark(LeaderGuard),
    /// An operation has ended so; for metrics and the log.
    Ended(Ended),
    /// A key entered the queue of this lane; for metrics.
    Queued(Lane),
    /// A key left the queue of this lane without being started; for metrics.
    Unqueued(Lane),
    /// A wait is over; for its trace. Only told by the leader.
    Waited(Waited),
    /// A claim has its volume and all is done; for its trace.
    Over(Box<Story>),
}

/// How an operation ended, for metrics and the log.
#[derive(Debug)]
pub struct Ended {
    /// What it was to achieve.
    pub task: Task,
    /// How long it took.
    pub took: Duration,
    /// Since when its key was to be worked on, earlier attempts included.
    pub wanted: BootTime,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it was to do.
    Succeeded,
    /// It failed, with this message, and is tried again after this time (`None`: given up).
    Failed(String, Option<Duration>),
    /// The volume is in use, which is no failure; it is tried again after this time (`None`: given up).
    InUse(String, Option<Duration>),
    /// There was nothing to do, for this reason.
    Moot(String),
}

/// See the module.
#[derive(Debug)]
pub struct Arbiter {
    rules: Rules,
    world: World,
    entries: HashMap<Key, Entry>,
    provision: Line,
    remove: Line,
    tend: Line,
    /// When waits are over, the earliest first. An entry that changed meanwhile ignores it.
    alarms: BinaryHeap<Reverse<(BootTime, Key)>>,
    tickets: Ticket,
    synced: BTreeSet<Kind>,
    /// The kinds of which nothing has been listed since all was forgotten.
    forgotten: BTreeSet<Kind>,
    leadership: Option<LeaderGuard>,
    /// The version of claims below which the cache is not trusted; `None` until it was read.
    mark: Option<Version>,
    draining: bool,
    stories: Stories,
    effects: Vec<Effect>,
}

impl Arbiter {
    /// An Arbiter that has seen nothing yet.
    #[must_use]
    pub fn new(served: Arc<Served>, rules: Rules) -> Self {
        Self {
            world: World::new(served, rules.naming.clone()),
            provision: Line::new(rules.provision_workers),
            remove: Line::new(rules.delete_workers),
            tend: Line::new(TENDED_AT_ONCE),
            rules,
            entries: HashMap::new(),
            alarms: BinaryHeap::new(),
            tickets: 0,
            synced: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            leadership: None,
            mark: None,
            draining: false,
            stories: Stories::default(),
            effects: Vec::new(),
        }
    }

    /// Takes what is to be done since the last time.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The cached objects.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Whether the first list of every kind is complete.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced.len() == Kind::ALL.len()
    }

    /// Operations under way.
    #[must_use]
    pub fn running(&self) -> usize {
        Lane::ALL.iter().map(|lane| self.running_in(*lane)).sum()
    }

    /// Operations under way in one lane.
    #[must_use]
    pub fn running_in(&self, lane: Lane) -> usize {
        self.line(lane).running()
    }

    const fn line(&self, lane: Lane) -> &Line {
        match lane {
            Lane::Provision => &self.provision,
            Lane::Remove => &self.remove,
            Lane::Tend => &self.tend,
        }
    }

    const fn line_mut(&mut self, lane: Lane) -> &mut Line {
        match lane {
            Lane::Provision => &mut self.provision,
            Lane::Remove => &mut self.remove,
            Lane::Tend => &mut self.tend,
        }
    }

    /// Keys waiting for a slot in one lane.
    #[must_use]
    pub fn queued_in(&self, lane: Lane) -> usize {
        self.entries.values().filter(|entry| entry.is_queued_in(lane)).count()
    }

    /// How many claims are pending, by the category of the reason.
    #[must_use]
    pub fn pending_by_reason(&self) -> HashMap<&'static str, usize> {
        let mut counts = HashMap::new();
        for (key, _) in self.world.pending_claims() {
            *counts.entry(self.pending_category(key)).or_default() += 1;
        }
        counts
    }

    fn pending_category(&self, key: &Key) -> &'static str {
        match (self.world.decide_claim(key), self.entries.get(key).map(|entry| &entry.state)) {
            (Some(claim::Decision::Wait(reason) | claim::Decision::Refuse(reason)), _) => reason.category(),
            (_, Some(State::Running(_))) => "Provisioning",
            (_, Some(State::BackingOff { .. } | State::CatchingUp { .. })) => "BackingOff",
            (_, Some(State::Parked)) => "GivenUp",
            (Some(claim::Decision::Settled), _) => "Binding",
            _ => "Queued",
        }
    }

    /// A leadership begins after nobody has led for `gap`.
    pub fn lead_after(&mut self, gap: Duration, guard: LeaderGuard, now: BootTime) {
        let waited = self.stories.lead_after(gap, now);
        self.effects.extend(waited.into_iter().map(Effect::Waited));
        // While another led, nothing waited for this replica.
        for entry in self.entries.values_mut() {
            entry.wait_from(now);
        }
        self.leadership(Some(guard), now);
    }

    /// A leadership begins or ends.
    pub fn leadership(&mut self, guard: Option<LeaderGuard>, now: BootTime) {
        self.stop_all();
        self.end_stories();
        self.mark = None;
        self.leadership.clone_from(&guard);
        let Some(guard) = guard else { return };
        self.effects.push(Effect::ReadMark(guard));
        for entry in self.entries.values_mut() {
            entry.told = None;
        }
        self.consider_all(now);
        self.dispatch(now);
    }

    /// The API server's store went back in time: what is cached and remembered is of another history. Nothing is
    /// dispatched before everything was listed anew.
    pub fn forget_all(&mut self, now: BootTime) {
        self.leadership(None, now);
        self.world = self.world.emptied();
        self.synced.clear();
        self.forgotten.extend(Kind::ALL);
        let keys: Vec<Key> = self.entries.keys().cloned().collect();
        for key in keys {
            self.leave_queue(&key);
            match self.entries.get_mut(&key) {
                Some(Entry { state: State::Running(running), .. }) => running.outdated = true,
                _ => drop(self.entries.remove(&key)),
            }
        }
    }

    /// The mark of the leadership under `guard` was read.
    pub fn mark_read(&mut self, guard: &LeaderGuard, mark: Version) {
        if self.leadership.as_ref().is_some_and(|leading| leading.epoch() == guard.epoch()) {
            self.mark = Some(mark);
        }
    }

    /// No more operation is started; those under way may end.
    pub fn drain(&mut self) {
        self.draining = true;
        self.end_stories();
    }

    fn end_stories(&mut self) {
        let stories = self.stories.end_all();
        self.effects.extend(stories.into_iter().map(|story| Effect::Over(story.into())));
    }

    fn end_story(&mut self, key: &Key, bound: Option<BootTime>) {
        let story = self.stories.end(key, bound);
        self.effects.extend(story.map(|story| Effect::Over(story.into())));
    }

    /// Cancels every operation under way.
    pub fn stop_all(&mut self) {
        let running = self.entries.iter().filter(|(_, entry)| matches!(entry.state, State::Running(_)));
        let keys: Vec<Key> = running.map(|(key, _)| key.clone()).collect();
        self.effects.extend(keys.into_iter().map(Effect::Stop));
    }

    /// When something is to be looked at again, if at all.
    pub fn next_alarm(&self) -> Option<BootTime> {
        self.alarms.peek().map(|Reverse((at, _))| *at)
    }

    /// Looks at every key whose wait is over.
    pub fn wake(&mut self, now: BootTime) {
        while let Some(Reverse((at, _))) = self.alarms.peek() {
            if *at > now {
                break;
            }
            let Some(Reverse((at, key))) = self.alarms.pop() else { break };
            if self.entries.get(&key).and_then(Entry::waits_until) == Some(at) {
                self.enqueue_if_wanted(&key, now);
            }
        }
        self.dispatch(now);
    }

    /// Looks at every key again. Hastens nothing: waits and counters stay.
    pub fn resync(&mut self, now: BootTime) {
        self.consider_all(now);
        self.dispatch(now);
    }

    fn may_act(&self) -> bool {
        self.is_synced() && !self.draining && self.leadership.as_ref().is_some_and(LeaderGuard::is_valid)
    }

    fn consider_all(&mut self, now: BootTime) {
        let mut keys: Vec<Key> = self.world.keys().cloned().collect();
        keys.extend(self.entries.keys().filter(|key| self.world.claim(key).is_none()).cloned());
        for key in keys {
            self.consider(&key, now);
        }
    }
}
