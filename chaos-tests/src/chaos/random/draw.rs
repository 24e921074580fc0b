//! Faults drawn from chance, family by family. Pure: the same chance draws the same faults.

use super::{
    fault::{Act, Fate, Fault, Manner, Target, Wire},
    scenario::Family,
};
use crate::nemesis::chance::Chance;

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const LEASES: &str = "leases";

/// The faults of a family until `span`; `sparse` if those of others come side by side.
pub(super) fn family(family: Family, chance: &Chance, span: u64, sparse: bool) -> Vec<Fault> {
    let lanes = match family {
        // They don't get into each other's way.
        Family::Api | Family::Watches | Family::Backend if !sparse => 3,
        _ => 1,
    };
    let mut faults: Vec<Fault> = (0..lanes)
        .flat_map(|number| lane(family, &mut chance.part(&format!("{family:?} {number}")), span, sparse))
        .collect();
    if family == Family::Clocks {
        faults.extend(crystal(&mut chance.part("crystal"), span));
    }
    faults
}

/// Faults that come one after the other.
fn lane(family: Family, chance: &mut Chance, span: u64, sparse: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut at = chance.between(300, if family == Family::Restore { span / 3 } else { 1_500 });
    loop {
        let drawn = draw(family, chance);
        let end = at + drawn.iter().map(|(_, to, ..)| *to).max().unwrap_or(span);
        // What is too long for the beginning is cut short: no family goes without.
        if end > span && !faults.is_empty() {
            return faults;
        }
        let told = drawn.into_iter().map(|(from, to, target, act)| {
            let (from, to) = ((at + from).min(span), (at + to).min(span));
            Fault { number: 0, from, to, target, act }
        });
        faults.extend(told);
        // Whoever has put a backup back is glad of it and does not do it again.
        if end > span || family == Family::Restore {
            return faults;
        }
        at = end + chance.between(200, 1_500) * if sparse { 4 } else { 1 };
    }
}

/// What is drawn at a time: from when to when, counted from its beginning; whom it befalls, and what it is.
type Drawn = (u64, u64, Target, Act);

fn draw(family: Family, chance: &mut Chance) -> Vec<Drawn> {
    match family {
        Family::Replicas => vec![replicas(chance)],
        Family::Api => vec![api(chance)],
        Family::Watches => vec![watches(chance)],
        Family::Stale => stale(chance),
        Family::ControlPlane => vec![control_plane(chance)],
        Family::Backend => vec![backend(chance)],
        Family::Restore => vec![(0, chance.between(2_000, 12_000), Target::Etcd, Act::Restore)],
        Family::Clocks => vec![clocks(chance)],
        Family::Network => vec![network(chance)],
        Family::Limits => vec![limits(chance)],
    }
}

/// Mostly who leads: others matter when they take over.
fn somebody(chance: &mut Chance) -> Target {
    match chance.between(0, 9) {
        0..=5 => Target::Leader,
        6 | 7 => Target::Standby,
        _ => Target::Replica(usize::try_from(chance.between(0, 2)).unwrap_or_default()),
    }
}

/// A pause is shorter than the hold, between hold and lease, or longer than both.
fn replicas(chance: &mut Chance) -> Drawn {
    let target = somebody(chance);
    let (length, act) = match chance.between(0, 9) {
        0..=3 => (chance.between(50, 2_500), Act::Kill { programs: chance.percent(50) }),
        4 | 5 => (chance.between(50, 2_500), Act::Terminate),
        _ => (chance.one_of(&[600, 1_200, 2_000, 2_400, 2_800, 3_200, 4_500], 3_000), Act::Pause),
    };
    (0, length, target, act)
}

fn api(chance: &mut Chance) -> Drawn {
    let target = somebody(chance);
    let lease = chance.percent(25);
    let (verb, resource) = match lease {
        true => chance.one_of(&[("patch", LEASES), ("get", LEASES)], ("patch", LEASES)),
        false => {
            let all = [
                ("create", VOLUMES),
                ("create", VOLUMES),
                ("create", VOLUMES),
                ("delete", VOLUMES),
                ("patch", VOLUMES),
                ("get", VOLUMES),
                ("get", CLAIMS),
                ("list", CLAIMS),
                ("patch", CLAIMS),
                ("create", "events"),
            ];
            chance.one_of(&all, ("create", VOLUMES))
        }
    };
    let fate = match chance.between(0, 9) {
        0 | 1 => Fate::CutBefore,
        2..=4 => Fate::CutAfter,
        5 | 6 => Fate::Delay(chance.between(100, 3_000)),
        _ => Fate::Answer(chance.one_of(&[409, 429, 403, 500, 503, 504], 500)),
    };
    let first = chance.percent(50).then(|| usize::try_from(chance.between(1, 6)).unwrap_or(1));
    let act = Act::Requests { verb: verb.to_owned(), resource: resource.to_owned(), fate, first };
    (0, chance.between(500, 4_000), target, act)
}

fn watches(chance: &mut Chance) -> Drawn {
    let target = somebody(chance);
    let all = [CLAIMS, VOLUMES, LEASES, "storageclasses"];
    let resource = chance.one_of(&all, CLAIMS).to_owned();
    let (length, act) = match chance.between(0, 9) {
        0 | 1 => (chance.between(500, 5_000), Act::Freeze(resource)),
        2 | 3 => (chance.between(1_000, 6_000), Act::Late(resource, chance.between(50, 3_000))),
        4 | 5 => (50, Act::Cut(resource)),
        6 | 7 => (chance.between(200, 2_500), Act::Expire(resource)),
        _ => (50, Act::HalfOpen(resource)),
    };
    (0, length, target, act)
}

/// The view of who does not lead stands still at some event; then the leader dies, and it thaws some time after that.
fn stale(chance: &mut Chance) -> Vec<Drawn> {
    let resource = chance.one_of(&[CLAIMS, CLAIMS, VOLUMES, VOLUMES, LEASES], CLAIMS).to_owned();
    let dies = chance.between(300, 2_500);
    let thaws = dies + 3_200 + chance.between(0, 3_000);
    let back = dies + chance.between(200, 3_000);
    let end = if chance.percent(60) { Act::Kill { programs: chance.percent(50) } } else { Act::Terminate };
    let view = match chance.percent(70) {
        true => Act::Freeze(resource),
        false => Act::Late(resource, chance.between(500, 5_000)),
    };
    vec![(0, thaws, Target::Standby, view), (dies, back, Target::Leader, end)]
}

fn control_plane(chance: &mut Chance) -> Drawn {
    let all = [Target::ApiServer, Target::ApiServer, Target::Etcd, Target::ControllerManager];
    let target = chance.one_of(&all, Target::ApiServer);
    match chance.between(0, 9) {
        0..=4 => (0, chance.one_of(&[500, 1_500, 2_600, 4_000, 6_000], 2_000), target, Act::Pause),
        5 | 6 => (0, 50, Target::Etcd, Act::Compact),
        7 => (0, 50, Target::Etcd, Act::Forget),
        _ => (0, chance.between(0, 1_500), target, Act::Kill { programs: false }),
    }
}

/// By seconds that a lease knows, by hours and by days; to the right and the wrong time.
fn clocks(chance: &mut Chance) -> Drawn {
    let offset = chance.one_of(&[-86_400, -3_600, -5, -1, 1, 5, 3_600, 86_400, 2_592_000], 5);
    let rate = if chance.percent(60) { 100 } else { chance.one_of(&[50, 90, 110, 200], 90) };
    (0, chance.between(500, 5_000), somebody(chance), Act::Clock { offset, rate })
}

/// One machine's clocks may be wrong by more than any crystal's, and by less than a guard allows for.
fn crystal(chance: &mut Chance, span: u64) -> Option<Fault> {
    let place = usize::try_from(chance.below(2)).unwrap_or_default();
    let rate = u32::try_from(chance.one_of(&[97, 98, 102, 103], 98)).unwrap_or(98);
    let act = Act::Crystal(rate);
    chance.percent(50).then_some(Fault { number: 0, from: 0, to: span, target: Target::Replica(place), act })
}

fn network(chance: &mut Chance) -> Drawn {
    let all = [Wire::Drop, Wire::Drop, Wire::DropOut, Wire::DropIn, Wire::Reject];
    let act = Act::Wire(chance.one_of(&all, Wire::Drop));
    (0, chance.one_of(&[300, 1_000, 2_000, 2_800, 3_500, 6_000], 3_000), somebody(chance), act)
}

fn limits(chance: &mut Chance) -> Drawn {
    let act = match chance.percent(70) {
        true => Act::Files(chance.between(0, 8)),
        false => Act::Memory(chance.one_of(&[0, 1 << 20, 16 << 20], 0)),
    };
    (0, chance.between(500, 5_000), somebody(chance), act)
}

fn backend(chance: &mut Chance) -> Drawn {
    let operation =
        chance.one_of(&["provision", "provision", "provision", "delete", "delete", "list"], "list");
    let made = [
        Manner::Hang,
        Manner::HangAfter,
        Manner::Die,
        Manner::DieAfter,
        Manner::Garble,
        Manner::Flood,
        Manner::Fail,
        Manner::Lie,
        Manner::Slow(chance.between(200, 5_000)),
    ];
    let provision = [
        Manner::Belittle,
        Manner::Background,
        Manner::BackgroundAfter,
        Manner::NoChange,
        Manner::Linger(chance.between(200, 2_500)),
        Manner::Linger(chance.between(200, 5_000)),
    ];
    let conduct = match operation == "provision" && chance.percent(50) {
        true => chance.one_of(&provision, Manner::Background),
        false => chance.one_of(&made, Manner::Hang),
    };
    let first = chance.percent(60).then(|| usize::try_from(chance.between(1, 3)).unwrap_or(1));
    let act = Act::Calls { operation: operation.to_owned(), conduct, first };
    (0, chance.between(800, 4_000), Target::Backend, act)
}
