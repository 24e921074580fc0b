//! Judges a history when it is over: what must hold whatever breaks, each rule a pure function over the entries.
//!
//! Here is what is judged and how it is said; each rule is in a file of its own or beside its kin, what several of
//! them ask of a history in [`reading`]. Nothing here runs, waits, or asks anybody.

mod assets;
mod claims;
mod deletions;
mod epochs;
mod leadership;
mod precious;
mod processes;
pub mod reading;
mod requests;
mod retries;
mod standbys;
#[cfg(test)]
mod tale;
mod versions;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use self::reading::{Belief, Reading};
use super::Entry;

/// What a run promises: within which time, and how much of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// So long after everything is healed each claim is bound or gone.
    pub settle: Duration,
    /// The wait after the first failure of a call.
    pub retry_initial: Duration,
    /// The longest wait between failures.
    pub retry_max: Duration,
    /// How much later than a thing happens it may be on record: a watch that lags, a program that has to start, a
    /// request on its way to a proxy.
    pub lag: Duration,
    /// So many more open files at the end than at the beginning.
    pub files: usize,
    /// So many more threads.
    pub threads: usize,
    /// So much more resident memory, in bytes.
    pub resident: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(60),
            // What `ledger::stage` configures.
            retry_initial: Duration::from_millis(200),
            retry_max: Duration::from_secs(2),
            lag: Duration::from_secs(1),
            files: 32,
            threads: 16,
            resident: 64 << 20,
        }
    }
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// Leadership.
    OneLeader,
    /// Leadership.
    InsideItsEpoch,
    /// Leadership.
    StandbysAreSilent,
    /// Assets.
    OneAsset,
    /// Assets.
    AssetsAreVolumes,
    /// Assets.
    NothingPreciousDeleted,
    /// Objects.
    ClaimsAndVolumesMatch,
    /// Objects.
    VersionsGrow,
    /// Progress.
    ClaimsEnd,
    /// Progress.
    DeletionsEnd,
    /// Cost.
    Budget,
    /// Cost.
    RetriesGrow,
    /// Processes.
    NobodyEnds,
    /// Processes.
    NothingGrows,
}

impl Invariant {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 14] = [
        Self::OneLeader,
        Self::InsideItsEpoch,
        Self::StandbysAreSilent,
        Self::OneAsset,
        Self::AssetsAreVolumes,
        Self::NothingPreciousDeleted,
        Self::ClaimsAndVolumesMatch,
        Self::VersionsGrow,
        Self::ClaimsEnd,
        Self::DeletionsEnd,
        Self::Budget,
        Self::RetriesGrow,
        Self::NobodyEnds,
        Self::NothingGrows,
    ];

    /// A short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneLeader => "one leader",
            Self::InsideItsEpoch => "inside its epoch",
            Self::StandbysAreSilent => "standbys are silent",
            Self::OneAsset => "one asset",
            Self::AssetsAreVolumes => "assets are volumes",
            Self::NothingPreciousDeleted => "nothing precious deleted",
            Self::ClaimsAndVolumesMatch => "claims and volumes match",
            Self::VersionsGrow => "versions grow",
            Self::ClaimsEnd => "claims end",
            Self::DeletionsEnd => "deletions end",
            Self::Budget => "budget",
            Self::RetriesGrow => "retries grow",
            Self::NobodyEnds => "nobody ends",
            Self::NothingGrows => "nothing grows",
        }
    }

    /// What it says.
    #[must_use]
    pub const fn promise(self) -> &'static str {
        match self {
            Self::OneLeader => "No two identities believe to lead at the same time.",
            Self::InsideItsEpoch => {
                "Every backend call and every write is begun with a guard that holds, and none after a later epoch \
                 has begun something."
            }
            Self::StandbysAreSilent => "Who does not lead writes nothing but the Lease and events.",
            Self::OneAsset => "A claim has at most one asset, and none that comes back after its removal.",
            Self::AssetsAreVolumes => "At rest each asset has its volume, and each volume its asset.",
            Self::NothingPreciousDeleted => {
                "No asset is deleted that belongs to a bound volume, to a living claim, or to a volume that retains; \
                 after a restore of etcd the audit deletes nothing that ever held data."
            }
            Self::ClaimsAndVolumesMatch => {
                "A volume names a claim that there was, by UID; a claim has one volume at a time."
            }
            Self::VersionsGrow => "Nobody sees an object go back to an earlier version.",
            Self::ClaimsEnd => "Each claim is bound or gone soon after nothing is broken any more.",
            Self::DeletionsEnd => {
                "At rest no deletion is unfinished, and no finalizer of ours is left behind; nobody else's goes with it."
            }
            Self::Budget => "Each write has its reason: a volume costs a bounded number of requests.",
            Self::RetriesGrow => "What fails again and again is tried at growing intervals.",
            Self::NobodyEnds => "A replica ends only if somebody ends it.",
            Self::NothingGrows => "Threads, open files and memory at the end are those of the beginning.",
        }
    }
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// What it is against.
    pub invariant: Invariant,
    /// When, in nanoseconds on the history's clock.
    pub at: u64,
    /// What was seen: it names objects, epochs and parties.
    pub words: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// How many facts were looked at for each invariant. With 0 nothing was proved.
    pub checked: BTreeMap<Invariant, usize>,
    /// What must not be, in the order of time.
    pub violations: Vec<Violation>,
}

impl Verdict {
    /// The violations of one invariant.
    pub fn against(&self, invariant: Invariant) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.invariant == invariant)
    }

    /// How many facts were looked at for one invariant.
    #[must_use]
    pub fn facts(&self, invariant: Invariant) -> usize {
        self.checked.get(&invariant).copied().unwrap_or_default()
    }

    fn saw(&mut self, invariant: Invariant, facts: usize) {
        *self.checked.entry(invariant).or_default() += facts;
    }

    fn found(&mut self, invariant: Invariant, at: u64, words: impl Into<String>) {
        self.violations.push(Violation { invariant, at, words: words.into() });
    }
}

/// In the unit of histories.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A rule: adds to the verdict what it has looked at, and what must not be.
type Rule = fn(&Reading<'_>, &Bounds, &mut Verdict);

const RULES: [Rule; 17] = [
    leadership::one_leader,
    epochs::effects_have_a_guard,
    epochs::requests_are_begun,
    epochs::calls_are_begun,
    standbys::are_silent,
    assets::one_for_each_claim,
    assets::are_volumes,
    precious::nothing_is_deleted,
    claims::match_volumes,
    claims::end,
    versions::grow,
    deletions::end,
    deletions::spare_others,
    requests::stay_in_budget,
    retries::grow,
    processes::nobody_ends,
    processes::nothing_grows,
];

/// Judges a history, in whatever order its entries are.
#[must_use]
pub fn check(history: &[Entry], bounds: &Bounds) -> Verdict {
    let reading = Reading::of(history);
    let mut verdict = Verdict { checked: Invariant::ALL.map(|it| (it, 0)).into(), violations: Vec::new() };
    for rule in RULES {
        rule(&reading, bounds, &mut verdict);
    }
    verdict.violations.sort_by_key(|violation| violation.at);
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_history_proves_nothing() {
        let verdict = check(&[], &Bounds::default());
        assert!(verdict.violations.is_empty());
        assert_eq!(verdict.checked.len(), Invariant::ALL.len());
        assert!(verdict.checked.values().all(|facts| *facts == 0));
    }

    #[test]
    fn a_verdict_is_the_same_after_it_was_saved() {
        let mut verdict = check(&[], &Bounds::default());
        verdict.found(Invariant::OneLeader, 7, "two");
        let text = serde_json::to_string(&verdict).unwrap();
        assert!(text.contains("\"one-leader\""), "{text}");
        assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
    }

    #[test]
    fn every_invariant_has_a_name_and_a_promise_of_its_own() {
        let names: std::collections::BTreeSet<_> = Invariant::ALL.map(Invariant::name).into();
        let promises: std::collections::BTreeSet<_> = Invariant::ALL.map(Invariant::promise).into();
        assert_eq!((names.len(), promises.len()), (14, 14));
    }
}
