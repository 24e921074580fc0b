//! Many claims at once: how long each waits, what they cost, and the same of the Go library beside it.

mod round;
mod sightings;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

pub use self::round::{Round, round};
use super::{
    cast::{Cast, Kind, Programs},
    numbers::{Series, rounded},
};
use crate::{
    cluster::Scope,
    control_plane::{ControlPlane, Options},
};

/// One volume and one event.
pub const REQUESTS_PER_CLAIM: f64 = 2.0;

/// Measure how long claims wait that come all at once, and what each costs; the Go library in turn.
#[derive(Clone, Debug, Args)]
pub struct Burst {
    /// Claims of each round
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    claims: u32,

    /// Rounds of each program, in turn; one more goes before, which warms the control plane up
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Requests per second of kube-controller-manager; with its own 20 it binds 4 claims per second
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    kcm_qps: u32,

    /// Without the Go library
    #[arg(long)]
    only_ours: bool,

    /// One line of JSON with all times on standard output
    #[arg(long)]
    json: bool,
}

/// The result of one program. Scripts read it: names stay.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    program: &'static str,
    rounds: usize,
    /// From the request that creates a claim until its volume is seen.
    to_volume: Series,
    /// From that request until the claim is seen Bound.
    to_bound: Series,
    bound_per_second: f64,
    deleted_per_second: f64,
    requests_per_claim: f64,
    /// Of all rounds together.
    requests: BTreeMap<String, usize>,
    cpu_ms_per_claim: f64,
    /// The largest.
    resident_mib: f64,
}

impl Measured {
    fn new(kind: Kind, claims: usize, rounds: &[Round]) -> Self {
        let total = (claims * rounds.len()) as f64;
        let all = |times: fn(&Round) -> &Vec<Duration>| {
            Series::new(&rounds.iter().flat_map(times).copied().collect::<Vec<_>>())
        };
        let seconds = |time: fn(&Round) -> Duration| rounds.iter().map(time).sum::<Duration>().as_secs_f64();
        let mut requests = BTreeMap::<String, usize>::new();
        for (request, count) in rounds.iter().flat_map(|round| &round.requests) {
            *requests.entry(request.clone()).or_default() += count;
        }
        Self {
            program: kind.name(),
            rounds: rounds.len(),
            to_volume: all(|round| &round.to_volume),
            to_bound: all(|round| &round.to_bound),
            bound_per_second: rounded(total / seconds(|round| round.all_bound)),
            deleted_per_second: rounded(total / seconds(|round| round.all_gone)),
            requests_per_claim: rounded(requests.values().sum::<usize>() as f64 / total),
            requests,
            cpu_ms_per_claim: rounded(seconds(|round| round.cpu) * 1_000.0 / total),
            resident_mib: rounded(
                rounds.iter().map(|round| round.resident).max().unwrap_or_default() as f64
                    / f64::from(1 << 20),
            ),
        }
    }

    fn line(&self) -> String {
        let times = |series: &Series| format!("{:>7.3} {:>7.3} {:>7.3}", series.p50, series.p99, series.max);
        format!(
            "{:<17} {:>3}  {}  {}  {:>7.1} {:>7.1}  {:>8.2} {:>7.2} {:>6.1}",
            self.program,
            self.rounds,
            times(&self.to_volume),
            times(&self.to_bound),
            self.bound_per_second,
            self.deleted_per_second,
            self.requests_per_claim,
            self.cpu_ms_per_claim,
            self.resident_mib,
        )
    }
}

/// Runs the scenario.
///
/// # Errors
/// If a claim is not Bound in time, or ours asks more of the API server than it may.
pub async fn run(options: &Burst) -> Result<()> {
    let (kinds, programs) = Programs::side_by_side(options.only_ours).await?;
    let plane = ControlPlane::start(Options {
        controller_manager_qps: Some(options.kcm_qps),
        scheduler: false,
        audit_log: true,
        ..Options::default()
    })
    .await?;
    let claims = usize::try_from(options.claims)?;
    let mut rounds = BTreeMap::<&str, Vec<Round>>::new();
    for number in 0..=usize::from(options.rounds) {
        // Each comes first in turn: the cluster fills up, and its history grows.
        for kind in kinds.iter().cycle().skip(number).take(kinds.len()) {
            let cast = Cast::new(Scope::new(&plane).await?, programs.clone()).await?;
            let round = round(&cast, *kind, claims).await;
            let round = round.with_context(|| format!("round {number} of {} failed", kind.name()))?;
            eprintln!(
                "{} {number}/{}: all Bound after {:.2} s",
                kind.name(),
                options.rounds,
                round.all_bound.as_secs_f64()
            );
            if number > 0 {
                rounds.entry(kind.name()).or_default().push(round);
            }
        }
    }
    let of = |kind: &Kind| Some(Measured::new(*kind, claims, rounds.get(kind.name())?));
    let all: Vec<Measured> = kinds.iter().filter_map(of).collect();
    report(options, &all)?;
    let ours = all.iter().find(|measured| measured.program == Kind::Ours.name());
    ensure!(
        ours.is_some_and(|ours| ours.requests_per_claim <= REQUESTS_PER_CLAIM),
        "a claim costs more than {REQUESTS_PER_CLAIM} requests"
    );
    Ok(())
}

fn report(options: &Burst, all: &[Measured]) -> Result<()> {
    eprintln!(
        "\nseconds from the request that creates a claim, as seen by watches; {} claims at once",
        options.claims
    );
    eprintln!(
        "                       to its volume            to being Bound          per second        requests  CPU ms memory"
    );
    eprintln!(
        "program           rounds  p50     p99     max      p50     p99     max    bound  deleted  per claim  each    MiB"
    );
    all.iter().for_each(|measured| eprintln!("{}", measured.line()));
    if options.json {
        let line = serde_json::json!({
            "scenario": "burst",
            "measured": "monotonic time from the request that creates a claim until a watch shows its volume, and it Bound",
            "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "claims": options.claims,
            "kcm_qps": options.kcm_qps,
            "programs": all,
        });
        writeln!(io::stdout(), "{line}").context("cannot write the result")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taking(seconds: u64) -> Round {
        let time = Duration::from_secs(seconds);
        Round {
            to_volume: vec![time / 2, time],
            to_bound: vec![time, time * 2],
            all_bound: time * 2,
            all_gone: time,
            requests: BTreeMap::from([("create events".to_owned(), 2), ("get nodes".to_owned(), 1)]),
            cpu: Duration::from_millis(10),
            resident: seconds << 20,
        }
    }

    #[test]
    fn rounds_are_taken_together() {
        let measured = Measured::new(Kind::Ours, 2, &[taking(1), taking(3)]);
        assert_eq!((measured.to_volume.p50, measured.to_bound.max), (1.0, 6.0));
        assert_eq!((measured.bound_per_second, measured.deleted_per_second), (0.5, 1.0));
        assert_eq!((measured.requests_per_claim, measured.requests["create events"]), (1.5, 4));
        assert_eq!((measured.cpu_ms_per_claim, measured.resident_mib), (5.0, 3.0));
    }
}
