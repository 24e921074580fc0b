//! Crash at every request, in the manner of Sieve: each story is told once without a fault, then again for each
//! mutating request and backend call of the leader, with the leader killed, or cut off, right before it or right
//! after it was applied. Who leads then has to bring every story to the same end.
//!
//! This is the command and the order of runs. Stories are in [`story`], one run in `run`, places to die in `site`.

mod run;
mod site;
pub mod story;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures::{StreamExt, stream};
use serde::Serialize;

pub(super) use self::run::kill_with_programs;
use self::run::{Ending, Fault};
pub use self::{
    site::{Moment, Site},
    story::Story,
};
use crate::{
    control_plane::{ControlPlane, Options},
    product,
};

/// A run in which the leader lost the Lease by itself, or the point did not come, is told again so often.
const ATTEMPTS: usize = 4;

/// Kill or cut off the leader at each of its mutating requests and backend calls: every story ends as without.
#[derive(Clone, Debug, Args)]
pub struct CrashPoints {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Only the point of this number
    #[arg(long)]
    only: Option<usize>,
    /// Only these stories
    #[arg(long, value_enum)]
    story: Vec<Story>,
    /// So many runs at a time
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    parallel: u8,
    /// Let the replicas only report orphans: the negative control, in which this scenario has to find leaks
    #[arg(long)]
    without_audit: bool,
}

/// Which points are run.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Whose.
    pub stories: Vec<Story>,
    /// Only the point of this number.
    pub only: Option<usize>,
    /// Every so many-th run of those that there are.
    pub every: usize,
    /// So many runs at a time.
    pub parallel: usize,
    /// Whether orphans are removed, as they should be.
    pub audit: bool,
}

impl Default for Choice {
    fn default() -> Self {
        Self { stories: Story::ALL.to_vec(), only: None, every: 1, parallel: 3, audit: true }
    }
}

/// A place to die.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Its number, from 1.
    pub k: usize,
    /// The story.
    pub story: Story,
    /// The request or call.
    pub site: Site,
}

/// A run that did not end as it should.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// Where something happened.
    pub point: Point,
    /// What.
    pub moment: Moment,
    /// What was otherwise than it should be.
    pub flaw: String,
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// All points of the chosen stories.
    pub points: Vec<Point>,
    /// How many runs with a fault there were.
    pub runs: usize,
    /// Those that did not end as they should.
    pub violations: Vec<Violation>,
    /// Points that did not come again.
    pub missed: Vec<Violation>,
    /// How many runs ended with an orphan that the audit removed.
    pub audited: usize,
    /// How long it took.
    pub seconds: f64,
}

/// Runs the scenario on a control plane of its own.
///
/// # Errors
/// If a run does not end as it should, or the point of a run does not come.
pub async fn command(options: CrashPoints) -> Result<()> {
    let CrashPoints { json, only, story, parallel, without_audit } = options;
    let ledger = tokio::task::spawn_blocking(product::build_ledger).await??;
    let plane = Options { controller_manager_qps: Some(500), scheduler: false, ..Options::default() };
    let plane = ControlPlane::start(plane).await?;
    let stories = if story.is_empty() { Story::ALL.to_vec() } else { story };
    let choice =
        Choice { stories, only, parallel: parallel.into(), audit: !without_audit, ..Choice::default() };
    let report = explore(&plane, &ledger, &choice).await?;
    print(&report, json)?;
    ensure!(report.violations.is_empty(), "{} violations", report.violations.len());
    ensure!(report.missed.is_empty(), "{} points did not come again", report.missed.len());
    Ok(())
}

fn print(report: &Report, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
        return Ok(());
    }
    for Point { k, story, site } in &report.points {
        println!("{k:>3} {:<11} {site}", story.name());
    }
    let Report { points, runs, violations, missed, audited, seconds } = report;
    for (what, found) in [("violation", violations), ("missed", missed)] {
        for Violation { point, moment, flaw } in found {
            println!("{what}: point {} ({} {}), {moment}: {flaw}", point.k, point.story.name(), point.site);
        }
    }
    println!(
        "{} points, {runs} runs, {} violations, {} missed, {audited} orphans removed by the audit, {seconds:.0} s",
        points.len(),
        violations.len(),
        missed.len()
    );
    Ok(())
}

/// Tells each chosen story once without a fault, then with every fault at each of its points.
///
/// # Errors
/// If a story cannot be told even without a fault.
pub async fn explore(plane: &ControlPlane, ledger: &Path, choice: &Choice) -> Result<Report> {
    let began = Instant::now();
    let mut report = Report::default();
    let mut plan = Vec::new();
    for story in &choice.stories {
        let (sites, ending) = reference(plane, ledger, *story).await?;
        for site in sites {
            let point = Point { k: report.points.len() + 1, story: *story, site };
            report.points.push(point.clone());
            plan.extend(Moment::ALL.map(|moment| (point.clone(), moment, ending.clone())));
        }
    }
    plan.retain(|(point, ..)| choice.only.is_none_or(|only| only == point.k));
    let plan = plan.into_iter().step_by(choice.every.max(1));
    let runs = plan.map(|(point, moment, ending)| {
        // On the heap: tests run on threads with small stacks.
        Box::pin(async move {
            let outcome = die_at(plane, ledger, &point, moment, &ending, choice.audit).await;
            (point, moment, outcome)
        })
    });
    let mut runs = stream::iter(runs).buffer_unordered(choice.parallel.max(1));
    while let Some((point, moment, outcome)) = runs.next().await {
        report.runs += 1;
        let wrong = |flaw| Violation { point, moment, flaw };
        match outcome {
            Ok(Outcome::AsItShould { audited }) => report.audited += usize::from(audited),
            Ok(Outcome::Missed(why)) => report.missed.push(wrong(why)),
            Err(error) => report.violations.push(wrong(format!("{error:#}"))),
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// The sites of a story in their order, and its ending.
async fn reference(plane: &ControlPlane, ledger: &Path, story: Story) -> Result<(Vec<Site>, Ending)> {
    for _ in 0..ATTEMPTS {
        let told = Box::pin(run::tell(plane, ledger, story, run::Plan::default())).await;
        let told = told.with_context(|| format!("the story {:?} without a fault", story.name()))?;
        if told.undisturbed {
            return Ok((told.sites, told.ending));
        }
    }
    bail!("the leader of the story {:?} lost its Lease {ATTEMPTS} times", story.name())
}

enum Outcome {
    AsItShould { audited: bool },
    Missed(String),
}

async fn die_at(
    plane: &ControlPlane,
    ledger: &Path,
    point: &Point,
    moment: Moment,
    ending: &Ending,
    audit: bool,
) -> Result<Outcome> {
    for _ in 0..ATTEMPTS {
        let fault = Some(Fault { site: point.site.clone(), moment });
        let plan = run::Plan { fault, expected: Some(ending), audit };
        let told = Box::pin(run::tell(plane, ledger, point.story, plan)).await?;
        if told.struck {
            return Ok(Outcome::AsItShould { audited: told.audited });
        }
    }
    Ok(Outcome::Missed(format!("the story ended {ATTEMPTS} times before the point came")))
}

/// For what takes a moment on an idle machine.
const DEADLINE: Duration = crate::ledger::stage::DEADLINE;
