//! What tracing costs: our own CPU per volume and claims per second without it, with a collector that takes and
//! forgets everything, and with one that never answers. What is made of the measurements is in `ratio`, the
//! collectors are in `sink`.
//!
//! Three replicas stay up, one for each collector, and have claims in turn: what the machine does beside this
//! hits all three alike, and each round is compared with itself only.

mod ratio;
mod sink;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use rustix::process::Signal;
use serde::Serialize;

use self::{
    ratio::{Ratio, Verdict, median},
    sink::{Collector, Sink},
};
use super::cast::{Candidate, Cast, Kind, Programs, Timing};
use crate::{
    cluster::{self, Scope},
    control_plane::{ControlPlane, Options},
    procfs,
    product::Profile,
    scrape::Scrape,
    wait,
};

/// Requests of this process at once.
const AT_ONCE: usize = 32;
/// For all claims of a turn.
const DEADLINE: Duration = Duration::from_secs(300);
/// What the last spans of a turn cost belongs to it: they are sent a second after they ended. All have it alike.
const SETTLES: Duration = Duration::from_millis(1_500);
/// What tracing may cost of our own CPU.
const PROMISE: f64 = 1.10;

/// Measure the CPU per volume without traces, with a discarding collector, and with one that hangs.
#[derive(Clone, Debug, Args)]
pub struct TracingCost {
    /// Claims of each turn, made and deleted
    #[arg(long, default_value_t = 200)]
    claims: usize,
    /// How often each has its turn
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Measure this program [default: a release build of this checkout]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// One turn.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    round: usize,
    collector: Collector,
    /// Of the replica, per volume made and deleted.
    cpu_ms_per_volume: f64,
    /// Until all were bound.
    bound_per_second: f64,
    spans_exported: f64,
    resident_mib: f64,
}

/// What came out for one collector.
#[derive(Debug, Serialize)]
struct Summary {
    collector: Collector,
    cpu_ms_per_volume: f64,
    bound_per_second: f64,
    spans_per_volume: f64,
    resident_mib: f64,
    /// CPU in comparison with the same round's turn without tracing.
    cpu_ratio: Option<Ratio>,
}

/// The last line of the output.
#[derive(Debug, Serialize)]
struct Outcome {
    verdict: Verdict,
    promised: f64,
    claims: usize,
    rounds: usize,
    collectors: Vec<Summary>,
}

/// Runs the scenario and prints each turn, then what came out, as lines of JSON.
///
/// # Errors
/// If a claim is not bound, or a volume not deleted, in time, or if tracing costs more than promised.
pub async fn run(options: &TracingCost) -> Result<()> {
    let programs = match &options.program {
        Some(program) => Programs::given(program.clone()),
        None => Programs::only_ours(Profile::Release).await?,
    };
    let plane = Options { controller_manager_qps: Some(2_000), scheduler: false, ..Options::default() };
    let plane = ControlPlane::start(plane).await?;
    let mut contestants = Vec::new();
    for collector in Collector::ALL {
        contestants.push(Contestant::start(&plane, &programs, collector).await?);
    }
    let mut all = Vec::new();
    // Round 0 opens all connections and warms the control plane up.
    for round in 0..=options.rounds {
        // Each comes first, second and last in turn: the cluster fills up.
        for contestant in contestants.iter().cycle().skip(round % 3).take(3) {
            let measured = contestant.turn(round, options.claims).await?;
            eprintln!("{}", serde_json::to_string(&measured)?);
            all.extend((round > 0).then_some(measured));
        }
    }
    for contestant in contestants {
        contestant.candidate.end(Signal::TERM).await?;
    }
    conclude(options, &all)
}

fn conclude(options: &TracingCost, all: &[Measured]) -> Result<()> {
    let collectors: Vec<Summary> =
        Collector::ALL.into_iter().map(|collector| summary(collector, all, options.claims)).collect();
    let verdicts = collectors
        .iter()
        .filter_map(|summary| summary.cpu_ratio.as_ref())
        .map(|ratio| ratio.verdict(PROMISE));
    let verdict = verdicts.max().unwrap_or(Verdict::Undecided);
    let outcome =
        Outcome { verdict, promised: PROMISE, claims: options.claims, rounds: options.rounds, collectors };
    println!("{}", serde_json::to_string(&outcome)?);
    ensure!(verdict != Verdict::Missed, "tracing costs more than promised");
    if verdict == Verdict::Undecided {
        eprintln!(
            "undecided: the promise lies within what differs between rounds; more rounds, or a quieter machine"
        );
    }
    Ok(())
}

fn summary(collector: Collector, all: &[Measured], claims: usize) -> Summary {
    let of = |collector| all.iter().filter(move |measured| measured.collector == collector);
    let middle = |number: fn(&Measured) -> f64| median(of(collector).map(number));
    let pairs = of(collector).zip(of(Collector::None));
    let ratios = pairs.map(|(with, without)| with.cpu_ms_per_volume / without.cpu_ms_per_volume);
    Summary {
        collector,
        cpu_ms_per_volume: middle(|measured| measured.cpu_ms_per_volume),
        bound_per_second: middle(|measured| measured.bound_per_second),
        spans_per_volume: middle(|measured| measured.spans_exported) / claims as f64,
        resident_mib: middle(|measured| measured.resident_mib),
        cpu_ratio: (collector != Collector::None).then(|| Ratio::of(ratios)),
    }
}

/// A replica with its collector.
struct Contestant<'a> {
    cast: Cast<'a>,
    candidate: Candidate,
    collector: Collector,
    _sink: Option<Sink>,
}

impl<'a> Contestant<'a> {
    async fn start(plane: &'a ControlPlane, programs: &Programs, collector: Collector) -> Result<Self> {
        let cast = Cast::new(Scope::new(plane).await?, programs.clone()).await?;
        let sink = Sink::start(collector).await?;
        let env: Vec<_> =
            sink.iter().map(|sink| ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), sink.url.clone())).collect();
        let candidate = cast.start("r", Kind::Ours, Timing::DEFAULT, &env).await?;
        candidate.wait_contesting().await?;
        Ok(Self { cast, candidate, collector, _sink: sink })
    }

    async fn turn(&self, round: usize, claims: usize) -> Result<Measured> {
        let names: Vec<String> = (0..claims).map(|n| format!("c{round}-{n}")).collect();
        let replica = &self.candidate.replica;
        let (cpu, spans) = (procfs::cpu_time(replica.pid())?, self.exported().await?);
        let began = Instant::now();
        self.make(&names).await?;
        let bound_per_second = claims as f64 / began.elapsed().as_secs_f64();
        self.remove(&names).await?;
        tokio::time::sleep(SETTLES).await;
        let cpu = procfs::cpu_time(replica.pid())?.saturating_sub(cpu);
        Ok(Measured {
            round,
            collector: self.collector,
            cpu_ms_per_volume: cpu.as_secs_f64() * 1_000.0 / claims as f64,
            bound_per_second,
            spans_exported: self.exported().await? - spans,
            resident_mib: replica.resident_bytes()? as f64 / f64::from(1 << 20),
        })
    }

    /// Makes claims and waits until all are bound.
    async fn make(&self, names: &[String]) -> Result<()> {
        let Cast { scope, class, .. } = &self.cast;
        let created = stream::iter(names).map(|name| scope.create_claim(name, class, |_| ()));
        created.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        for name in names {
            scope.wait_bound(name, DEADLINE).await?;
        }
        Ok(())
    }

    /// Deletes claims and waits until their volumes are gone.
    async fn remove(&self, names: &[String]) -> Result<()> {
        let scope = &self.cast.scope;
        let (volumes, claims) = (scope.volumes().await?, scope.claims());
        let deleted = stream::iter(names).map(|name| cluster::delete(&claims, name));
        deleted.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        for volume in volumes {
            wait::until_gone(&scope.all_volumes(), &volume.name_any(), DEADLINE).await?;
        }
        Ok(())
    }

    async fn exported(&self) -> Result<f64> {
        Ok(Scrape::of(&self.candidate.replica).await?.sum("kube_provisioner_spans_exported_total"))
    }
}
