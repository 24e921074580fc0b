//! Random chaos by seed: everything that a run does is a plan made from its scenario and seed, so that a run that
//! fails is repeated by one command.
//!
//! Here is the command. What is drawn is in [`scenario`], [`fault`] and [`plan`], which are pure; how it is done in
//! `strike` and `work`; one run in [`run`]. What must hold is judged by [`crate::history`].

pub mod fault;
pub mod plan;
pub mod run;
pub mod scenario;

mod chronicle;
mod collect;
mod draw;
mod observe;
mod odd;
mod rest;
mod strike;
mod work;
mod world;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;

pub use self::{plan::Plan, run::Outcome, scenario::Scenario, world::Making};
use crate::{
    control_plane::{ControlPlane, Options},
    nemesis::chance::Chance,
    product::{self, Profile},
};

/// Random chaos: scenarios by seed.
#[derive(Clone, Debug, Args)]
pub struct Random {
    /// Run every scenario, again and again with other seeds
    #[arg(long, conflicts_with = "scenario")]
    all: bool,
    /// Run this scenario once
    #[arg(long, value_enum)]
    scenario: Option<Scenario>,
    /// What plans are made from; by default a new one
    #[arg(long)]
    seed: Option<u64>,
    /// With --all: for so many minutes
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// How long things break in a run
    #[arg(long, default_value_t = 45, value_parser = clap::value_parser!(u64).range(5..))]
    seconds: u64,
    /// Print an object per run, and one about all
    #[arg(long)]
    json: bool,
    /// Print the plan of a scenario and do nothing
    #[arg(long, requires = "scenario")]
    plan: bool,
    /// Write the report, and keep every history, in this directory
    #[arg(long)]
    report: Option<PathBuf>,
}

/// Runs what was asked for.
///
/// # Errors
/// If something is violated, or a run can't be done.
pub async fn command(options: Random) -> Result<()> {
    let seed = options.seed.unwrap_or_else(seed_of_the_clock);
    match options.scenario {
        Some(scenario) => one(&options, scenario, seed).await,
        None if options.all => all(&options, seed).await,
        None => bail!("say --all, --scenario NAME or one of the commands; `cargo chaos list` shows them"),
    }
}

fn seed_of_the_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Short, as people type it again.
    Chance::new(u64::try_from(since.as_nanos()).unwrap_or_default()).next() % 1_000_000
}

async fn one(options: &Random, scenario: Scenario, seed: u64) -> Result<()> {
    let plan = Plan::of(scenario, seed, options.seconds * 1_000);
    if options.plan {
        print!("{plan}");
        return Ok(());
    }
    let programs = Programs::build().await?;
    let outcome = programs.run(&plan, options.report.as_deref()).await?;
    print(&outcome, options)?;
    ensure!(outcome.violations.is_empty(), "{} violations", outcome.violations.len());
    Ok(())
}

async fn all(options: &Random, seed: u64) -> Result<()> {
    let programs = Programs::build().await?;
    let (began, limit) = (Instant::now(), Duration::from_secs(options.minutes * 60));
    if !options.json {
        println!("seed {seed}");
    }
    let mut chance = Chance::new(seed);
    let mut outcomes = Vec::new();
    for round in 0.. {
        for scenario in Scenario::ALL {
            if round > 0 && began.elapsed() >= limit {
                return conclude(options, seed, &outcomes);
            }
            let plan = Plan::of(scenario, chance.next() % 1_000_000, options.seconds * 1_000);
            let outcome = programs.run(&plan, options.report.as_deref()).await;
            let outcome = outcome.with_context(|| format!("{} with seed {}", scenario.name(), plan.seed))?;
            print(&outcome, options)?;
            outcomes.push(outcome);
        }
    }
    Ok(())
}

fn conclude(options: &Random, seed: u64, outcomes: &[Outcome]) -> Result<()> {
    let violations: usize = outcomes.iter().map(|outcome| outcome.violations.len()).sum();
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let runs = outcomes.len();
    if options.json {
        println!("{}", json!({ "seed": seed, "runs": runs, "seconds": seconds, "violations": violations }));
    } else {
        println!("{runs} runs, {violations} violations, {seconds:.0} s");
    }
    ensure!(violations == 0, "{violations} violations");
    Ok(())
}

fn print(outcome: &Outcome, options: &Random) -> Result<()> {
    if options.json {
        println!("{}", serde_json::to_string(outcome)?);
        return Ok(());
    }
    let Outcome { scenario, seed, seconds, faults, deeds, undone, entries, violations, directory, skipped } =
        outcome;
    let (name, count): (_, usize) = (scenario.name(), faults.values().sum());
    println!(
        "{name:<13} seed {seed:>6}  {count:>3} faults, {deeds:>3} deeds ({undone} not done), {entries:>5} entries, \
         {seconds:>4.0} s  {}",
        if violations.is_empty() { "ok" } else { "VIOLATED" }
    );
    for reason in skipped {
        println!("  skipped: {reason}");
    }
    for violation in violations {
        println!("  {violation}");
    }
    if let (false, Some(directory)) = (violations.is_empty(), directory) {
        println!("  again: cargo chaos run --scenario {name} --seed {seed} --seconds {}", options.seconds);
        println!("  files: {}", directory.display());
    }
    Ok(())
}

/// What runs need, built once.
struct Programs {
    ledger: PathBuf,
}

impl Programs {
    async fn build() -> Result<Self> {
        let ledger = tokio::task::spawn_blocking(product::build_ledger).await??;
        Ok(Self { ledger })
    }

    /// Runs a plan on a control plane of its own.
    async fn run(&self, plan: &Plan, keep: Option<&Path>) -> Result<Outcome> {
        let plane = Options {
            controller_manager_qps: Some(500),
            scheduler: false,
            audit_log: true,
            ..Options::default()
        };
        let plane = ControlPlane::start(plane).await?;
        Box::pin(run::run(&plane, &self.ledger, plan, &Making::default(), keep)).await
    }
}

impl Default for Making {
    fn default() -> Self {
        Self { profile: Profile::Dev, env: Vec::new(), keys: json!({}) }
    }
}
