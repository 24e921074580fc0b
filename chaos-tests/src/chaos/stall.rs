//! An API server that stands still, or is killed: the replicas live on, the leader ends in time, work resumes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use jiff::Timestamp;

use super::{
    audit,
    cast::{Candidate, Cast, DEADLINE, Kind, Programs, Timing},
    history,
    load::{Load, Sightings},
    terms,
};
use crate::{
    binaries::Program,
    cluster::Scope,
    control_plane::{ControlPlane, Options},
    product::Profile,
};

/// What a busy machine may add until a lapsed leader has said so.
const SLOWNESS: Duration = Duration::from_millis(500);

/// Stop the API server for a while, then kill and restart it: nobody ends, work resumes.
#[derive(Clone, Debug, Args)]
pub struct Stall {
    /// For how many seconds it stands still, one time after the other
    #[arg(long, value_delimiter = ',', default_value = "3,8,20")]
    seconds: Vec<u64>,
}

/// Runs the scenario.
///
/// # Errors
/// If something of what must hold does not.
pub async fn run(options: &Stall) -> Result<()> {
    let stalls: Vec<Duration> = options.seconds.iter().copied().map(Duration::from_secs).collect();
    check(Programs::build(Profile::Release).await?, &stalls).await
}

/// Stops the API server of a control plane of its own for each of `stalls`, then kills and restarts it.
///
/// # Errors
/// If something of what must hold does not.
pub async fn check(programs: Programs, stalls: &[Duration]) -> Result<()> {
    let options = Options {
        controller_manager_qps: Some(500),
        audit_log: true,
        scheduler: false,
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await?;
    let cast = Cast::new(Scope::new(&plane).await?, programs).await?;
    let sightings = Sightings::follow(&cast);
    let _load = Load::start(&cast, Duration::from_millis(100));
    let asked = [(history::ASKED.0.to_owned(), history::ASKED.1.to_owned())];
    let first = cast.start("first", Kind::Ours, Timing::FAST, &asked).await?;
    let second = cast.start("second", Kind::Ours, Timing::FAST, &asked).await?;
    let both = [&first, &second];
    sightings.first(Instant::now(), DEADLINE, |_| true).await?;
    for stall in stalls {
        let stopped = Timestamp::now();
        plane.pause(Program::KubeApiserver)?;
        tokio::time::sleep(*stall).await;
        plane.resume(Program::KubeApiserver)?;
        check_resumed(&sightings, &both, &format!("a stall of {stall:?}")).await?;
        check_ended(&both, stopped, *stall)?;
    }
    plane.restart(Program::KubeApiserver).await?;
    check_resumed(&sightings, &both, "a kill and restart").await?;
    let accounts = both.map(|candidate| cast.account(candidate.name()));
    audit::check_one_writer(plane.audit_log().context("there is no audit log")?, &accounts)?;
    ensure!(history::check(&both)? > 0, "the replicas have no history");
    terms::check_sequence(&terms::of(&both)?)
}

async fn check_resumed(sightings: &Sightings, both: &[&Candidate], what: &str) -> Result<()> {
    let back = Instant::now();
    let sighting = sightings.first(back, DEADLINE, |_| true).await;
    let sighting = sighting.with_context(|| format!("nothing is made after {what}"))?;
    eprintln!("after {what}: a volume {:.3} s later", (sighting.at - back).as_secs_f64());
    for candidate in both {
        let status = candidate.replica.exit_status();
        ensure!(status.is_none(), "{} ended after {what}: {status:?}", candidate.name());
    }
    Ok(())
}

/// A leader that could not renew was none when its hold was over.
fn check_ended(both: &[&Candidate], stopped: Timestamp, stall: Duration) -> Result<()> {
    let latest = stopped.checked_add(Timing::FAST.hold + SLOWNESS)?;
    let led_on = |term: &terms::Term| term.begun < stopped && term.ended.is_none_or(|ended| ended > latest);
    let late = terms::of(both)?.into_iter().find(|term| stall > Timing::FAST.hold + SLOWNESS && led_on(term));
    ensure!(late.is_none(), "a leader led on beyond its hold: {late:?}");
    Ok(())
}
