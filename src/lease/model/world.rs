//! The model itself: which steps there are, and what each does to the world.

use std::sync::Arc;

use stateright::{Model, Property};

use super::store::{HOLD, LEASE, Meddling, Patch, Store, at, wall};
use crate::{
    clock::BootTime,
    lease::machine::{
        Candidate, Fate, Kind, Machine, Name, Shown, Stamp, Stored, Ticket,
        mistakes::{Mistake, Mistakes},
    },
};

/// Far enough from zero for every span to reach back.
const BEGINNING: u8 = 10;

/// One row of the table: who takes part, what may happen, and within which bounds.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) replicas: usize,
    pub(super) mistakes: &'static [Mistake],
    /// By how many ticks the wall clock of each replica is ahead.
    pub(super) ahead: &'static [i64],
    /// The time that passes at most. `None`: any; nothing but the stored renewTime then depends on it.
    pub(super) ticks: Option<u8>,
    /// How many versions the Lease goes through at most.
    pub(super) writes: u64,
    /// How many answers or requests may be lost. A request that is lost may still arrive later.
    pub(super) losses: u8,
    /// How many replicas may be restarted.
    pub(super) restarts: u8,
    /// How many step-downs there may be.
    pub(super) step_downs: u8,
    /// How often a third party may meddle.
    pub(super) meddlings: u8,
    /// Whether replicas have a watch.
    pub(super) watches: bool,
}

impl Row {
    pub(super) const PLAIN: Self = Self {
        replicas: 2,
        mistakes: &[],
        ahead: &[0, 0, 0],
        ticks: None,
        writes: 5,
        losses: 0,
        restarts: 0,
        step_downs: 0,
        meddlings: 0,
        watches: false,
    };
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Call {
    Idle,
    /// The read was answered by the store, but the answer has not been looked at.
    Reading(Ticket, Option<Stored>),
    /// The write has left, but not arrived.
    Writing(Patch),
    /// The write was written, but the answer has not arrived.
    Answered(Patch, Stored),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replica {
    index: usize,
    machine: Machine,
    call: Call,
    starts: u8,
    /// The version that the latest write built on, and how many did: makes its `renewTime`, which is its
    /// own among all of this replica.
    latest: (u64, i64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    now: u8,
    store: Store,
    replicas: Vec<Replica>,
    /// Writes whose senders have given up on them.
    strays: Vec<Patch>,
    losses: u8,
    restarts: u8,
    step_downs: u8,
    meddlings: u8,
    newest_epoch: u64,
    epochs: u8,
    epoch_went_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Tick,
    Read(usize),
    Send(usize),
    Arrive(usize),
    Answer(usize),
    /// The sender gives up: on a write that has not arrived (it may yet), or on its answer.
    Lose(usize),
    ArriveLate(usize),
    Watch(usize),
    GiveUp(usize),
    Restart(usize),
    Meddle(Meddling),
}

impl Row {
    fn machine(&self, replica: usize, start: u8) -> Machine {
        Machine::new(Arc::new(Candidate {
            me: name(replica, start),
            provisioner: "provisioner".into(),
            lease: LEASE,
            hold: HOLD,
            mistakes: Mistakes::of(self.mistakes),
            wall_ahead: self.ahead[replica] * 1_000_000,
        }))
    }

    fn replica_steps(&self, world: &World, at: usize, steps: &mut Vec<Step>) {
        let replica = &world.replicas[at];
        match &replica.call {
            Call::Idle => {
                if replica.has_a_reason_to_read(world) {
                    steps.push(Step::Read(at));
                }
                if world.step_downs > 0 && replica.machine.term().is_some() {
                    steps.push(Step::GiveUp(at));
                }
            }
            Call::Reading(..) => steps.push(Step::Send(at)),
            Call::Writing(_) => {
                if world.store.version < self.writes {
                    steps.push(Step::Arrive(at));
                }
            }
            Call::Answered(..) => steps.push(Step::Answer(at)),
        }
        if world.losses > 0 && matches!(replica.call, Call::Writing(_) | Call::Answered(..)) {
            steps.push(Step::Lose(at));
        }
        if self.watches && replica.machine.stored().is_none_or(|seen| seen.version < world.store.version) {
            steps.push(Step::Watch(at));
        }
        if world.restarts > 0 {
            steps.push(Step::Restart(at));
        }
    }

    fn feed(
        &self,
        world: &mut World,
        at_replica: usize,
        input: impl FnOnce(&mut Replica, &mut Store, BootTime),
    ) {
        let now = at(world.now);
        let replica = &mut world.replicas[at_replica];
        let before = replica.machine.term().map(|term| term.number);
        input(replica, &mut world.store, now);
        replica.machine.take_ending();
        let after = replica.machine.term().map(|term| term.number);
        if after != before
            && let Some(epoch) = after
        {
            world.epoch_went_back |= epoch <= world.newest_epoch;
            world.newest_epoch = world.newest_epoch.max(epoch);
            world.epochs += 1;
        }
    }

    fn send(&self, replica: &mut Replica, store: &mut Store, now: BootTime, tick: u8, ahead: i64) {
        let Call::Reading(ticket, found) = std::mem::replace(&mut replica.call, Call::Idle) else { return };
        let stamp = match self.ticks {
            Some(_) => replica.machine.fresh_stamp(wall(tick, ahead)),
            None => replica.next_stamp(store.version),
        };
        let machine = &mut replica.machine;
        let kind = match machine.end_read(now, ticket, found) {
            Shown::Mine if machine.term().is_none() => Kind::StepDown,
            Shown::Mine => Kind::Renew,
            Shown::Free => Kind::Acquire,
            Shown::Held => return,
            Shown::Absent => {
                if let Some(vacant) = store.make_vacant() {
                    machine.watched(now, vacant);
                }
                return;
            }
        };
        let Ok(version) = machine.begin_write(now, kind, stamp) else { return };
        let count = if replica.latest.0 == store.version { replica.latest.1 + 1 } else { 1 };
        replica.latest = (store.version, count);
        let bare = self.mistakes.contains(&Mistake::NoCompareAndSwap)
            || (kind == Kind::StepDown && self.mistakes.contains(&Mistake::UnconditionalStepDown));
        let sender = machine.who().me.clone();
        replica.call = Call::Writing(Patch { kind, sender, stamp, version: (!bare).then_some(version) });
    }
}

impl Replica {
    /// Standbys don't poll: they read when there is something new, or when the Lease may be free.
    fn has_a_reason_to_read(&self, world: &World) -> bool {
        let seen = self.machine.stored().map(|seen| seen.version);
        let free = self.machine.free_from().is_some_and(|(_, free)| free <= at(world.now));
        let news = seen.is_none() || seen != world.store.lease.as_ref().map(|lease| lease.version);
        news || free || self.machine.term().is_some() || self.machine.may_hold()
    }

    /// A `renewTime` like no other: the model takes it that no two replicas write in one microsecond.
    fn next_stamp(&self, version: u64) -> Stamp {
        let count = if self.latest.0 == version { self.latest.1 } else { 0 };
        let start = i64::from(self.starts) * 3 + i64::try_from(self.index).unwrap();
        Stamp(i64::try_from(version).unwrap() * 1_000 + count * 100 + start)
    }
}

impl Row {
    /// Without a bound on the time the world always stands at the same instant: what has passed moves back.
    fn normalise(&self, world: &mut World) {
        let now = at(world.now);
        if self.ticks.is_none() {
            world.now = BEGINNING;
        }
        if world.meddlings == 0 {
            world.store.forget();
        }
        for replica in &mut world.replicas {
            replica.machine = replica.machine.clone().rebased(now, at(world.now));
        }
    }
}

fn name(replica: usize, start: u8) -> Name {
    format!("{replica}.{start}").into()
}

impl Model for Row {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let replica = |at| Replica {
            index: at,
            machine: self.machine(at, 0),
            call: Call::Idle,
            starts: 0,
            latest: (0, 0),
        };
        vec![World {
            now: BEGINNING,
            store: Store::left_behind(self.meddlings > 0),
            replicas: (0..self.replicas).map(replica).collect(),
            strays: Vec::new(),
            losses: self.losses,
            restarts: self.restarts,
            step_downs: self.step_downs,
            meddlings: self.meddlings,
            newest_epoch: 0,
            epochs: 0,
            epoch_went_back: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if self.ticks.is_none_or(|ticks| world.now < ticks) {
            steps.push(Step::Tick);
        }
        for at in 0..self.replicas {
            self.replica_steps(world, at, steps);
        }
        if world.store.version < self.writes {
            steps.extend((0..world.strays.len()).map(Step::ArriveLate));
            if world.meddlings > 0 && world.store.lease.is_some() {
                let any = [Meddling::Clear, Meddling::Delete, Meddling::Shorten, Meddling::Restore];
                steps.extend(any.map(Step::Meddle));
                steps.extend((0..self.replicas).map(|at| Step::Meddle(Meddling::Name(at))));
            }
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        let tick = world.now;
        match step {
            Step::Tick => {
                world.now += 1;
                for at in 0..self.replicas {
                    self.feed(&mut world, at, |replica, _, now| replica.machine.lapse(now));
                }
            }
            Step::Read(at) => self.feed(&mut world, at, |replica, store, _| {
                replica.call = Call::Reading(replica.machine.begin_read(), store.lease.clone());
            }),
            Step::Send(at) => {
                let ahead = self.ahead[at] * 1_000_000;
                self.feed(&mut world, at, |replica, store, now| self.send(replica, store, now, tick, ahead));
            }
            Step::Arrive(at) => self.feed(&mut world, at, |replica, store, _| {
                if let Call::Writing(patch) = std::mem::replace(&mut replica.call, Call::Idle) {
                    // An answer of 409 tells nothing, so it makes no difference when it comes.
                    if let Some(answer) = store.apply(&patch) {
                        replica.call = Call::Answered(patch, answer);
                    }
                }
            }),
            Step::Answer(at) => self.feed(&mut world, at, |replica, _, now| {
                if let Call::Answered(patch, answer) = std::mem::replace(&mut replica.call, Call::Idle) {
                    replica.machine.end_write(now, patch.stamp, Fate::Written(answer));
                }
            }),
            Step::Lose(at) => {
                world.losses -= 1;
                if let Call::Writing(patch) = std::mem::replace(&mut world.replicas[at].call, Call::Idle) {
                    world.strays.push(patch);
                }
            }
            Step::ArriveLate(stray) => {
                let patch = world.strays.remove(stray);
                world.store.apply(&patch);
            }
            Step::Watch(at) => self.feed(&mut world, at, |replica, store, now| match &store.lease {
                Some(lease) => replica.machine.watched(now, lease.clone()),
                None => replica.machine.watched_deletion(now, store.version),
            }),
            Step::GiveUp(at) => {
                world.step_downs -= 1;
                self.feed(&mut world, at, |replica, _, _| replica.machine.step_down());
            }
            Step::Restart(at) => {
                world.restarts -= 1;
                let starts = world.replicas[at].starts + 1;
                if let Call::Writing(patch) = &world.replicas[at].call {
                    world.strays.push(patch.clone());
                }
                world.replicas[at] = Replica {
                    index: at,
                    machine: self.machine(at, starts),
                    call: Call::Idle,
                    starts,
                    latest: (0, 0),
                };
            }
            Step::Meddle(meddling) => {
                world.meddlings -= 1;
                let named = match meddling {
                    Meddling::Name(at) => Some(name(at, world.replicas[at].starts)),
                    _ => None,
                };
                world.store.meddle(meddling, named);
            }
        }
        self.normalise(&mut world);
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one leader", |_, world: &World| world.leaders() <= 1),
            Property::always("epochs grow", |_, world: &World| !world.epoch_went_back),
            Property::sometimes("somebody leads", |_, world: &World| world.leaders() == 1),
            Property::sometimes("leadership changes", |_, world: &World| world.epochs > 1),
        ]
    }
}

impl World {
    fn leaders(&self) -> usize {
        let now = at(self.now);
        let leads = |replica: &&Replica| replica.machine.term().is_some_and(|term| term.valid_until > now);
        self.replicas.iter().filter(leads).count()
    }
}
