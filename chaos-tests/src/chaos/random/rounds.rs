//! Many runs: rounds over the scenarios, then the negative controls, and what is told of them all.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Control, Outcome, Plan, Scenario, Setting, run};
use crate::{
    control_plane::{ControlPlane, Options},
    history::{
        check::Violation,
        report::{self, Report, Totals},
    },
    nemesis::chance::Chance,
    product,
};

/// A control may miss its moment on a busy machine: it is tried with so many seeds.
const ATTEMPTS: u64 = 3;

/// So many violations of a run are printed; the rest is in its files.
const SHOWN: usize = 10;

/// The runs so far.
pub(super) struct Rounds {
    seed: u64,
    span: u64,
    json: bool,
    directory: Option<PathBuf>,
    ledger: PathBuf,
    began: Instant,
    outcomes: Vec<Outcome>,
    controls: Vec<Caught>,
}

/// What came of a control.
#[derive(Clone, Debug, Serialize)]
struct Caught {
    bug: &'static str,
    /// The seeds that were tried.
    seeds: Vec<u64>,
    /// The expected violations that were found with the bug.
    found: Vec<Violation>,
}

impl Caught {
    /// As the report tells it.
    fn told(&self) -> report::Control {
        report::Control {
            bug: self.bug.to_owned(),
            caught_by: self.found.iter().map(|violation| violation.invariant).collect(),
            words: self.found.first().map(|violation| violation.words.clone()).unwrap_or_default(),
        }
    }
}

impl Rounds {
    /// Builds what runs need.
    pub(super) async fn begin(seed: u64, span: u64, json: bool, directory: Option<PathBuf>) -> Result<Self> {
        let ledger = tokio::task::spawn_blocking(product::build_ledger).await??;
        let rounds = Self {
            seed,
            span,
            json,
            directory,
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
        let mut caught = Caught { bug: control.bug, seeds: Vec::new(), found: Vec::new() };
        for seed in self.seed..self.seed + ATTEMPTS {
            if caught.found.is_empty() {
                caught.seeds.push(seed);
                let outcome = self.run(plane, &control.plan(seed), &Setting::of(control, true)).await?;
                caught.found = control.found(&outcome.run.verdict);
            }
        }
        Ok(caught)
    }

    async fn run(&self, plane: &ControlPlane, plan: &Plan, setting: &Setting) -> Result<Outcome> {
        let keep = self.directory.as_deref();
        let outcome = Box::pin(run::run(plane, &self.ledger, plan, setting, keep)).await;
        let what = || format!("{} with seed {} can't be run", plan.scenario.name(), plan.seed);
        let outcome = outcome.with_context(what)?;
        if self.json {
            println!("{}", serde_json::to_string(&outcome)?);
        } else {
            println!("{}", told(&outcome));
        }
        Ok(outcome)
    }

    /// Tells of all runs.
    ///
    /// # Errors
    /// If something was violated, or a known bug was not caught.
    pub(super) fn conclude(&self) -> Result<()> {
        let report = self.report();
        if let Some(directory) = &self.directory {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
            report.write(directory)?;
        }
        let Totals { runs, faults, facts, violations, controls, caught } = report.totals();
        let seconds = self.began.elapsed().as_secs_f64();
        if self.json {
            println!("{}", self.summary(&report, seconds));
        } else {
            println!(
                "{runs} runs, {faults} faults, {facts} facts, {violations} violations, {caught} of {controls} known \
                 bugs caught, {seconds:.0} s"
            );
        }
        ensure!(violations == 0, "{violations} violations");
        let missed = self.controls.iter().filter(|control| control.found.is_empty());
        let missed: Vec<&str> = missed.map(|control| control.bug).collect();
        ensure!(missed.is_empty(), "known bugs were not caught: {}", missed.join(", "));
        Ok(())
    }

    fn summary(&self, report: &Report, seconds: f64) -> Value {
        let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
        for (kind, count) in report.runs.iter().flat_map(|run| &run.faults) {
            *faults.entry(kind).or_default() += count;
        }
        let seeds: Vec<Value> =
            report.runs.iter().map(|run| json!({ "run": run.scenario, "seed": run.seed })).collect();
        json!({
            "seed": self.seed, "seconds": seconds, "totals": report.totals(), "faults": faults, "seeds": seeds,
            "controls": self.controls,
        })
    }

    fn report(&self) -> Report {
        let about = [
            ("program", format!("kube-provisioner {}", env!("CARGO_PKG_VERSION"))),
            ("seed", self.seed.to_string()),
            ("seconds of faults in a run of a scenario", (self.span / 1_000).to_string()),
        ];
        Report {
            about: about.map(|(name, value)| (name.to_owned(), value)).into(),
            runs: self.outcomes.iter().map(|outcome| outcome.run.clone()).collect(),
            controls: self.controls.iter().map(Caught::told).collect(),
        }
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

fn told(outcome: &Outcome) -> String {
    let Outcome { run, bug, deeds, undone, directory } = outcome;
    let name = match bug {
        Some(bug) => format!("WITH {bug}"),
        None => run.scenario.clone(),
    };
    let word = if outcome.violations() == 0 { "ok" } else { "VIOLATED" };
    let faults: usize = run.faults.values().sum();
    let mut lines = vec![format!(
        "{name:<13} seed {:>6}  {faults:>3} faults, {deeds:>3} deeds ({undone} not done), {:>5} entries, {:>4.0} s  \
         {word}",
        run.seed, run.entries, run.seconds,
    )];
    lines.extend(run.skipped.iter().map(|reason| format!("  skipped: {reason}")));
    lines.extend(outcome.words().into_iter().take(SHOWN).map(|words| format!("  {words}")));
    if outcome.violations() > SHOWN {
        lines.push(format!("  and {} more", outcome.violations() - SHOWN));
    }
    if let (true, Some(directory)) = (outcome.violations() > 0, directory) {
        lines.push(format!("  again: {}", run.replay));
        lines.push(format!("  files: {}", directory.display()));
    }
    lines.join("\n")
}
