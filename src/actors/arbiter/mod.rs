//! Who works on what, when: the `World`, the queue, and the memory of every key's attempts.
//!
//! Plain and synchronous: news, outcomes, leadership and the time come in, [`Effect`]s come out.
//! `actor.rs` feeds it and carries the effects out.

mod actor;
mod entry;
mod queue;
mod repeats;
mod story;
#[cfg(test)]
mod tests;
mod world;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
    sync::Arc,
    time::Duration,
};

pub use self::{
    actor::{
        ArbiterActor, Drain, Finished, LeadershipChanged, MarkRead, News, RemoveOrphans, Setup, UnknownAmong,
    },
    queue::Lane,
    story::{Story, Waited},
    world::{Key, Kind, World},
};
use self::{
    entry::{Entry, Running, State},
    queue::{Line, Ticket},
    story::Stories,
    world::Touch,
};
use crate::{
    actors::volume::{Failure, Job, OrphanTask, Outcome, ProvisionTask, RemoveTask, Task},
    clock::BootTime,
    cluster::watch,
    lease::LeaderGuard,
    lifecycle::{
        claim::{self, PendingReason, Served},
        names::VolumeNaming,
        objects::{Claim, Class, Node, Version, Volume},
        retry::Backoff,
        tell::{Note, Reason},
        volume,
    },
    provisioner::{Asset, SelectedNode},
};

/// How long a key waits for the watch to show what a conflict was about, before it is tried anyway.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Volumes at once whose finalizer is put on or taken off, in the background.
const TENDED_AT_ONCE: usize = 2;
/// The longest wait after a failure that is unlikely to heal by itself.
const SLOW: Duration = Duration::from_secs(5 * 60);

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
            (_, Some(State::BackingOff { .. })) => "BackingOff",
            (_, Some(State::Parked)) => "GivenUp",
            (Some(claim::Decision::Settled), _) => "Binding",
            _ => "Queued",
        }
    }

    /// What the claims' watch brought.
    pub fn see_claims(&mut self, news: &[watch::News<Arc<Claim>>], now: BootTime) {
        for news in news {
            match news {
                watch::News::Seen(claim) => {
                    let touched = self.world.see_claim(claim.clone());
                    if claim.bound {
                        self.end_story(&touched.0, Some(now));
                    }
                    self.touch(touched, now);
                }
                watch::News::Gone(claim) => {
                    let touched = self.world.lose_claim(&claim.uid);
                    self.end_story(&touched.0, None);
                    self.touch(touched, now);
                }
                other => self.list_progress(Kind::Claims, other, now),
            }
        }
        self.dispatch(now);
    }

    /// What the volumes' watch brought.
    pub fn see_volumes(&mut self, news: &[watch::News<Arc<Volume>>], now: BootTime) {
        for news in news {
            match news {
                watch::News::Seen(volume) => {
                    let touched = self.world.see_volume(volume.clone());
                    self.touch(touched, now);
                }
                watch::News::Gone(volume) => self.lose_volume(volume, now),
                other => self.list_progress(Kind::Volumes, other, now),
            }
        }
        self.dispatch(now);
    }

    fn lose_volume(&mut self, volume: &Volume, now: BootTime) {
        if let Some(Entry { state: State::Running(running), .. }) = self.entries.get_mut(&volume.name) {
            running.volume_gone = true;
        }
        let touched = self.world.lose_volume(&volume.name);
        self.touch(touched, now);
        // Its claim's own key may be another one.
        if let Some(claim) = &volume.claim {
            let key = self.world.key_of(&claim.uid);
            if key != volume.name && self.world.claim(&key).is_some() {
                self.touch((key, Touch::Changed), now);
            }
        }
    }

    /// What the classes' watch brought.
    pub fn see_classes(&mut self, news: &[watch::News<Arc<Class>>], now: BootTime) {
        for news in news {
            match news {
                watch::News::Seen(class) => {
                    let keys = self.world.see_class(class.clone());
                    self.touch_all(keys, now);
                }
                watch::News::Gone(class) => {
                    let keys = self.world.lose_class(&class.name);
                    self.touch_all(keys, now);
                }
                other => self.list_progress(Kind::Classes, other, now),
            }
        }
        self.dispatch(now);
    }

    /// What the nodes' watch brought.
    pub fn see_nodes(&mut self, news: &[watch::News<Arc<Node>>], now: BootTime) {
        for news in news {
            match news {
                watch::News::Seen(node) => self.world.see_node(node.clone()),
                watch::News::Gone(node) => {
                    let keys = self.world.lose_node(&node.name);
                    self.touch_all(keys, now);
                }
                other => self.list_progress(Kind::Nodes, other, now),
            }
        }
        self.dispatch(now);
    }

    fn list_progress<T>(&mut self, kind: Kind, news: &watch::News<T>, now: BootTime) {
        match news {
            watch::News::Relisting => self.world.relisting(kind),
            watch::News::Synced => {
                let gone = self.world.synced(kind);
                self.touch_all(gone, now);
                self.synced.insert(kind);
                if self.may_act() {
                    self.consider_all(now);
                }
            }
            watch::News::Broken(_) | watch::News::Seen(_) | watch::News::Gone(_) => {}
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
        self.draining = false;
        self.effects.push(Effect::ReadMark(guard));
        for entry in self.entries.values_mut() {
            entry.told = None;
        }
        self.consider_all(now);
        self.dispatch(now);
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
            if self.entries.get(&key).is_some_and(|entry| entry.state == State::BackingOff { until: at }) {
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

    fn touch_all(&mut self, keys: Vec<Key>, now: BootTime) {
        for key in keys {
            self.touch((key, Touch::Changed), now);
        }
    }

    /// A key's claim, volume, class or node was seen: a change of what decisions read ends its wait and
    /// forgets its failures.
    fn touch(&mut self, (key, touch): (Key, Touch), now: BootTime) {
        let has_volume = self.world.volume(&key).is_some();
        if let Some(entry) = self.entries.get_mut(&key) {
            // Whatever an earlier call made, this volume stands for it now.
            entry.unknown.take_if(|_| has_volume);
            if touch == Touch::Changed {
                entry.changed();
            }
        }
        self.consider(&key, now);
    }

    /// Puts the key into the state that what is known now asks for.
    fn consider(&mut self, key: &Key, now: BootTime) {
        match self.entries.get(key).map(|entry| &entry.state) {
            Some(State::Running(_)) => {}
            Some(State::BackingOff { .. } | State::Parked) if self.wish(key).is_some() => {}
            _ => self.enqueue_if_wanted(key, now),
        }
    }

    fn enqueue_if_wanted(&mut self, key: &Key, now: BootTime) {
        match self.wish(key) {
            Some(wish) => self.enqueue(key, wish, now),
            None => self.rest(key, now),
        }
    }

    /// What the key is to be worked on for, if at all.
    fn wish(&self, key: &Key) -> Option<Wish> {
        if let Some(job) = self.world.decide_volume(key).and_then(job_of) {
            return Some(Wish::Remove(job));
        }
        if self.world.decide_claim(key) == Some(claim::Decision::Provision) {
            return Some(Wish::Provision);
        }
        let unknown = self.entries.get(key).is_some_and(|entry| entry.unknown.is_some());
        if self.world.volume(key).is_some() {
            return None;
        }
        if unknown {
            return Some(Wish::FindOut);
        }
        let orphan = self.entries.get(key).is_some_and(|entry| entry.orphan.is_some());
        (orphan && self.world.claim(key).is_none()).then_some(Wish::Orphan)
    }

    /// The assets among these that nothing here knows of: no volume, no claim, no attempt.
    #[must_use]
    pub fn unknown_among(&self, assets: Vec<Asset>) -> Vec<Asset> {
        let known = |asset: &Asset| {
            let claim = asset.claim.as_ref().map(|claim| self.world.key_of(&claim.uid));
            self.world.knows(&asset.volume_name)
                || claim.is_some_and(|key| self.world.claim(&key).is_some())
                || self.entries.contains_key(&*asset.volume_name)
        };
        assets.into_iter().filter(|asset| !known(asset)).collect()
    }

    /// Removes assets that were proven to belong to nothing.
    pub fn remove_orphans(&mut self, orphans: Vec<Asset>, now: BootTime) {
        for asset in orphans {
            let key: Key = asset.volume_name.as_str().into();
            let task = OrphanTask { name: key.clone(), asset };
            self.entries.entry(key.clone()).or_default().orphan = Some(Arc::new(task));
            self.consider(&key, now);
        }
        self.dispatch(now);
    }

    fn enqueue(&mut self, key: &Key, wish: Wish, now: BootTime) {
        let class = self.class_of(key, wish);
        let entry = self.entries.entry(key.clone()).or_default();
        entry.told = None;
        if entry.is_queued_in(wish.lane()) {
            return;
        }
        entry.wanted.get_or_insert(now);
        self.leave_queue(key);
        let uid = self.uid_of(key, wish);
        self.wait(key, &uid, story::QUEUED, now);
        self.effects.push(Effect::Queued(wish.lane()));
        self.tickets += 1;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.state = State::Queued { ticket: self.tickets, lane: wish.lane(), since: now };
        let ticket = self.tickets;
        self.line_mut(wish.lane()).push(&class, ticket, key.clone());
    }

    fn class_of(&self, key: &Key, wish: Wish) -> Arc<str> {
        let class = match wish {
            Wish::Remove(_) => self.world.volume(key).and_then(|volume| volume.class.clone()),
            Wish::Provision => self.world.claim(key).and_then(|claim| claim.class.clone()),
            Wish::FindOut => {
                let unknown = self.entries.get(key).and_then(|entry| entry.unknown.as_ref());
                unknown.map(|task| task.class.name.clone())
            }
            Wish::Orphan => None,
        };
        class.unwrap_or_else(|| "".into())
    }

    /// Whose trace the work on a key belongs to: the claim's, or that of the volume's removal.
    fn uid_of(&self, key: &Key, wish: Wish) -> Box<str> {
        let uid = match wish {
            Wish::Remove(_) => self.world.volume(key).map(|volume| &volume.uid),
            Wish::Provision => self.world.claim(key).map(|claim| &claim.uid),
            Wish::FindOut => {
                let unknown = self.entries.get(key).and_then(|entry| entry.unknown.as_ref());
                unknown.map(|task| &task.claim.uid)
            }
            Wish::Orphan => None,
        };
        uid.cloned().unwrap_or_default()
    }

    /// The key waits for `reason` from now on.
    fn wait(&mut self, key: &Key, uid: &str, reason: &'static str, now: BootTime) {
        let waited = self.stories.wait(key, uid, reason, now);
        self.tell_waited(waited);
    }

    fn tell_waited(&mut self, waited: Option<Waited>) {
        if self.leadership.is_some() {
            self.effects.extend(waited.map(Effect::Waited));
        }
    }

    fn leave_queue(&mut self, key: &Key) {
        if let Some(State::Queued { lane, .. }) = self.entries.get(key).map(|entry| &entry.state) {
            self.effects.push(Effect::Unqueued(*lane));
        }
    }

    /// Nothing is to be done now: forgets the key, or remembers what was told about it.
    fn rest(&mut self, key: &Key, now: BootTime) {
        self.leave_queue(key);
        let Some(reason) = self.rest_for(key, now).filter(PendingReason::is_told) else {
            self.entries.remove(key);
            return;
        };
        let entry = self.entries.entry(key.clone()).or_default();
        entry.state = State::Idle;
        if self.may_act() {
            self.tell_pending(key, reason);
        }
    }

    /// Why the claim of this key waits, if it does.
    fn rest_for(&mut self, key: &Key, now: BootTime) -> Option<PendingReason> {
        let uid = self.world.claim(key).map(|claim| claim.uid.clone()).unwrap_or_default();
        match self.world.decide_claim(key) {
            Some(claim::Decision::Wait(reason) | claim::Decision::Refuse(reason)) => {
                self.wait(key, &uid, reason.category(), now);
                Some(reason)
            }
            _ => {
                self.stories.forget(key);
                None
            }
        }
    }

    fn tell_pending(&mut self, key: &Key, reason: PendingReason) {
        let (Some(claim), Some(entry)) = (self.world.claim(key), self.entries.get_mut(key)) else { return };
        if entry.told.as_ref() != Some(&reason) {
            self.effects.push(Effect::Tell(Note::new(
                &**claim,
                Reason::ProvisioningFailed,
                reason.to_string(),
            )));
            entry.told = Some(reason);
        }
    }

    /// Starts what may start.
    fn dispatch(&mut self, now: BootTime) {
        if !self.may_act() {
            return;
        }
        let Some(guard) = self.leadership.clone() else { return };
        for lane in Lane::ALL {
            while let Some((key, class)) = self.next_in(lane) {
                self.start(&key, lane, class, &guard, now);
            }
        }
    }

    fn next_in(&mut self, lane: Lane) -> Option<(Key, Arc<str>)> {
        let classes = self.world.classes_served();
        let entries = &self.entries;
        let is_current =
            |ticket, key: &Key| entries.get(key).is_some_and(|entry| entry.is_queued_with(ticket, lane));
        match lane {
            Lane::Provision => self.provision.next(classes, is_current),
            Lane::Remove => self.remove.next(classes, is_current),
            Lane::Tend => self.tend.next(classes, is_current),
        }
    }

    fn start(&mut self, key: &Key, lane: Lane, class: Arc<str>, guard: &LeaderGuard, now: BootTime) {
        let task = self.wish(key).filter(|wish| wish.lane() == lane).and_then(|wish| self.task(key, wish));
        let Some(task) = task else {
            self.line_mut(lane).ended(&class);
            self.enqueue_if_wanted(key, now);
            return;
        };
        let tell_start = self.rules.tell_start;
        let entry = self.entries.entry(key.clone()).or_default();
        let waited = now.saturating_since(entry.since());
        let attempt = entry.failures.saturating_add(1);
        if tell_start && let Task::Provision(provision) = &task {
            let message = format!("provisioning volume {key}");
            self.effects.push(Effect::Tell(Note::new(&*provision.claim, Reason::Provisioning, message)));
        }
        entry.run(task.clone(), lane, class, now);
        let waited_for = self.stories.go_on(key, now);
        self.tell_waited(waited_for);
        self.effects.push(Effect::Start { task, guard: guard.clone(), attempt, waited });
    }

    fn task(&self, key: &Key, wish: Wish) -> Option<Task> {
        match wish {
            Wish::Remove(job) => {
                let volume = self.world.volume(key)?.clone();
                Some(Task::Remove(RemoveTask { volume, job }))
            }
            Wish::Provision => self.provision_task(key).map(Task::Provision),
            Wish::FindOut => {
                let task = self.entries.get(key)?.unknown.as_ref()?;
                Some(Task::Provision(ProvisionTask { unknown: true, ..(**task).clone() }))
            }
            Wish::Orphan => self.entries.get(key)?.orphan.clone().map(Task::Orphan),
        }
    }

    fn provision_task(&self, key: &Key) -> Option<ProvisionTask> {
        let claim = self.world.claim(key)?.clone();
        let class = self.world.class(claim.class.as_deref()?)?.clone();
        let node = claim.selected_node.as_deref().map(|name| SelectedNode {
            name: name.to_owned(),
            labels: self.world.node(name).map(|node| node.labels.clone()).unwrap_or_default(),
        });
        let unknown = self.entries.get(key).is_some_and(|entry| entry.unknown.is_some());
        let read_claim = World::is_below(&claim, self.mark) || self.world.is_known(&claim);
        Some(ProvisionTask { name: key.clone(), claim, class, node, read_claim, unknown })
    }

    /// An operation has ended.
    pub fn finished(&mut self, key: &Key, outcome: Outcome, jitter: f64, now: BootTime) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let wanted = entry.wanted;
        let Some(running) = entry.end() else { return };
        if let (Task::Orphan(_), Some(entry)) = (&running.task, self.entries.get_mut(key)) {
            // Whatever came of it, the next audit looks again.
            entry.orphan = None;
        }
        self.line_mut(running.lane).ended(&running.class);
        let verdict = self.file(key, &running, outcome, jitter, now);
        let took = now.saturating_since(running.started);
        let wanted = wanted.unwrap_or(running.started);
        self.effects.push(Effect::Ended(Ended { task: running.task, took, wanted, verdict }));
        self.consider(key, now);
        self.dispatch(now);
    }

    /// Remembers what came of an operation, and when its key is to be tried again.
    fn file(
        &mut self,
        key: &Key,
        running: &Running,
        outcome: Outcome,
        jitter: f64,
        now: BootTime,
    ) -> Verdict {
        match outcome {
            Outcome::Saved(volume) => self.saved(key, running, *volume, now),
            Outcome::Removed => {
                if let Task::Remove(task) = &running.task {
                    self.world.mark_removed(key, &task.volume.uid);
                }
                self.forget(key)
            }
            Outcome::Tended(volume) => {
                self.own_write(running, volume);
                self.forget(key)
            }
            Outcome::Rescheduled(claim) => {
                if let Some(claim) = claim {
                    self.world.see_claim(Arc::from(claim));
                }
                self.forget(key);
                Verdict::Moot("the scheduler chooses another node".to_owned())
            }
            Outcome::Superseded(why) => {
                // What the watch has shown meanwhile is decided on at once.
                if !running.changed {
                    self.back_off(key, running, CATCH_UP, now);
                }
                Verdict::Moot(why)
            }
            Outcome::Ignored(why) => {
                self.park(key, running, story::IGNORED, now);
                Verdict::Moot(format!("ignored by the backend: {why}"))
            }
            Outcome::Failed(failure) => self.failed(key, running, failure, jitter, now),
            Outcome::Stopped { unknown } => {
                if let Task::Provision(task) = &running.task
                    && unknown
                {
                    self.entries.entry(key.clone()).or_default().unknown = Some(Arc::new(task.clone()));
                }
                Verdict::Moot("the leadership ended".to_owned())
            }
        }
    }

    fn saved(&mut self, key: &Key, running: &Running, volume: Volume, now: BootTime) -> Verdict {
        if let Task::Provision(task) = &running.task {
            self.world.mark_known(&task.claim.uid);
            let message = format!("provisioned volume {key}");
            let note = Note::new(&*task.claim, Reason::ProvisioningSucceeded, message);
            self.effects.push(Effect::Tell(note));
            self.begin_last_wait(key, task, now);
        }
        self.own_write(running, Some(volume.into()));
        self.forget(key)
    }

    /// A saved claim waits only to be bound, unless that is not to be seen any more.
    fn begin_last_wait(&mut self, key: &Key, task: &ProvisionTask, now: BootTime) {
        let story = self.stories.saved(key, task, now);
        self.effects.extend(story.map(|story| Effect::Over(story.into())));
        match self.world.claim(key) {
            Some(claim) if claim.bound => self.end_story(key, Some(now)),
            Some(_) if self.leadership.is_some() && !self.draining => {}
            _ => self.end_story(key, None),
        }
    }

    /// The `World` sees what we wrote at once, unless the watch has already shown that it is gone again.
    fn own_write(&mut self, running: &Running, volume: Option<Box<Volume>>) {
        if let Some(volume) = volume.filter(|_| !running.volume_gone) {
            self.world.see_volume(Arc::from(volume));
        }
    }

    fn forget(&mut self, key: &Key) -> Verdict {
        self.entries.remove(key);
        Verdict::Succeeded
    }

    fn park(&mut self, key: &Key, running: &Running, reason: &'static str, now: BootTime) {
        self.entries.entry(key.clone()).or_default().park();
        self.wait(key, running.task.uid(), reason, now);
    }

    fn back_off(&mut self, key: &Key, running: &Running, wait: Duration, now: BootTime) {
        self.wait(key, running.task.uid(), story::BACKING_OFF, now);
        let until = now + wait;
        self.entries.entry(key.clone()).or_default().state = State::BackingOff { until };
        self.alarms.push(Reverse((until, key.clone())));
    }

    fn failed(
        &mut self,
        key: &Key,
        running: &Running,
        failure: Failure,
        jitter: f64,
        now: BootTime,
    ) -> Verdict {
        self.tell_failure(running, &failure);
        let threshold = self.threshold(running.lane);
        let backoff = self.rules.backoff;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        entry.unknown = match &running.task {
            Task::Provision(task) if failure.unknown => Some(Arc::new(task.clone())),
            _ => None,
        };
        if running.changed && !failure.slow {
            return Verdict::Failed(failure.message, Some(Duration::ZERO));
        }
        if threshold > 0 && entry.failures >= threshold && !failure.unknown {
            self.park(key, running, story::GIVEN_UP, now);
            return Verdict::Failed(failure.message, None);
        }
        let mut wait = backoff.wait(entry.failures, jitter);
        if failure.slow {
            wait = wait.max(SLOW.min(backoff.max));
        }
        self.back_off(key, running, wait, now);
        Verdict::Failed(failure.message, Some(wait))
    }

    fn threshold(&self, lane: Lane) -> u32 {
        match lane {
            Lane::Provision => self.rules.provision_threshold,
            Lane::Remove => self.rules.delete_threshold,
            Lane::Tend => 0,
        }
    }

    fn tell_failure(&mut self, running: &Running, failure: &Failure) {
        let note = match &running.task {
            Task::Provision(task) => Note::new(&*task.claim, failure.reason, &*failure.message),
            Task::Remove(task) => Note::new(&*task.volume, failure.reason, &*failure.message),
            // There is no object to tell it on; the log and the metrics do.
            Task::Orphan(_) => return,
        };
        self.effects.push(Effect::Tell(note));
    }
}

/// What a key is to be worked on for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Provision,
    /// The outcome of an earlier call is not known, and the claim no longer wants a volume.
    FindOut,
    Remove(Job),
    /// An asset belongs to nothing.
    Orphan,
}

impl Wish {
    const fn lane(self) -> Lane {
        match self {
            Self::Provision | Self::FindOut => Lane::Provision,
            Self::Remove(Job::Strip | Job::Adopt) => Lane::Tend,
            Self::Remove(Job::Delete(_) | Job::Keep | Job::Spare) | Self::Orphan => Lane::Remove,
        }
    }
}

const fn job_of(decision: volume::Decision) -> Option<Job> {
    match decision {
        volume::Decision::Delete(proof) => Some(Job::Delete(proof)),
        volume::Decision::Keep => Some(Job::Keep),
        volume::Decision::Spare => Some(Job::Spare),
        volume::Decision::Strip => Some(Job::Strip),
        volume::Decision::Adopt => Some(Job::Adopt),
        volume::Decision::NotOurs | volume::Decision::Leave => None,
    }
}
