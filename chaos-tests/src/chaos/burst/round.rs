//! One round: claims that are created together, and what that cost until all are Bound and gone again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use rustix::process::Signal;
use tokio::time::interval;

use super::sightings::Sightings;
use crate::{
    chaos::cast::{Candidate, Cast, Kind, Timing},
    cluster,
    ledger::audit::{self, Sent},
    procfs, wait,
};

/// Requests of this process at once: more would only wait for each other in the API server.
const AT_ONCE: usize = 64;
/// For all claims of a round. kube-controller-manager with its own limit binds 4 a second.
const DEADLINE: Duration = Duration::from_secs(600);
/// Events are written behind the volumes: the requests are counted once there were no more for so long.
const QUIET: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What one round came to.
#[derive(Clone, Debug)]
pub struct Round {
    /// From the request that creates a claim until a watch shows its volume, one each.
    pub to_volume: Vec<Duration>,
    /// From that request until a watch shows the claim Bound, one each.
    pub to_bound: Vec<Duration>,
    /// From the first request to the last claim being Bound.
    pub all_bound: Duration,
    /// From the first deletion to the last volume being gone.
    pub all_gone: Duration,
    /// What the provisioner asked of the API server until all were Bound and told, by verb and resource, without
    /// its Lease and its watches.
    pub requests: BTreeMap<String, usize>,
    /// The provisioner's CPU time until then.
    pub cpu: Duration,
    /// Its memory then, in bytes.
    pub resident: u64,
}

/// Runs a round of so many claims with one candidate of this kind, which is alone and leads before it begins.
///
/// # Errors
/// If not all claims are Bound, or not all volumes gone, in time.
pub async fn round(cast: &Cast<'_>, kind: Kind, claims: usize) -> Result<Round> {
    let candidate = cast.start("r", kind, Timing::DEFAULT, &[]).await?;
    candidate.wait_contesting().await?;
    let sightings = Sightings::follow(&cast.scope);
    // One volume before the clock runs: then it leads, its connections are there, and so are our watches.
    cast.scope.create_claim("first", &cast.class, |_| ()).await?;
    sightings.wait(&["first".to_owned()], DEADLINE).await?;
    quiet(cast, kind).await?;
    let (known, cpu) = (sent(cast, kind)?.len(), procfs::cpu_time(candidate.replica.pid())?);
    let names: Vec<String> = (0..claims).map(|number| format!("data-{number}")).collect();
    let begun = Instant::now();
    let created = create(cast, &names).await?;
    sightings.wait(&names, DEADLINE).await?;
    let all_bound = begun.elapsed();
    quiet(cast, kind).await?;
    let requests = counted(sent(cast, kind)?.into_iter().skip(known));
    let cpu = procfs::cpu_time(candidate.replica.pid())?.saturating_sub(cpu);
    let resident = candidate.replica.resident_bytes()?;
    let all_gone = remove(cast).await?;
    end(kind, candidate).await?;
    let since = |seen: &BTreeMap<String, Instant>| {
        created
            .iter()
            .filter_map(|(name, sent)| Some(seen.get(name)?.saturating_duration_since(*sent)))
            .collect()
    };
    let (to_volume, to_bound) = (since(&sightings.volumes()), since(&sightings.bound()));
    Ok(Round { to_volume, to_bound, all_bound, all_gone, requests, cpu, resident })
}

async fn end(kind: Kind, candidate: Candidate) -> Result<()> {
    candidate.end(if kind == Kind::Ours { Signal::TERM } else { Signal::KILL }).await
}

/// Creates the claims, and says when each was asked for.
async fn create(cast: &Cast<'_>, names: &[String]) -> Result<Vec<(String, Instant)>> {
    let create = |name: &String| {
        let name = name.clone();
        async move {
            let at = Instant::now();
            cast.scope.create_claim(&name, &cast.class, |_| ()).await?;
            anyhow::Ok((name, at))
        }
    };
    stream::iter(names).map(create).buffer_unordered(AT_ONCE).try_collect().await
}

/// Deletes all claims and waits until their volumes are gone.
async fn remove(cast: &Cast<'_>) -> Result<Duration> {
    let (claims, volumes) = (cast.scope.claims(), cast.scope.volumes().await?);
    let names: Vec<String> =
        claims.list(&Default::default()).await?.iter().map(ResourceExt::name_any).collect();
    let begun = Instant::now();
    let delete = stream::iter(&names).map(|name| cluster::delete(&claims, name));
    delete.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    for volume in volumes {
        wait::until_gone(&cast.scope.all_volumes(), &volume.name_any(), DEADLINE).await?;
    }
    Ok(begun.elapsed())
}

/// Waits until the candidate has asked nothing more for a while.
async fn quiet(cast: &Cast<'_>, kind: Kind) -> Result<()> {
    let mut ticks = interval(LOOK_EVERY);
    let (started, mut since, mut count) = (Instant::now(), Instant::now(), 0);
    while since.elapsed() < QUIET {
        ensure!(started.elapsed() < DEADLINE, "{} does not come to rest", kind.name());
        ticks.tick().await;
        let now = sent(cast, kind)?.len();
        if std::mem::replace(&mut count, now) != now {
            since = Instant::now();
        }
    }
    Ok(())
}

/// What the candidate has asked so far.
fn sent(cast: &Cast<'_>, kind: Kind) -> Result<Vec<Sent>> {
    let log = cast.scope.plane().audit_log().context("the control plane keeps no audit log")?;
    let mut sent = match kind {
        Kind::Ours => audit::requests_of(log, cast.scope.namespace())?,
        // It asks as an administrator, as this process does.
        Kind::GoPeer => audit::requests_with(log, "go-peer/")?,
    };
    // The Lease is renewed for its own sake, and a watch belongs to no claim.
    sent.retain(|request| request.resource != "leases" && request.verb != "watch");
    Ok(sent)
}

fn counted(sent: impl Iterator<Item = Sent>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    sent.for_each(|request| {
        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1
    });
    counts
}
