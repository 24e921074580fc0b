//! A replica whose wall clock is wrong, by hours and days, at its start and while it runs: nobody takes the Lease
//! too early, nobody is locked out.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::process::Signal;

use super::{
    audit,
    cast::{Candidate, Cast, DEADLINE, Kind, Programs, Timing},
    load::{Load, Sightings},
};
use crate::{
    cluster::Scope,
    control_plane::{ControlPlane, Options},
    nemesis::clock::Clock,
    product::Profile,
};

/// By how many seconds the clock is wrong, one after the other.
pub const OFFSETS: [i64; 4] = [3_600, -3_600, 86_400, -86_400];

/// A standby has seen the last renewal at most so much earlier than it should have been (1.5 renewals).
const EARLIEST: Duration = Duration::from_millis(3_000 - 1_125);
/// What a busy machine may add to a takeover.
const LATEST: Duration = Duration::from_millis(3_000 + 5_000);

/// Put the wall clock of one replica wrong by hours and days: no double leader, no lock-out.
#[derive(Clone, Copy, Debug, Args)]
pub struct Clocks {}

/// Runs the scenario.
///
/// # Errors
/// If libfaketime is not installed, or something of what must hold does not.
pub async fn run(_: Clocks) -> Result<()> {
    let programs = Programs::build(Profile::Release).await?;
    let options = Options {
        controller_manager_qps: Some(500),
        audit_log: true,
        scheduler: false,
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await?;
    check(Scope::new(&plane).await?, programs, &OFFSETS).await
}

/// For each offset: steps the clock of a leader, kills it, lets it start with that clock, steps it back and forth as
/// a standby, and lets it take over.
///
/// # Errors
/// If the Lease is taken too early or too late, or by two.
pub async fn check(scope: Scope<'_>, programs: Programs, offsets: &[i64]) -> Result<()> {
    let plane = scope.plane();
    let cast = Cast::new(scope, programs).await?;
    let clock = Clock::wall(&cast.scope.directory().join("clock"))?;
    let sightings = Sightings::follow(&cast);
    let _load = Load::start(&cast, Duration::from_millis(100));
    let mut wrong = cast.start("wrong", Kind::Ours, Timing::FAST, &clock.env()).await?;
    sightings.first_of(wrong.name(), Instant::now(), DEADLINE).await?;
    let mut right = cast.start("right", Kind::Ours, Timing::FAST, &[]).await?;
    right.wait_contesting().await?;
    for &offset in offsets {
        clock.set(offset, 1.0)?;
        stays(&cast, &sightings, &wrong).await?;
        takes_over(&sightings, &wrong, &right).await.with_context(|| format!("from a clock {offset:+} s"))?;
        wrong.restart().await?;
        check_clock(&wrong, offset)?;
        clock.set(0, 1.0)?;
        stays(&cast, &sightings, &right).await?;
        clock.set(offset, 1.0)?;
        stays(&cast, &sightings, &right).await?;
        takes_over(&sightings, &right, &wrong).await.with_context(|| format!("by a clock {offset:+} s"))?;
        right.restart().await?;
    }
    let accounts = [wrong.name(), right.name()].map(|name| cast.account(name));
    audit::check_one_writer(plane.audit_log().context("there is no audit log")?, &accounts).map(drop)
}

/// The leader stays the leader for two renewals.
async fn stays(cast: &Cast<'_>, sightings: &Sightings, leader: &Candidate) -> Result<()> {
    let since = Instant::now();
    for _ in 0..2 {
        cast.wait_renewed().await?;
    }
    sightings.first_of(leader.name(), Instant::now(), DEADLINE).await?;
    let other = sightings.all().into_iter().find(|seen| seen.at > since && seen.maker != leader.name());
    ensure!(other.is_none(), "the clock's step cost {} the leadership", leader.name());
    Ok(())
}

async fn takes_over(sightings: &Sightings, leader: &Candidate, standby: &Candidate) -> Result<()> {
    let killed = Instant::now();
    leader.end(Signal::KILL).await?;
    let taken = sightings.first_of(standby.name(), killed, DEADLINE).await?.at - killed;
    ensure!(taken >= EARLIEST, "{} took over too early, after {taken:?}", standby.name());
    ensure!(taken <= LATEST, "{} took over too late, after {taken:?}", standby.name());
    eprintln!("{} took over from {} after {:.3} s", standby.name(), leader.name(), taken.as_secs_f64());
    Ok(())
}

/// The scenario is none if the clock is right after all.
fn check_clock(wrong: &Candidate, offset: i64) -> Result<()> {
    let log = wrong.replica.log_text()?;
    let last = log.lines().last().context("the log is empty")?;
    let line: serde_json::Value = serde_json::from_str(last).context("the log's last line is not JSON")?;
    let told: jiff::Timestamp = line.get("timestamp").and_then(|time| time.as_str()).unwrap_or("").parse()?;
    let ahead = told.duration_since(jiff::Timestamp::now()).as_secs();
    ensure!((ahead - offset).abs() < 60, "the clock is {ahead} s ahead, not {offset} s");
    Ok(())
}
