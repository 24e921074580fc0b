//! How long claims wait when a leader ends: from the signal to the first volume of the successor.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use rustix::process::Signal;
use serde::Serialize;

use super::{
    cast::{Candidate, Cast, DEADLINE, Kind, Programs, Timing},
    load::{Load, Sightings},
    numbers::Series,
};
use crate::{
    cluster::Scope,
    control_plane::{ControlPlane, Options},
    product::Profile,
};

/// A claim each. A time cannot be measured finer where no claim waited.
const CLAIM_EVERY: Duration = Duration::from_millis(50);

/// Each round of the slow ones takes 17 s.
const ROUNDS_OF_THE_GO_LIBRARY: usize = 5;

/// Measure the time from the end of a leader to the first volume of its successor.
#[derive(Clone, Debug, Args)]
pub struct Failover {
    /// Rounds of each case [default: 20, of the Go library 5]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,

    /// Only these cases, comma-separated
    #[arg(long, value_delimiter = ',')]
    only: Vec<Case>,

    /// One line of JSON with all times on standard output
    #[arg(long)]
    json: bool,
}

/// Who ends how, with which durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// SIGKILL, fast profile.
    KillFast,
    /// SIGKILL, default profile.
    KillDefault,
    /// SIGTERM, fast profile.
    TermFast,
    /// SIGTERM, default profile.
    TermDefault,
    /// SIGKILL of the Go library with its defaults.
    GoKill,
    /// SIGTERM of the Go library with its defaults.
    GoTerm,
}

/// The longest that a case may take, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Target {
    #[serde(skip_serializing_if = "Option::is_none")]
    p50: Option<f64>,
    max: f64,
}

impl Case {
    const fn kind(self) -> Kind {
        match self {
            Self::GoKill | Self::GoTerm => Kind::GoPeer,
            _ => Kind::Ours,
        }
    }

    const fn timing(self) -> Timing {
        match self {
            Self::KillFast | Self::TermFast => Timing::FAST,
            _ => Timing::DEFAULT,
        }
    }

    const fn signal(self) -> Signal {
        match self {
            Self::KillFast | Self::KillDefault | Self::GoKill => Signal::KILL,
            _ => Signal::TERM,
        }
    }

    const fn target(self) -> Option<Target> {
        match self {
            Self::KillFast => Some(Target { p50: Some(3.1), max: 3.5 }),
            Self::KillDefault => Some(Target { p50: None, max: 15.2 }),
            Self::TermFast | Self::TermDefault => Some(Target { p50: Some(0.25), max: 0.5 }),
            Self::GoKill | Self::GoTerm => None,
        }
    }

    fn rounds(self, asked: Option<u16>) -> usize {
        let usual = if self.kind() == Kind::GoPeer { ROUNDS_OF_THE_GO_LIBRARY } else { 20 };
        asked.map_or(usual, usize::from)
    }
}

/// The result of a case. Scripts read it: names stay.
#[derive(Debug, Serialize)]
struct Measured {
    program: &'static str,
    signal: &'static str,
    lease_seconds: f64,
    rounds: usize,
    #[serde(flatten)]
    series: Series,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
    met: bool,
}

impl Measured {
    fn new(case: Case, times: &[Duration]) -> Self {
        let series = Series::new(times);
        let target = case.target();
        let met = target.is_none_or(|target| {
            series.max <= target.max && target.p50.is_none_or(|limit| series.p50 <= limit)
        });
        Self {
            program: case.kind().name(),
            signal: if case.signal() == Signal::KILL { "SIGKILL" } else { "SIGTERM" },
            lease_seconds: case.timing().lease.as_secs_f64(),
            rounds: times.len(),
            series,
            target,
            met,
        }
    }

    fn line(&self) -> String {
        let Series { p50, p99, max, .. } = self.series;
        let target = match self.target {
            None => String::new(),
            Some(Target { p50: None, max }) => format!("max {max}"),
            Some(Target { p50: Some(p50), max }) => format!("p50 {p50}, max {max}"),
        };
        format!(
            "{:<17} {:<8} {:>5} s {:>6}  {p50:>7.3} {p99:>7.3} {max:>7.3}  {target:<20} {}",
            self.program,
            self.signal,
            self.lease_seconds,
            self.rounds,
            if self.met { "" } else { "MISSED" }
        )
    }
}

/// Measures all cases that were asked for.
///
/// # Errors
/// If something does not work, or takes longer than it may.
pub async fn run(options: &Failover) -> Result<()> {
    let programs = Programs::build(Profile::Release).await?;
    // Its own limit would bind 4 claims a second and fall behind the load.
    let plane = Options { controller_manager_qps: Some(500), scheduler: false, ..Options::default() };
    let plane = ControlPlane::start(plane).await?;
    let mut all = Vec::new();
    for case in Case::value_variants() {
        if options.only.is_empty() || options.only.contains(case) {
            let times = measure(&plane, &programs, *case, case.rounds(options.rounds)).await;
            let times = times.with_context(|| format!("{case:?} failed"))?;
            all.push(Measured::new(*case, &times));
        }
    }
    report(&all, options.json)?;
    ensure!(all.iter().all(|measured| measured.met), "a failover takes longer than it may");
    Ok(())
}

fn report(all: &[Measured], json: bool) -> Result<()> {
    eprintln!("\nseconds from the signal to the first volume of the successor, as seen by a watch");
    eprintln!("program           signal     lease rounds      p50     p99     max  target");
    all.iter().for_each(|measured| eprintln!("{}", measured.line()));
    if json {
        let line = serde_json::json!({
            "scenario": "failover",
            "measured": "monotonic time from the signal until a watch shows the first volume of the successor",
            "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "claims_per_second": 1.0 / CLAIM_EVERY.as_secs_f64(),
            "cases": all,
        });
        writeln!(io::stdout(), "{line}").context("cannot write the result")?;
    }
    Ok(())
}

async fn measure(
    plane: &ControlPlane,
    programs: &Programs,
    case: Case,
    rounds: usize,
) -> Result<Vec<Duration>> {
    let cast = Cast::new(Scope::new(plane).await?, programs.clone()).await?;
    let sightings = Sightings::follow(&cast);
    let _load = Load::start(&cast, CLAIM_EVERY);
    let begun = Instant::now();
    let mut leader = cast.start("first", case.kind(), case.timing(), &[]).await?;
    sightings.first_of(leader.name(), begun, DEADLINE).await?;
    let mut standby = cast.start("second", case.kind(), case.timing(), &[]).await?;
    standby.wait_contesting().await?;
    let mut times = Vec::new();
    for round in 0..rounds {
        sightings.first_of(leader.name(), Instant::now(), DEADLINE).await?;
        // All phases alike: how long a lease still runs depends on when it was renewed last.
        cast.wait_renewed().await?;
        tokio::time::sleep(case.timing().renew.mul_f64((round as f64 + 0.5) / rounds as f64)).await;
        let time = one_round(&sightings, &leader, &standby, case).await?;
        eprintln!("{case:?} {}/{rounds}: {:.3} s", round + 1, time.as_secs_f64());
        times.push(time);
        leader.restart().await?;
        std::mem::swap(&mut leader, &mut standby);
    }
    Ok(times)
}

async fn one_round(
    sightings: &Sightings,
    leader: &Candidate,
    standby: &Candidate,
    case: Case,
) -> Result<Duration> {
    let signalled = Instant::now();
    leader.replica.signal(case.signal())?;
    let first = sightings.first_of(standby.name(), signalled, case.timing().lease * 3 + DEADLINE).await?;
    leader.wait_end(case.signal()).await?;
    let mut after = sightings.all().into_iter().filter(|sighting| sighting.at > first.at);
    ensure!(after.all(|sighting| sighting.maker == standby.name()), "two made volumes at a time");
    Ok(first.at - signalled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_met_when_median_and_longest_are_within_its_target() {
        let met = |millis: &[u64]| {
            let times: Vec<Duration> = millis.iter().copied().map(Duration::from_millis).collect();
            Measured::new(Case::TermFast, &times).met
        };
        assert!(met(&[250, 100, 500]));
        assert!(!met(&[251, 251, 251]), "the median is too long");
        assert!(!met(&[100, 100, 501]), "the longest is too long");
    }
}
