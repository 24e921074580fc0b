//! Random chaos by seed: everything that a run does is a plan made from its scenario and seed, so that a run that
//! fails is repeated by one command.
//!
//! Here is the command. What is drawn is in [`scenario`], [`fault`], [`plan`] and [`control`], which are pure; how it is
//! done in `strike` and `work`; one run in [`run`], many in `rounds`. What must hold is judged by [`crate::history`].

pub mod control;
pub mod fault;
pub mod plan;
pub mod run;
pub mod scenario;

mod chronicle;
mod collect;
mod draw;
mod holds;
mod observe;
mod odd;
mod rest;
mod rounds;
mod strike;
mod work;
mod world;

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use self::rounds::Rounds;
pub use self::{control::Control, plan::Plan, run::Outcome, scenario::Scenario, world::Setting};
use crate::nemesis::chance::Chance;

/// Random chaos: scenarios by seed.
#[derive(Clone, Debug, Args)]
pub struct Random {
    /// Run every scenario, again and again with other seeds, then the negative controls
    #[arg(long, conflicts_with_all = ["scenario", "control"])]
    all: bool,
    /// Run this scenario once
    #[arg(long, value_enum, conflicts_with = "control")]
    scenario: Option<Scenario>,
    /// Run the negative control of this known bug: once without it, once with it
    #[arg(long)]
    control: Option<String>,
    /// What plans are made from; by default a new one
    #[arg(long)]
    seed: Option<u64>,
    /// With --all: for so many minutes, and at least one round; the controls come after that
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// How long things break in a run of a scenario
    #[arg(long, default_value_t = 45, value_parser = clap::value_parser!(u64).range(5..))]
    seconds: u64,
    /// Print an object per run, and one about all
    #[arg(long)]
    json: bool,
    /// Print what would be done, and do nothing
    #[arg(long, conflicts_with = "all")]
    plan: bool,
    /// Write a report, and keep every history, in this directory
    #[arg(long)]
    report: Option<PathBuf>,
}

/// Runs what was asked for.
///
/// # Errors
/// If something is violated or a known bug not caught, or a run can't be done.
pub async fn command(options: Random) -> Result<()> {
    let seed = options.seed.unwrap_or_else(seed_of_the_clock);
    let control = options.control.as_deref().map(named).transpose()?;
    let span = options.seconds * 1_000;
    if options.plan {
        let of_scenario = options.scenario.map(|scenario| Plan::of(scenario, seed, span));
        let plan = of_scenario.or_else(|| control.map(|control| control.plan(seed)));
        print!("{}", plan.context("say --scenario NAME or --control NAME")?);
        return Ok(());
    }
    let mut rounds = Rounds::begin(seed, span, options.json, options.report.clone()).await?;
    match (options.scenario, control) {
        (Some(scenario), _) => rounds.scenario(scenario, seed).await?,
        (None, Some(control)) => rounds.controls(&[control]).await?,
        (None, None) if options.all => {
            rounds.all(Duration::from_secs(options.minutes * 60)).await?;
            rounds.controls(&Control::all()).await?;
        }
        (None, None) => {
            bail!("say --all, --scenario NAME, --control NAME or a command; `cargo chaos list` shows them")
        }
    }
    rounds.conclude()
}

fn named(bug: &str) -> Result<Control> {
    Control::named(bug).with_context(|| {
        let known: Vec<&str> = Control::all().iter().map(|control| control.bug).collect();
        format!("there is no control for {bug:?}; there are: {}", known.join(", "))
    })
}

fn seed_of_the_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Short, as people type it again.
    Chance::new(u64::try_from(since.as_nanos()).unwrap_or_default()).below(1_000_000)
}

impl Default for Setting {
    fn default() -> Self {
        Self { settle: Duration::from_secs(90), control: None, bug: None, keys: json!({}), tolerated: &[] }
    }
}

impl Setting {
    /// For the plan of a control, with its bug or without.
    #[must_use]
    pub fn of(control: &Control, with_bug: bool) -> Self {
        let bug = with_bug.then(|| control.bug.to_owned());
        // What a bug keeps from its end is waited for in vain.
        let settle = if with_bug { Duration::from_secs(20) } else { Self::default().settle };
        let tolerated = if with_bug { &[] } else { control.tolerated };
        let keys = control.keys.clone();
        Self { settle, control: Some(control.bug.to_owned()), bug, keys, tolerated }
    }
}
