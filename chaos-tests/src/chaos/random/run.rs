//! One run: carries a plan out on a cluster of its own, heals it, lets it come to rest, and judges its history.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, Result};
use futures::future::{join_all, try_join_all};
use serde::Serialize;
use tokio::time::Instant;

use super::{
    collect,
    fault::Act,
    observe, odd,
    plan::Plan,
    rest, strike, work,
    world::{Setting, World},
};
use crate::{
    control_plane::ControlPlane,
    history::{self, Entry, What, check::Bounds, report::Run},
    nemesis::{clock, network},
};

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// What the report tells of it.
    #[serde(flatten)]
    pub run: Run,
    /// The known bug that the product had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bug: Option<String>,
    /// What people did.
    pub deeds: usize,
    /// What could not be done while things were broken.
    pub undone: usize,
    /// Where the history and the logs are, if they are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
}

impl Outcome {
    /// How much there was that must not be.
    #[must_use]
    pub fn violations(&self) -> usize {
        self.run.verdict.violations.len()
    }

    /// A line for each.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let violations = self.run.verdict.violations.iter();
        violations.map(|it| format!("{}: {}", it.invariant.name(), it.words)).collect()
    }
}

/// Carries out `plan` on `plane`, which has an audit log and no other user. The history goes to a directory below
/// `keep`; without one it is kept only if something is violated.
///
/// # Errors
/// If the plan can't be carried out: not what the replicas do.
pub async fn run(
    plane: &ControlPlane,
    ledger: &Path,
    plan: &Plan,
    setting: &Setting,
    keep: Option<&Path>,
) -> Result<Outcome> {
    let began = Instant::now();
    let (plan, skipped) = &possible(plan);
    let world = World::start(plane, ledger, plan, setting).await?;
    odd::create_node(&world, odd::LASTING).await?;
    world.tell_sizes().await?;
    let story = async {
        let undone = carry_out(&world, plan).await?;
        rest::heal(&world).await.context("cannot heal what was broken")?;
        anyhow::Ok((undone, rest::come_to_rest(&world, setting.settle).await?))
    };
    let told = tokio::select! {
        told = story => told,
        () = observe::watch(&world) => Err(anyhow::anyhow!("the watch of the cluster has ended")),
    };
    let (undone, rest) = match told {
        Ok(told) => told,
        Err(error) => {
            let directory = place(plan, setting, keep)?;
            collect::keep_files(&world, &directory)?;
            return Err(error.context(format!("the logs are in {}", directory.display())));
        }
    };
    tell_the_end(&world).await?;
    let mut history = collect::history(&world).await?;
    let seconds = began.elapsed().as_secs_f64();
    let mut run = judged(plan, setting, seconds, &history);
    run.verdict.violations.extend(rest.err().into_iter().chain(world.holds.violations()));
    run.verdict.violations.retain(|violation| !setting.tolerated.contains(&violation.invariant));
    run.skipped.clone_from(skipped);
    let violated = !run.verdict.violations.is_empty();
    let mut outcome =
        Outcome { run, bug: setting.bug.clone(), deeds: plan.deeds.len() - undone, undone, directory: None };
    if keep.is_some() || violated {
        let directory = place(plan, setting, keep)?;
        write(&world, &mut history, &directory, violated)?;
        outcome.directory = Some(directory);
    }
    clean_up(&world).await?;
    Ok(outcome)
}

fn judged(plan: &Plan, setting: &Setting, seconds: f64, history: &[Entry]) -> Run {
    let bounds = Bounds { settle: setting.settle, ..Bounds::default() };
    let name = setting.control.as_deref().unwrap_or(plan.scenario.name());
    let run = Run::judged(name, plan.seed, seconds, history, &bounds);
    let replay = match &setting.control {
        Some(control) => format!("cargo chaos run --control {control} --seed {}", plan.seed),
        None => format!("{} --seconds {}", run.replay, plan.span / 1_000),
    };
    Run { replay, ..run }
}

/// What of a plan can be done on this machine, and why the rest can't.
fn possible(plan: &Plan) -> (Plan, Vec<String>) {
    let (mut plan, mut skipped) = (plan.clone(), Vec::new());
    if let Some(reason) = plan.cuts_wires().then(network::unavailable).flatten() {
        plan = plan.without(|act| matches!(act, Act::Wire(_)));
        skipped.push(format!("network: {reason}"));
    }
    if plan.sets_clocks() && clock::library().is_none() {
        plan = plan.without(|act| matches!(act, Act::Clock { .. } | Act::Crystal(_)));
        skipped.push("clocks: libfaketime is not installed (Debian: faketime)".to_owned());
    }
    (plan, skipped)
}

/// Does everything that the plan has; how many deeds could not be done.
async fn carry_out(world: &World<'_>, plan: &Plan) -> Result<usize> {
    let began = Instant::now();
    let faults = try_join_all(plan.faults.iter().map(|fault| async move {
        let done = strike::carry_out(world, fault, began).await;
        done.with_context(|| format!("fault {} ({}) can't be done", fault.number, fault.act.kind()))
    }));
    let deeds = join_all(plan.deeds.iter().map(|deed| work::carry_out(world, deed, began, plan.span)));
    let (faults, deeds) = tokio::join!(faults, deeds);
    faults?;
    Ok(deeds.into_iter().filter(|done| !done).count())
}

/// What there is at rest.
async fn tell_the_end(world: &World<'_>) -> Result<()> {
    world.chronicle.tell("harness", What::Rest);
    for volume in world.stage.ledger.assets()? {
        world.chronicle.tell("harness", What::Asset { volume });
    }
    observe::tell_all(world).await?;
    world.tell_sizes().await
}

/// Where the files of a run go.
fn place(plan: &Plan, setting: &Setting, keep: Option<&Path>) -> Result<PathBuf> {
    let temporary = || env::temp_dir().join(format!("kube-provisioner-chaos-{}", process::id()));
    let name = match &setting.control {
        Some(control) if setting.bug.is_some() => format!("with-{control}"),
        Some(control) => format!("without-{control}"),
        None => plan.scenario.name().to_owned(),
    };
    let directory = keep.map_or_else(temporary, Path::to_owned).join(format!("{name}-{}", plan.seed));
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory)
}

/// Writes the history, and with it the logs if something was violated.
fn write(world: &World<'_>, history: &mut [Entry], directory: &Path, violated: bool) -> Result<()> {
    history::write(&directory.join("history.jsonl"), history)?;
    if violated { collect::keep_files(world, directory) } else { Ok(()) }
}

/// Other runs on the same control plane see volumes and nodes, too.
async fn clean_up(world: &World<'_>) -> Result<()> {
    for volume in world.stage.scope.volumes().await? {
        let name = kube::ResourceExt::name_any(&volume);
        world.stage.scope.all_volumes().delete(&name, &Default::default()).await?;
    }
    odd::clean_up(world).await
}
