//! What is going to happen in a run, made from its seed alone before anything is started. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    draw,
    fault::{Act, Fault, Target},
    scenario::Scenario,
};
use crate::nemesis::chance::Chance;

/// Everything that a run does to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Of what.
    pub scenario: Scenario,
    /// From what it was made.
    pub seed: u64,
    /// How long things break, in milliseconds. Then everything is healed.
    pub span: u64,
    /// How many replicas there are.
    pub replicas: usize,
    /// What people do, in the order of time.
    pub deeds: Vec<Deed>,
    /// What breaks, in the order of its beginning.
    pub faults: Vec<Fault>,
}

/// Something that people do with a claim or its volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// When, in milliseconds from the beginning of the run.
    pub at: u64,
    /// The claim.
    pub claim: String,
    /// What.
    pub work: Work,
}

/// What people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// The claim is created.
    Create(Kind),
    /// The claim is deleted, whatever has become of it.
    Delete,
    /// Once the claim is Bound, its volume is patched to Retain.
    Keep,
    /// Once the claim is Bound, data is written into its asset.
    Use,
    /// Once the claim is Bound, its volume is deleted by hand.
    DeleteVolume,
    /// Once the claim is Bound, its volume gets a finalizer of somebody else.
    Hold,
    /// Somebody else's finalizer goes.
    LetGo,
    /// Once the claim is gone and its volume, patched to Retain, is Released, the volume is deleted by hand: the asset
    /// stays.
    DropKept,
    /// The volume that has the name of the claim's own, and belongs to somebody else, goes.
    Unsquat,
    /// The node that the claim was sent to goes.
    LoseNode,
}

/// What a claim is like. Its name begins so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Of a class that deletes.
    Plain,
    /// Of a class that retains.
    Retained,
    /// Of a class that waits for the first consumer.
    Waiting,
    /// As waiting, and there is somebody else's volume of the name that its own is to have. Only in a control: an asset
    /// that can't be saved is made and removed again and again.
    Squatted,
    /// As waiting, and sent to a node that does not stay; the backend takes its time with it.
    Stranded,
    /// It wants what the backend does not make.
    Block,
    /// The backend fails at it each time.
    Failing,
}

impl Kind {
    /// The beginning of the names of such claims.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Retained => "retained",
            Self::Waiting => "waiting",
            Self::Squatted => "squatted",
            Self::Stranded => "stranded",
            Self::Block => "block",
            Self::Failing => "failing",
        }
    }

    /// Whether a claim of this name can't be served, on purpose.
    #[must_use]
    pub fn is_hopeless(claim: &str) -> bool {
        [Self::Block, Self::Failing].iter().any(|kind| claim.starts_with(kind.prefix()))
    }
}

impl Plan {
    /// The plan of this seed, for a run in which things break for `span` milliseconds.
    #[must_use]
    pub fn of(scenario: Scenario, seed: u64, span: u64) -> Self {
        let chance = Chance::new(seed).part(scenario.name());
        let families = scenario.families();
        let mut faults: Vec<Fault> = families
            .iter()
            .flat_map(|family| draw::family(*family, &chance, span, families.len() > 1))
            .collect();
        faults.sort_by_key(|fault| fault.from);
        for (number, fault) in (1..).zip(&mut faults) {
            fault.number = number;
        }
        let deeds = load(&mut chance.part("load"), span);
        Self { scenario, seed, span, replicas: scenario.replicas(), deeds, faults }
    }

    /// At which rate the clocks of a replica's machine run, in percent, if not rightly.
    #[must_use]
    pub fn crystal(&self, replica: usize) -> Option<u32> {
        self.faults.iter().find_map(|fault| match (fault.target, &fault.act) {
            (Target::Replica(place), Act::Crystal(rate)) if place == replica => Some(*rate),
            _ => None,
        })
    }

    /// Whether something befalls the network of replicas.
    #[must_use]
    pub fn cuts_wires(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.act, Act::Wire(_)))
    }

    /// Whether something befalls the wall clocks of replicas.
    #[must_use]
    pub fn sets_clocks(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.act, Act::Clock { .. } | Act::Crystal(_)))
    }

    /// The same without the faults of this kind.
    #[must_use]
    pub fn without(mut self, unwanted: impl Fn(&Act) -> bool) -> Self {
        self.faults.retain(|fault| !unwanted(&fault.act));
        self
    }

    /// The claims of this kind.
    pub fn claims(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let fits = move |deed: &&Deed| deed.work == Work::Create(kind);
        self.deeds.iter().filter(fits).map(|deed| &*deed.claim)
    }
}

/// A claim for each so many milliseconds, on average.
const CLAIM_EVERY: u64 = 750;

fn load(chance: &mut Chance, span: u64) -> Vec<Deed> {
    let mut deeds: Vec<Deed> =
        (0..span / CLAIM_EVERY).flat_map(|number| life(chance, number, span)).collect();
    deeds.sort_by_key(|deed| deed.at);
    deeds
}

/// What happens to one claim.
fn life(chance: &mut Chance, number: u64, span: u64) -> Vec<Deed> {
    let kind = match chance.between(0, 99) {
        0..=57 => Kind::Plain,
        58..=72 => Kind::Retained,
        73..=89 => Kind::Waiting,
        90..=92 => Kind::Stranded,
        93..=95 => Kind::Block,
        _ => Kind::Failing,
    };
    let claim = format!("{}-{number}", kind.prefix());
    // Some come in bursts.
    let born = chance.between(0, span * 9 / 10) / 500 * 500 + chance.between(0, 3) * 40;
    let mut deeds = vec![(born, Work::Create(kind))];
    let bound_later = |chance: &mut Chance| born + chance.between(300, 4_000);
    if chance.percent(40) {
        deeds.push((bound_later(chance), Work::Use));
    }
    if kind == Kind::Plain || kind == Kind::Waiting {
        let at = bound_later(chance);
        match chance.between(0, 9) {
            0 | 1 => deeds.extend([(at, Work::Keep), (at + chance.between(500, 6_000), Work::DropKept)]),
            2 => deeds.push((at, Work::DeleteVolume)),
            3 => deeds.extend([(at, Work::Hold), (at + chance.between(1_000, 6_000), Work::LetGo)]),
            _ => {}
        }
    }
    let odd_ends = born + chance.between(300, 5_000);
    if kind == Kind::Stranded {
        deeds.push((odd_ends, Work::LoseNode));
    }
    // What was provisioned to be retained is nobody's orphan: if its maker dies before it has a volume, and its claim
    // goes, it stays. That is meant to be, and would look like a leak.
    if kind != Kind::Retained && chance.percent(55) {
        // Some at once, while it is being provisioned.
        let lives = if chance.percent(30) { chance.between(20, 400) } else { chance.between(1_000, 9_000) };
        deeds.push((born + lives, Work::Delete));
    }
    deeds.retain(|(at, _)| *at <= span);
    deeds.into_iter().map(|(at, work)| Deed { at, claim: claim.clone(), work }).collect()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for Deed { at, claim, work } in &self.deeds {
            lines.push((*at, format!("{work:?} {claim}")));
        }
        for Fault { number, from, to, target, act } in &self.faults {
            lines.push((*from, format!("fault {number} begins: {act:?} {target:?}")));
            lines.push((*to, format!("fault {number} ends")));
        }
        lines.sort_by_key(|(at, _)| *at);
        let (name, seed, span, replicas) = (self.scenario.name(), self.seed, self.span, self.replicas);
        writeln!(f, "{name}, seed {seed}, {replicas} replicas, {span} ms")?;
        lines.into_iter().try_for_each(|(at, line)| writeln!(f, "{at:>6} {line}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SPAN: u64 = 45_000;

    fn seeds() -> impl Iterator<Item = u64> {
        (0..50).map(|number| number * 7_919)
    }

    #[test]
    fn the_same_seed_makes_the_same_plan_and_another_one_another() {
        for scenario in Scenario::ALL {
            assert_eq!(Plan::of(scenario, 3, SPAN), Plan::of(scenario, 3, SPAN));
            assert_ne!(Plan::of(scenario, 3, SPAN).deeds, Plan::of(scenario, 4, SPAN).deeds);
        }
    }

    #[test]
    fn every_fault_ends_before_the_plan_does_and_none_ends_before_it_begins() {
        for (scenario, seed) in Scenario::ALL.into_iter().zip(seeds()) {
            let plan = Plan::of(scenario, seed, SPAN);
            assert!(plan.faults.iter().all(|fault| fault.from <= fault.to && fault.to <= SPAN), "{plan}");
            assert!(plan.deeds.iter().all(|deed| deed.at <= SPAN), "{plan}");
        }
    }

    #[test]
    fn every_scenario_breaks_something_and_faults_have_numbers_of_their_own() {
        for (scenario, seed) in Scenario::ALL.into_iter().zip(seeds()) {
            let plan = Plan::of(scenario, seed, SPAN);
            assert!(!plan.faults.is_empty(), "{plan}");
            let numbers: BTreeSet<usize> = plan.faults.iter().map(|fault| fault.number).collect();
            assert_eq!(numbers.len(), plan.faults.len());
        }
    }

    #[test]
    fn among_many_seeds_every_deed_and_every_kind_of_claim_occurs() {
        let plans: Vec<Plan> = seeds().map(|seed| Plan::of(Scenario::Api, seed, SPAN)).collect();
        let works: BTreeSet<Work> = plans.iter().flat_map(|plan| &plan.deeds).map(|deed| deed.work).collect();
        assert_eq!(works.len(), 6 + 8, "{works:?}");
        assert!(plans.iter().all(|plan| plan.deeds.len() > 60));
    }
}
