//! What a key is to be worked on for, and when it is started.

use std::sync::Arc;

use super::{Arbiter, Effect, Key, Lane, Waited, World, entry::State, story};
use crate::{
    actors::volume::{Job, OrphanTask, ProvisionTask, RemoveTask, Task},
    clock::BootTime,
    lease::LeaderGuard,
    lifecycle::{
        claim::{self, PendingReason},
        tell::{Note, Reason},
        volume,
    },
    provisioner::{Asset, SelectedNode},
};

impl Arbiter {
    /// Puts the key into the state that what is known now asks for.
    pub(super) fn consider(&mut self, key: &Key, now: BootTime) {
        match self.entries.get(key).map(|entry| &entry.state) {
            Some(State::Running(_)) => {}
            Some(State::BackingOff { .. } | State::CatchingUp { .. } | State::Parked)
                if self.wish(key).is_some() => {}
            _ => self.enqueue_if_wanted(key, now),
        }
    }

    pub(super) fn enqueue_if_wanted(&mut self, key: &Key, now: BootTime) {
        match self.wish(key) {
            Some(wish) => self.enqueue(key, wish, now),
            None => self.rest(key, now),
        }
    }

    /// What the key is to be worked on for, if at all.
    pub(super) fn wish(&self, key: &Key) -> Option<Wish> {
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

    pub(super) fn enqueue(&mut self, key: &Key, wish: Wish, now: BootTime) {
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

    pub(super) fn class_of(&self, key: &Key, wish: Wish) -> Arc<str> {
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
    pub(super) fn uid_of(&self, key: &Key, wish: Wish) -> Box<str> {
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
    pub(super) fn wait(&mut self, key: &Key, uid: &str, reason: &'static str, now: BootTime) {
        let waited = self.stories.wait(key, uid, reason, now);
        self.tell_waited(waited);
    }

    pub(super) fn tell_waited(&mut self, waited: Option<Waited>) {
        if self.leadership.is_some() {
            self.effects.extend(waited.map(Effect::Waited));
        }
    }

    pub(super) fn leave_queue(&mut self, key: &Key) {
        if let Some(State::Queued { lane, .. }) = self.entries.get(key).map(|entry| &entry.state) {
            self.effects.push(Effect::Unqueued(*lane));
        }
    }

    /// Nothing is to be done now: forgets the key, or remembers what was told about it.
    pub(super) fn rest(&mut self, key: &Key, now: BootTime) {
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
    pub(super) fn rest_for(&mut self, key: &Key, now: BootTime) -> Option<PendingReason> {
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

    pub(super) fn tell_pending(&mut self, key: &Key, reason: PendingReason) {
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
    pub(super) fn dispatch(&mut self, now: BootTime) {
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

    pub(super) fn next_in(&mut self, lane: Lane) -> Option<(Key, Arc<str>)> {
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

    pub(super) fn start(
        &mut self,
        key: &Key,
        lane: Lane,
        class: Arc<str>,
        guard: &LeaderGuard,
        now: BootTime,
    ) {
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

    pub(super) fn task(&self, key: &Key, wish: Wish) -> Option<Task> {
        match wish {
            Wish::Remove(job) => {
                let volume = self.world.volume(key)?.clone();
                Some(Task::Remove(RemoveTask { volume, job }))
            }
            Wish::Provision => self.provision_task(key).map(Task::Provision),
            Wish::FindOut => {
                let task = self.entries.get(key)?.unknown.as_ref()?;
                let claim_gone = self.world.claim(key).is_none_or(|claim| claim.deleting);
                Some(Task::Provision(ProvisionTask { unknown: true, claim_gone, ..(**task).clone() }))
            }
            Wish::Orphan => self.entries.get(key)?.orphan.clone().map(Task::Orphan),
        }
    }

    pub(super) fn provision_task(&self, key: &Key) -> Option<ProvisionTask> {
        let claim = self.world.claim(key)?.clone();
        let class = self.world.class(claim.class.as_deref()?)?.clone();
        let node = claim.selected_node.as_deref().map(|name| SelectedNode {
            name: name.to_owned(),
            labels: self.world.node(name).map(|node| node.labels.clone()).unwrap_or_default(),
        });
        let unknown = self.entries.get(key).is_some_and(|entry| entry.unknown.is_some());
        let read_claim = World::is_below(&claim, self.mark) || self.world.is_known(&claim);
        Some(ProvisionTask { name: key.clone(), claim, class, node, read_claim, unknown, claim_gone: false })
    }
}

/// What a key is to be worked on for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Provision,
    /// The outcome of an earlier call is not known, and the claim no longer wants a volume.
    FindOut,
    Remove(Job),
    /// An asset belongs to nothing.
    Orphan,
}

impl Wish {
    pub(super) const fn lane(self) -> Lane {
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
