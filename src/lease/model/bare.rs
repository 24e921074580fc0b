//! The bare crate's behaviour as a small machine of its own: GET, look at the holder, then at the stored
//! time by the local wall clock, PATCH without a version; the caller keeps a flag.

use stateright::{Model, Property};

use super::store::{LEASE, Patch, Store, wall};
use crate::lease::machine::{Kind, Stored};

#[derive(Clone, Debug)]
pub(super) struct Bare {
    pub(super) ticks: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Call {
    Idle,
    Reading(Stored),
    Writing(Patch),
    Answered,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    now: u8,
    store: Store,
    replicas: Vec<(bool, Call)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Tick,
    Go(usize),
}

fn decide(me: &str, now: u8, lease: &Stored) -> Option<Kind> {
    let expired = wall(now, 0).0 > lease.renewed?.0 + i64::try_from(LEASE.as_micros()).ok()?;
    match lease.holder.as_deref()? {
        holder if holder == me => Some(Kind::Renew),
        _ => expired.then_some(Kind::Acquire),
    }
}

impl Model for Bare {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let replicas = vec![(false, Call::Idle), (false, Call::Idle)];
        vec![World { now: 0, store: Store::left_behind(false), replicas }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.now < self.ticks {
            steps.push(Step::Tick);
        }
        steps.extend((0..world.replicas.len()).map(Step::Go));
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        let Step::Go(at) = step else {
            world.now += 1;
            return Some(world);
        };
        let me = at.to_string();
        let (leads, call) = world.replicas.get_mut(at)?;
        *call = match call {
            Call::Idle => Call::Reading(world.store.lease.clone()?),
            Call::Reading(lease) => match decide(&me, world.now, lease) {
                Some(kind) => {
                    let (sender, stamp) = (me.as_str().into(), wall(world.now, 0));
                    Call::Writing(Patch { kind, sender, stamp, version: None })
                }
                None => {
                    *leads = false;
                    Call::Idle
                }
            },
            Call::Writing(patch) => {
                world.store.apply(patch);
                Call::Answered
            }
            Call::Answered => {
                *leads = true;
                Call::Idle
            }
        };
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("one leader", |_, world: &World| {
            world.replicas.iter().filter(|(leads, _)| *leads).count() <= 1
        })]
    }
}
