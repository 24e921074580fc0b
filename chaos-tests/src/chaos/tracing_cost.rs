//! What tracing costs: our own CPU per volume and claims per second without it, with a collector that takes and
//! forgets everything, and with one that never answers. One after the other on one control plane, in rounds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use rustix::process::Signal;
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::cast::{Candidate, Cast, Kind, Programs, Timing};
use crate::{
    cluster::{self, Scope},
    control_plane::{ControlPlane, Options},
    procfs,
    product::Profile,
    wait,
};

/// Requests of this process at once.
const AT_ONCE: usize = 32;
/// For all claims of a round.
const DEADLINE: Duration = Duration::from_secs(300);

/// Measure the CPU per volume without traces, with a discarding collector, and with one that hangs.
#[derive(Clone, Debug, Args)]
pub struct TracingCost {
    /// Claims of each measurement, made and deleted
    #[arg(long, default_value_t = 500)]
    claims: usize,
    /// How often each is measured
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Where traces go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Collector {
    /// Tracing is off.
    None,
    /// It takes everything at once, and forgets it.
    Discards,
    /// It accepts connections and never answers.
    Hangs,
}

impl Collector {
    const ALL: [Self; 3] = [Self::None, Self::Discards, Self::Hangs];
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    collector: Collector,
    /// Of the replica, per volume made and deleted.
    cpu_ms_per_volume: f64,
    /// Until all were bound.
    bound_per_second: f64,
    spans_exported: f64,
    resident_mib: f64,
}

/// Runs the scenario and prints each measurement, then the medians, as lines of JSON.
///
/// # Errors
/// If a claim is not bound, or a volume not deleted, in time.
pub async fn run(options: &TracingCost) -> Result<()> {
    let programs = Programs::only_ours(Profile::Release).await?;
    let plane = Options { controller_manager_qps: Some(2_000), scheduler: false, ..Options::default() };
    let plane = ControlPlane::start(plane).await?;
    let mut all = Vec::new();
    for round in 0..=options.rounds {
        // Each comes first, second and last in turn: the cluster fills up.
        for collector in Collector::ALL.into_iter().cycle().skip(round % 3).take(3) {
            let measured = measure(&plane, &programs, collector, options.claims).await?;
            // The first round warms the control plane up.
            if round > 0 {
                println!("{}", serde_json::to_string(&measured)?);
                all.push(measured);
            }
        }
    }
    for collector in Collector::ALL {
        let of = |number: fn(&Measured) -> f64| {
            median(all.iter().filter(|measured| measured.collector == collector).map(number))
        };
        let (cpu, bound) =
            (of(|measured| measured.cpu_ms_per_volume), of(|measured| measured.bound_per_second));
        println!("median {collector:?}: {cpu:.2} ms of CPU per volume, {bound:.0} claims bound/s");
    }
    Ok(())
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

async fn measure(
    plane: &ControlPlane,
    programs: &Programs,
    collector: Collector,
    claims: usize,
) -> Result<Measured> {
    let cast = Cast::new(Scope::new(plane).await?, programs.clone()).await?;
    let sink = Sink::start(collector).await?;
    let env: Vec<_> =
        sink.iter().map(|sink| ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), sink.url.clone())).collect();
    let candidate = cast.start("r", Kind::Ours, Timing::DEFAULT, &env).await?;
    candidate.wait_contesting().await?;
    // One volume before the clock runs: then it leads, and all its connections are there.
    let names = |count: usize| (0..count).map(|n| format!("c{n}")).collect::<Vec<_>>();
    make(&cast, &["first".to_owned()]).await?;
    let before = procfs::cpu_time(candidate.replica.pid())?;
    let began = Instant::now();
    let names = names(claims);
    make(&cast, &names).await?;
    let bound_per_second = claims as f64 / began.elapsed().as_secs_f64();
    remove(&cast, &names).await?;
    let spans_exported = metric(&candidate, "kube_provisioner_spans_exported_total").await?;
    let cpu = procfs::cpu_time(candidate.replica.pid())?.saturating_sub(before);
    let resident_mib = candidate.replica.resident_bytes()? as f64 / f64::from(1 << 20);
    candidate.end(Signal::TERM).await?;
    let cpu_ms_per_volume = cpu.as_secs_f64() * 1_000.0 / claims as f64;
    Ok(Measured { collector, cpu_ms_per_volume, bound_per_second, spans_exported, resident_mib })
}

/// Makes claims and waits until all are bound.
async fn make(cast: &Cast<'_>, names: &[String]) -> Result<()> {
    let created = stream::iter(names).map(|name| cast.scope.create_claim(name, &cast.class, |_| ()));
    created.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    for name in names {
        cast.scope.wait_bound(name, DEADLINE).await?;
    }
    Ok(())
}

/// Deletes claims and waits until their volumes are gone.
async fn remove(cast: &Cast<'_>, names: &[String]) -> Result<()> {
    let volumes = cast.scope.volumes().await?;
    let claims = cast.scope.claims();
    let deleted = stream::iter(names).map(|name| cluster::delete(&claims, name));
    deleted.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    let of_these = |claim: Option<String>| claim.is_some_and(|claim| names.contains(&claim));
    for volume in volumes {
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if of_these(claim.and_then(|claim| claim.name.clone())) {
            wait::until_gone(&cast.scope.all_volumes(), &volume.name_any(), DEADLINE).await?;
        }
    }
    Ok(())
}

async fn metric(candidate: &Candidate, name: &str) -> Result<f64> {
    let metrics = candidate.replica.get("/metrics").await?.body;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.with_context(|| format!("there is no metric {name}"))
}

/// A collector in this process; it ends when it is dropped.
struct Sink {
    url: String,
    task: JoinHandle<()>,
}

impl Sink {
    async fn start(collector: Collector) -> Result<Option<Self>> {
        if collector == Collector::None {
            return Ok(None);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
        let url = format!("http://{}", listener.local_addr()?);
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                match collector {
                    Collector::Discards => drop(tokio::spawn(discard(stream))),
                    Collector::Hangs | Collector::None => held.push(stream),
                }
            }
        });
        Ok(Some(Self { url, task }))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers each request of a connection with 200.
async fn discard(stream: TcpStream) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            ensure!(stream.read_line(&mut line).await? > 0, "the connection has ended");
            if line == "\r\n" {
                break;
            }
            if let Some((_, value)) =
                line.split_once(':').filter(|(key, _)| key.eq_ignore_ascii_case("content-length"))
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_discarding_collector_answers_every_request_of_a_connection() {
        let sink = Sink::start(Collector::Discards).await.unwrap().unwrap();
        let mut stream = TcpStream::connect(sink.url.strip_prefix("http://").unwrap()).await.unwrap();
        for _ in 0..2 {
            stream.write_all(b"POST /v1/traces HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody").await.unwrap();
            let mut answer = [0; 38];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    }

    #[test]
    fn the_median_is_one_of_the_numbers() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
    }
}
