//! Many runs: rounds over the scenarios, then the negative controls, and what is told of them all.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;

use super::{Control, Outcome, Plan, Scenario, Setting, run};
use crate::{
    control_plane::{ControlPlane, Options},
    nemesis::chance::Chance,
    product,
};

/// A control may miss its moment on a busy machine: it is tried with so many seeds.
const ATTEMPTS: u64 = 3;

/// The runs so far.
pub(super) struct Rounds {
    seed: u64,
    span: u64,
    json: bool,
    report: Option<PathBuf>,
    ledger: PathBuf,
    began: Instant,
    outcomes: Vec<Outcome>,
    controls: Vec<Caught>,
}

/// What came of a control.
#[derive(Clone, Debug, Serialize)]
struct Caught {
    bug: &'static str,
    /// Whether one of the expected violations was found with the bug.
    caught: bool,
    /// The seeds that were tried.
    seeds: Vec<u64>,
    /// What was found with the bug.
    found: Vec<String>,
}

impl Rounds {
    /// Builds what runs need.
    pub(super) async fn begin(seed: u64, span: u64, json: bool, report: Option<PathBuf>) -> Result<Self> {
        let ledger = tokio::task::spawn_blocking(product::build_ledger).await??;
        let rounds = Self {
            seed,
            span,
            json,
            report,
            ledger,
            began: Instant::now(),
            outcomes: Vec::new(),
            controls: Vec::new(),
        };
        if !json {
            println!("seed {seed}");
        }
        Ok(rounds)
    }

    /// Runs all scenarios, again and again with seeds of their own, until the time is up; once at least.
    pub(super) async fn all(&mut self, time: Duration) -> Result<()> {
        let mut chance = Chance::new(self.seed);
        for round in 0_u64.. {
            for scenario in Scenario::ALL {
                if round > 0 && self.began.elapsed() >= time {
                    return Ok(());
                }
                self.scenario(scenario, chance.below(1_000_000)).await?;
            }
        }
        Ok(())
    }

    /// Runs a scenario once.
    pub(super) async fn scenario(&mut self, scenario: Scenario, seed: u64) -> Result<()> {
        let plan = Plan::of(scenario, seed, self.span);
        let plane = plane().await?;
        let outcome = self.run(&plane, &plan, &Setting::default()).await?;
        self.outcomes.push(outcome);
        Ok(())
    }

    /// Runs these controls, each without its bug and with it, on a control plane that they share.
    pub(super) async fn controls(&mut self, controls: &[Control]) -> Result<()> {
        let plane = plane().await?;
        for control in controls {
            let clean = self.run(&plane, &control.plan(self.seed), &Setting::of(control, false)).await?;
            self.outcomes.push(clean);
            let caught = self.control(&plane, control).await?;
            self.controls.push(caught);
        }
        Ok(())
    }

    async fn control(&self, plane: &ControlPlane, control: &Control) -> Result<Caught> {
        let mut caught = Caught { bug: control.bug, caught: false, seeds: Vec::new(), found: Vec::new() };
        for seed in self.seed..self.seed + ATTEMPTS {
            caught.seeds.push(seed);
            let outcome = self.run(plane, &control.plan(seed), &Setting::of(control, true)).await?;
            caught.found.extend(outcome.words());
            if control.catches(&outcome) {
                caught.caught = true;
                break;
            }
        }
        Ok(caught)
    }

    async fn run(&self, plane: &ControlPlane, plan: &Plan, setting: &Setting) -> Result<Outcome> {
        let keep = self.report.as_deref();
        let outcome = Box::pin(run::run(plane, &self.ledger, plan, setting, keep)).await;
        let what = || format!("{} with seed {} can't be run", plan.scenario.name(), plan.seed);
        let outcome = outcome.with_context(what)?;
        if self.json {
            println!("{}", serde_json::to_string(&outcome)?);
        } else {
            println!("{}", told(&outcome, self.span / 1_000));
        }
        Ok(outcome)
    }

    /// Tells of all runs.
    ///
    /// # Errors
    /// If something was violated, or a known bug was not caught.
    pub(super) fn conclude(&self) -> Result<()> {
        let violations: usize = self.outcomes.iter().map(Outcome::violations).sum();
        let missed: Vec<&str> =
            self.controls.iter().filter(|control| !control.caught).map(|control| control.bug).collect();
        let (runs, seconds) = (self.outcomes.len(), self.began.elapsed().as_secs_f64());
        let faults = self.faults();
        if self.json {
            let summary = json!({
                "seed": self.seed, "runs": runs, "seconds": seconds, "faults": faults, "violations": violations,
                "controls": self.controls,
            });
            println!("{summary}");
        } else {
            let count: usize = faults.values().sum();
            let (caught, controls) = (self.controls.len() - missed.len(), self.controls.len());
            println!(
                "{runs} runs, {count} faults, {violations} violations, {caught} of {controls} known bugs caught, \
                 {seconds:.0} s"
            );
        }
        ensure!(violations == 0, "{violations} violations");
        ensure!(missed.is_empty(), "known bugs were not caught: {}", missed.join(", "));
        Ok(())
    }

    fn faults(&self) -> BTreeMap<&str, usize> {
        let mut all = BTreeMap::new();
        for (kind, count) in self.outcomes.iter().flat_map(|outcome| &outcome.faults) {
            *all.entry(kind.as_str()).or_default() += count;
        }
        all
    }
}

/// The control plane of a run: nobody else uses it, and it tells who asked for what.
async fn plane() -> Result<ControlPlane> {
    let options = Options {
        controller_manager_qps: Some(500),
        scheduler: false,
        audit_log: true,
        ..Options::default()
    };
    ControlPlane::start(options).await
}

fn told(outcome: &Outcome, seconds: u64) -> String {
    let name = outcome.scenario.name();
    let (what, again) = match &outcome.bug {
        Some(bug) => (bug.as_str(), format!("--control {bug}")),
        None => (name, format!("--scenario {name} --seconds {seconds}")),
    };
    let (faults, entries): (usize, _) = (outcome.faults.values().sum(), outcome.entries);
    let Outcome { seed, deeds, undone, .. } = outcome;
    let mut lines = vec![format!(
        "{what:<13} seed {seed:>6}  {faults:>3} faults, {deeds:>3} deeds ({undone} not done), {entries:>5} entries, \
         {:>4.0} s  {}",
        outcome.seconds,
        if outcome.violations() == 0 { "ok" } else { "VIOLATED" }
    )];
    lines.extend(outcome.skipped.iter().map(|reason| format!("  skipped: {reason}")));
    lines.extend(outcome.words().into_iter().map(|words| format!("  {words}")));
    if let (true, Some(directory)) = (outcome.violations() > 0, &outcome.directory) {
        lines.push(format!("  again: cargo chaos run {again} --seed {seed}"));
        lines.push(format!("  files: {}", directory.display()));
    }
    lines.join("\n")
}
