//! Negative controls: for each known bug of the product a short plan that brings it to light, and what the checker then
//! has to find. Without the bug the same plan has to pass. Pure, but for their names the bugs are the product's.

use serde_json::{Value, json};

use super::{
    fault::{Act, Fate, Fault, Manner, Target},
    plan::{Deed, Kind, Plan, Work},
    scenario::Scenario,
};
use crate::{
    history::check::{Invariant, Verdict, Violation},
    nemesis::chance::Chance,
};

/// A known bug and what brings it to light.
#[derive(Clone, Debug)]
pub struct Control {
    /// The bug's name.
    pub bug: &'static str,
    /// What of the replicas' configuration is different.
    pub keys: Value,
    /// What has to be found, any of it.
    pub expected: &'static [Invariant],
    /// What the plan brings about without the bug, too, and is meant to.
    pub tolerated: &'static [Invariant],
    script: fn(&mut Script),
}

impl Control {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        use Invariant::{
            AssetsAreVolumes, Budget, ClaimsAndVolumesMatch, InsideItsEpoch, NothingPreciousDeleted,
            OneAsset, OneLeader, RetriesGrow, StandbysAreSilent,
        };
        let control = |bug, orphans: &str, expected, script| Self {
            bug,
            keys: json!({ "orphans": orphans }),
            expected,
            tolerated: &[],
            script,
        };
        vec![
            control("no-guard", "auto", &[InsideItsEpoch, OneLeader, StandbysAreSilent], no_guard),
            Self {
                // An asset whose volume can't be saved is surplus, goes, and is made anew.
                tolerated: &[OneAsset, NothingPreciousDeleted],
                ..control("no-claimref-comparison", "report", &[AssetsAreVolumes], no_claimref_comparison)
            },
            control("no-live-read", "auto", &[OneAsset, ClaimsAndVolumesMatch], no_live_read),
            control(
                "delete-on-failed-save",
                "auto",
                &[NothingPreciousDeleted, OneAsset, AssetsAreVolumes],
                delete_on_failed_save,
            ),
            control("unconditional-finalizer-patch", "auto", &[NothingPreciousDeleted], finalizer_patch),
            control("no-audit-grace", "delete", &[NothingPreciousDeleted, AssetsAreVolumes], no_audit_grace),
            control("no-keep", "delete", &[NothingPreciousDeleted], no_keep),
            control("requeue-at-once", "auto", &[RetriesGrow, Budget], requeue_at_once),
            control("reschedule-on-node-gone", "report", &[AssetsAreVolumes], node_gone),
            control("forget-background", "report", &[AssetsAreVolumes], forget_background),
        ]
    }

    /// The one of this bug.
    #[must_use]
    pub fn named(bug: &str) -> Option<Self> {
        Self::all().into_iter().find(|control| control.bug == bug)
    }

    /// What of the verdict on a run with the bug was expected.
    #[must_use]
    pub fn found(&self, verdict: &Verdict) -> Vec<Violation> {
        let violations = verdict.violations.iter();
        violations.filter(|violation| self.expected.contains(&violation.invariant)).cloned().collect()
    }

    /// What happens with this seed. Seeds differ by moments only.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        let chance = Chance::new(seed).part(self.bug);
        let mut script = Script { chance, deeds: Vec::new(), faults: Vec::new() };
        (self.script)(&mut script);
        let Script { mut deeds, mut faults, .. } = script;
        deeds.sort_by_key(|deed| deed.at);
        faults.sort_by_key(|fault| fault.from);
        for (number, fault) in (1..).zip(&mut faults) {
            fault.number = number;
        }
        let ends = deeds.iter().map(|deed| deed.at).chain(faults.iter().map(|fault| fault.to));
        // Deeds may take their time.
        let span = ends.max().unwrap_or_default() + 2_000;
        Plan { scenario: Scenario::Everything, seed, span, replicas: 2, deeds, faults }
    }
}

/// A plan in the making.
struct Script {
    chance: Chance,
    deeds: Vec<Deed>,
    faults: Vec<Fault>,
}

impl Script {
    /// Claims of a kind from `at` on, each so many milliseconds after the one before; then what is done to each, so
    /// long after it was created.
    fn claims(&mut self, kind: Kind, (count, at, every): (u64, u64, u64), works: &[(u64, Work)]) {
        for number in 0..count {
            let claim = format!("{}-{number}", kind.prefix());
            let born = at + number * every + self.chance.between(0, 50);
            let first = [(0, Work::Create(kind))];
            self.deeds.extend(first.iter().chain(works).map(|(later, work)| Deed {
                at: born + later,
                claim: claim.clone(),
                work: *work,
            }));
        }
    }

    fn fault(&mut self, target: Target, (from, to): (u64, u64), act: Act) {
        let shift = self.chance.between(0, 100);
        self.faults.push(Fault { number: 0, from: from + shift, to: to + shift, target, act });
    }

    fn calls(&mut self, operation: &str, time: (u64, u64), conduct: Manner) {
        let act = Act::Calls { operation: operation.to_owned(), conduct, first: None };
        self.fault(Target::Backend, time, act);
    }

    fn freeze(&mut self, time: (u64, u64)) {
        for resource in ["persistentvolumeclaims", "persistentvolumes"] {
            self.fault(Target::Standby, time, Act::Freeze(resource.to_owned()));
        }
    }
}

const DIES: Act = Act::Kill { programs: true };

/// A leader stands still for longer than its Lease, in the middle of its work, and goes on.
fn no_guard(script: &mut Script) {
    script.claims(Kind::Plain, (40, 300, 300), &[(2_500, Work::Delete)]);
    script.fault(Target::Leader, (1_500, 6_000), Act::Pause);
    script.fault(Target::Leader, (7_500, 12_000), Act::Pause);
}

/// There is somebody else's volume of the name when the claim goes: nobody but the audit knows of the asset.
fn no_claimref_comparison(script: &mut Script) {
    script.claims(Kind::Squatted, (4, 500, 300), &[(2_500, Work::Delete), (4_500, Work::Unsquat)]);
}

/// Who takes over saw the claims and nothing that became of them, and they are gone.
fn no_live_read(script: &mut Script) {
    script.calls("provision", (0, 3_000), Manner::Slow(1_500));
    script.claims(Kind::Plain, (5, 800, 50), &[(4_000, Work::Delete)]);
    script.freeze((1_600, 13_000));
    script.fault(Target::Leader, (7_500, 9_000), DIES);
}

/// Volumes are saved, and the answer is lost or bad.
fn delete_on_failed_save(script: &mut Script) {
    for (time, fate) in [((300, 2_500), Fate::CutAfter), ((2_700, 5_000), Fate::Answer(500))] {
        let (verb, resource) = ("create".to_owned(), "persistentvolumes".to_owned());
        script.fault(Target::Leader, time, Act::Requests { verb, resource, fate, first: Some(4) });
    }
    script.claims(Kind::Plain, (12, 600, 350), &[]);
}

/// Somebody else has a finalizer on volumes that are deleted.
fn finalizer_patch(script: &mut Script) {
    script.claims(Kind::Plain, (5, 300, 100), &[(1_200, Work::Hold), (3_500, Work::Delete)]);
}

/// Who takes over has seen nothing of what there is.
fn no_audit_grace(script: &mut Script) {
    script.freeze((300, 11_000));
    script.claims(Kind::Plain, (5, 800, 50), &[(1_000, Work::Use)]);
    script.fault(Target::Leader, (4_000, 5_500), DIES);
}

/// What was kept has nothing but its mark to tell so, once its volume is gone.
fn no_keep(script: &mut Script) {
    let works = [(1_500, Work::Keep), (3_500, Work::Delete), (4_000, Work::DropKept)];
    script.claims(Kind::Plain, (4, 300, 100), &works);
}

/// The backend fails, again and again.
fn requeue_at_once(script: &mut Script) {
    script.claims(Kind::Failing, (3, 300, 100), &[(9_000, Work::Delete)]);
}

/// The node goes while the backend works for it, then the claim.
fn node_gone(script: &mut Script) {
    script.claims(Kind::Stranded, (5, 300, 150), &[(250, Work::LoseNode), (3_500, Work::Delete)]);
}

/// Calls are cut off when the asset is made, and the claim is gone by then.
fn forget_background(script: &mut Script) {
    script.calls("provision", (0, 6_000), Manner::HangAfter);
    script.claims(Kind::Plain, (5, 500, 100), &[(1_500, Work::Delete)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controls_plan_is_the_same_with_the_same_seed_and_whole_with_any() {
        for control in Control::all() {
            assert_eq!(control.plan(3), control.plan(3));
            let plan = control.plan(4);
            assert!(plan.faults.iter().all(|fault| fault.from < fault.to && fault.to < plan.span), "{plan}");
            assert!(plan.deeds.len() > 2 && !control.expected.is_empty(), "{plan}");
            assert!(Control::named(control.bug).is_some());
        }
    }
}
