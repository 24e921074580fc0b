//! The report of many runs: what broke, what was judged, and what must not have been. One page of HTML that needs
//! nothing else, and the same facts as JSON.
//!
//! Here are the facts; the page is made in `page`, its pictures in `picture`. Nothing here judges.

mod page;
mod picture;
mod style;
mod table;
mod timeline;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use self::timeline::{CallBar, FaultBar, Lane, Lead, Span, Timeline};
use super::{
    Entry, What,
    check::{Bounds, Invariant, Verdict, check},
};

/// All that the report tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Program, version, machine: a name and a value each, in the order of the page.
    pub about: Vec<(String, String)>,
    /// The runs.
    pub runs: Vec<Run>,
    /// Runs of programs with a known bug.
    #[serde(default)]
    pub controls: Vec<Control>,
}

/// A run and what was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its scenario.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// The command that runs it again.
    pub replay: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How often each kind of fault befell something.
    pub faults: BTreeMap<String, usize>,
    /// What this machine has no means for.
    #[serde(default)]
    pub skipped: Vec<String>,
    /// How many entries its history has.
    pub entries: usize,
    /// What was found.
    pub verdict: Verdict,
    /// What it looked like.
    pub timeline: Timeline,
}

/// A program with a known bug, which must not pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The bug, in words.
    pub bug: String,
    /// The invariants that it broke: none if nobody noticed.
    pub caught_by: BTreeSet<Invariant>,
    /// What gave it away, such as the words of a violation.
    #[serde(default)]
    pub words: String,
}

/// The numbers of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Runs.
    pub runs: usize,
    /// Faults of all runs.
    pub faults: usize,
    /// Facts that were looked at.
    pub facts: usize,
    /// What must not be.
    pub violations: usize,
    /// Programs with a known bug.
    pub controls: usize,
    /// Those of them that were caught.
    pub caught: usize,
}

/// A fault and an invariant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The runs in which the fault happened and the invariant was judged by some fact.
    pub runs: usize,
    /// The violations of the invariant in runs in which the fault happened.
    pub violations: usize,
}

impl Run {
    /// Judges a history and takes from it what the report needs.
    #[must_use]
    pub fn judged(scenario: &str, seed: u64, seconds: f64, history: &[Entry], bounds: &Bounds) -> Self {
        let mut faults = BTreeMap::new();
        for entry in history {
            if let What::Fault { kind, over: false, .. } = &entry.what {
                *faults.entry(kind.clone()).or_default() += 1;
            }
        }
        Self {
            scenario: scenario.to_owned(),
            seed,
            replay: format!("cargo chaos run --scenario {scenario} --seed {seed}"),
            seconds,
            faults,
            skipped: Vec::new(),
            entries: history.len(),
            verdict: check(history, bounds),
            timeline: Timeline::of(history),
        }
    }
}

impl Report {
    /// The numbers.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let of_runs = |count: fn(&Run) -> usize| self.runs.iter().map(count).sum();
        Totals {
            runs: self.runs.len(),
            faults: of_runs(|run| run.faults.values().sum()),
            facts: of_runs(|run| run.verdict.checked.values().sum()),
            violations: of_runs(|run| run.verdict.violations.len()),
            controls: self.controls.len(),
            caught: self.controls.iter().filter(|control| !control.caught_by.is_empty()).count(),
        }
    }

    /// The kinds of faults that happened.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<&str> {
        self.runs.iter().flat_map(|run| run.faults.keys()).map(|kind| &**kind).collect()
    }

    /// What is known of a kind of fault (of all runs, if there is none) and an invariant.
    #[must_use]
    pub fn cell(&self, kind: Option<&str>, invariant: Invariant) -> Cell {
        let fits = |run: &&Run| kind.is_none_or(|kind| run.faults.contains_key(kind));
        self.runs.iter().filter(fits).fold(Cell::default(), |cell, run| Cell {
            runs: cell.runs + usize::from(run.verdict.facts(invariant) > 0),
            violations: cell.violations + run.verdict.against(invariant).count(),
        })
    }

    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        page::of(self)
    }

    /// The same facts as JSON, with the totals and the table beside them.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn json(&self) -> Result<String> {
        let row = |kind| -> BTreeMap<Invariant, Cell> {
            Invariant::ALL.map(|invariant| (invariant, self.cell(kind, invariant))).into()
        };
        let table: BTreeMap<&str, _> = self.kinds().into_iter().map(|kind| (kind, row(Some(kind)))).collect();
        let twin = Twin { totals: self.totals(), table, report: self };
        serde_json::to_string_pretty(&twin).context("cannot write the report as JSON")
    }

    /// Writes `report.html` and `report.json` into a directory.
    ///
    /// # Errors
    /// If one can't be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        for (name, text) in [("report.html", self.html()), ("report.json", self.json()?)] {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Twin<'a> {
    totals: Totals,
    table: BTreeMap<&'a str, BTreeMap<Invariant, Cell>>,
    #[serde(flatten)]
    report: &'a Report,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::check::Violation;

    pub(super) fn report() -> Report {
        let invariant = Invariant::OneLeader;
        let mut bad = Run { scenario: "<script>".to_owned(), seed: 7, seconds: 61.5, ..Run::default() };
        bad.replay = "cargo chaos run --scenario <script> --seed 7".to_owned();
        bad.faults = [("kill".to_owned(), 3), ("pause".to_owned(), 1)].into();
        bad.verdict.checked = [(invariant, 4)].into();
        let words = "r0 & r1 both believed <b>".to_owned();
        bad.verdict.violations = vec![Violation { invariant, at: 5, words }];
        let good = Run {
            scenario: "api".to_owned(),
            seed: 8,
            faults: [("kill".to_owned(), 2)].into(),
            verdict: Verdict { checked: [(invariant, 2)].into(), violations: Vec::new() },
            ..Run::default()
        };
        let caught =
            Control { bug: "no guard".to_owned(), caught_by: [invariant].into(), words: String::new() };
        let missed = Control { bug: "no live read".to_owned(), ..Control::default() };
        Report {
            about: vec![("program".to_owned(), "kube-provisioner \"0.1\"".to_owned())],
            runs: vec![bad, good],
            controls: vec![caught, missed],
        }
    }

    #[test]
    fn the_numbers_are_those_of_all_runs() {
        let expected = Totals { runs: 2, faults: 6, facts: 6, violations: 1, controls: 2, caught: 1 };
        assert_eq!(report().totals(), expected);
    }

    #[test]
    fn a_cell_counts_the_runs_with_its_fault_in_which_its_invariant_was_judged() {
        let report = report();
        let cell = |kind, invariant| {
            let Cell { runs, violations } = report.cell(kind, invariant);
            (runs, violations)
        };
        assert_eq!(cell(Some("kill"), Invariant::OneLeader), (2, 1));
        assert_eq!(cell(Some("pause"), Invariant::OneLeader), (1, 1));
        assert_eq!(cell(Some("kill"), Invariant::Budget), (0, 0));
        assert_eq!(cell(None, Invariant::OneLeader), (2, 1));
    }

    #[test]
    fn the_twin_tells_the_same_and_the_totals() {
        let text = report().json().unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
        let twin: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(twin["totals"]["violations"], 1);
        assert_eq!(twin["table"]["pause"]["one-leader"]["violations"], 1);
    }

    #[test]
    fn a_run_is_judged_and_its_faults_are_counted() {
        let entry = |at, party: &str, what| Entry { at, party: party.to_owned(), what };
        let fault = |over| What::Fault { number: 1, kind: "kill".to_owned(), target: "r0".to_owned(), over };
        let history = [
            entry(1, "r0", What::Believes { epoch: 5, left: 10 }),
            entry(2, "r1", What::Believes { epoch: 6, left: 10 }),
            entry(3, "nemesis", fault(false)),
            entry(4, "nemesis", fault(true)),
        ];
        let run = Run::judged("api", 9, 1.0, &history, &Bounds::default());
        assert_eq!(run.faults, [("kill".to_owned(), 1)].into());
        assert_eq!(run.verdict.against(Invariant::OneLeader).count(), 1);
        assert_eq!((&*run.replay, run.entries), ("cargo chaos run --scenario api --seed 9", 4));
    }

    #[test]
    fn page_and_twin_are_written_side_by_side() {
        let directory = tempfile::tempdir().unwrap();
        report().write(directory.path()).unwrap();
        assert!(
            fs::read_to_string(directory.path().join("report.html")).unwrap().starts_with("<!doctype html>")
        );
        assert!(directory.path().join("report.json").exists());
    }
}
