//! A cluster that is full of other provisioners' claims and volumes: what starting in it costs a replica.

use std::{
    io::{self, Write},
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::json;

use super::{
    cast::{Candidate, Cast, DEADLINE, Kind, Programs, Timing},
    numbers::rounded,
};
use crate::{
    binaries::Program,
    cluster::{self, Scope},
    control_plane::{ControlPlane, Options},
    ledger::audit,
    procfs, wait,
};

/// Whose the crowd is.
const THEIRS: &str = "disks.example.dev";
/// Requests of this process at once.
const AT_ONCE: usize = 64;

/// Measure ready time and memory of a replica among claims and volumes of another provisioner.
#[derive(Clone, Debug, Args)]
pub struct Crowd {
    /// Claims of another provisioner, and as many volumes
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,

    /// Without the Go library
    #[arg(long)]
    only_ours: bool,

    /// One line of JSON with all numbers on standard output
    #[arg(long)]
    json: bool,
}

/// What a release build may take among 20,000 claims and as many volumes.
#[derive(Clone, Copy, Debug, Serialize)]
struct Limits {
    ready_seconds: f64,
    /// Beyond what it takes alone.
    growth_mib: f64,
    peak_mib: f64,
    /// Its own claim and volume.
    kept: f64,
}

const LIMITS: Limits = Limits { ready_seconds: 10.0, growth_mib: 20.0, peak_mib: 48.0, kept: 2.0 };

/// How one replica started. Scripts read it: names stay.
#[derive(Clone, Debug, Serialize)]
pub struct Started {
    /// The program.
    pub program: &'static str,
    /// Foreign claims in the cluster, and as many volumes.
    pub objects: u32,
    /// From its start until it is ready; of the Go library, which has no readiness, until it contests.
    pub ready_seconds: f64,
    /// From its start until it has made its first volume.
    pub first_volume_seconds: f64,
    /// At rest after that.
    pub resident_mib: f64,
    /// The most that it ever had.
    pub peak_mib: f64,
    /// Its own CPU time until then.
    pub cpu_seconds: f64,
    /// What it asked of the API server until then, without its Lease and its watches. Only of ours.
    pub requests: Option<usize>,
    /// The claims and volumes that it keeps in memory: its own. Only of ours.
    pub kept: Option<f64>,
}

/// Starts a replica alone on `plane`, lets it make one volume, and ends it. kube-controller-manager need not run.
///
/// # Errors
/// If it does not become ready, or makes no volume.
pub async fn start(plane: &ControlPlane, programs: &Programs, kind: Kind, objects: u32) -> Result<Started> {
    let cast = Cast::new(Scope::new(plane).await?, programs.clone()).await?;
    let name = "r";
    let begun = Instant::now();
    let candidate = cast.start(name, kind, Timing::FAST, &[]).await?;
    candidate.wait_contesting().await?;
    let ready_seconds = begun.elapsed().as_secs_f64();
    let claim = cast
        .scope
        .create_claim("data", &cast.class, |claim| {
            // kube-controller-manager would say whose it is.
            let key = "volume.kubernetes.io/storage-provisioner".to_owned();
            claim.annotations_mut().insert(key, cast.scope.provisioner().to_owned());
        })
        .await?;
    let volume = format!("pvc-{}", claim.uid().unwrap_or_default());
    wait::until_exists(&cast.scope.all_volumes(), &volume, DEADLINE).await?;
    let first_volume_seconds = begun.elapsed().as_secs_f64();
    let pid = candidate.replica.pid();
    let (mut requests, mut kept) = (None, None);
    if kind == Kind::Ours {
        let log = plane.audit_log().context("the control plane keeps no audit log")?;
        let mut sent = audit::requests_of(log, cast.scope.namespace())?;
        sent.retain(|request| request.resource != "leases" && request.verb != "watch");
        (requests, kept) = (Some(sent.len()), Some(kept_by(&candidate).await?));
    }
    let mib = |bytes: u64| rounded(bytes as f64 / f64::from(1 << 20));
    let started = Started {
        program: kind.name(),
        objects,
        ready_seconds: rounded(ready_seconds),
        first_volume_seconds: rounded(first_volume_seconds),
        resident_mib: mib(procfs::resident_bytes(pid)?),
        peak_mib: mib(procfs::peak_resident_bytes(pid)?),
        cpu_seconds: rounded(procfs::cpu_time(pid)?.as_secs_f64()),
        requests,
        kept,
    };
    candidate.end(if kind == Kind::Ours { Signal::TERM } else { Signal::KILL }).await?;
    Ok(started)
}

/// The cached claims and volumes, by its metrics.
async fn kept_by(candidate: &Candidate) -> Result<f64> {
    let metrics = candidate.replica.get("/metrics").await?.body;
    let lines = metrics.lines().filter(|line| line.starts_with("kube_provisioner_cache_objects{"));
    let of = |kind: &str| {
        let mut lines = lines.clone().filter(|line| line.contains(&format!("\"{kind}\"")));
        lines.next()?.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    let (claims, volumes) = (of("claims"), of("volumes"));
    Ok(claims.context("no metric of cached claims")? + volumes.context("no metric of cached volumes")?)
}

/// Where the crowd is. Stops kube-controller-manager, which would need minutes to look at all of it, and is not what
/// is measured.
///
/// # Errors
/// If the namespace cannot be made.
pub async fn place(plane: &ControlPlane) -> Result<Scope<'_>> {
    let scope = Scope::named(plane, "crowd", THEIRS).await?;
    plane.kill(Program::KubeControllerManager)?;
    Ok(scope)
}

/// Creates claims of another provisioner with these numbers, each with a volume that is reserved for it.
///
/// # Errors
/// If the API server refuses one.
pub async fn fill(place: &Scope<'_>, numbers: Range<u32>) -> Result<()> {
    let pairs = stream::iter(numbers).map(|number| pair(place, number));
    pairs.buffer_unordered(AT_ONCE).try_collect().await
}

async fn pair(scope: &Scope<'_>, number: u32) -> Result<()> {
    let (claims, volumes): (Api<PersistentVolumeClaim>, _) = (scope.claims(), scope.all_volumes());
    let claim = cluster::create(&claims, &claim(number)?).await?;
    let volume = volume(number, &claim.uid().unwrap_or_default())?;
    cluster::create(&volumes, &volume).await.map(drop)
}

/// As large as claims are that a chart makes.
fn claim(number: u32) -> Result<PersistentVolumeClaim> {
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": format!("data-database-{number}"),
            "labels": {
                "app.kubernetes.io/name": "database",
                "app.kubernetes.io/instance": format!("database-{number}"),
                "app.kubernetes.io/managed-by": "a-tool",
            },
            "annotations": {
                "pv.kubernetes.io/bind-completed": "yes",
                "pv.kubernetes.io/bound-by-controller": "yes",
                "volume.beta.kubernetes.io/storage-provisioner": THEIRS,
                "volume.kubernetes.io/storage-provisioner": THEIRS,
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "8Gi" } },
            "storageClassName": "disks",
            "volumeName": format!("disk-{number}"),
        },
    }))?)
}

fn volume(number: u32, claim_uid: &str) -> Result<PersistentVolume> {
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": format!("disk-{number}"),
            "annotations": { "pv.kubernetes.io/provisioned-by": THEIRS },
            "finalizers": ["kubernetes.io/pv-protection"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "8Gi" },
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "crowd",
                "name": format!("data-database-{number}"), "uid": claim_uid,
            },
            "csi": {
                "driver": THEIRS,
                "fsType": "ext4",
                "volumeHandle": format!("projects/one/zones/a/disks/disk-{number}"),
                "volumeAttributes": { "storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-1000-disks" },
            },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "topology.example.dev/zone", "operator": "In", "values": ["a"] },
            ] }] } },
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "disks",
        },
    }))?)
}

/// Runs the scenario.
///
/// # Errors
/// If a replica does not start, or ours takes more than it may.
pub async fn run(options: &Crowd) -> Result<()> {
    let (kinds, programs) = Programs::side_by_side(options.only_ours).await?;
    let plane =
        ControlPlane::start(Options { scheduler: false, audit_log: true, ..Options::default() }).await?;
    let mut all = Vec::new();
    for kind in &kinds {
        all.push(start(&plane, &programs, *kind, 0).await?);
    }
    let begun = Instant::now();
    fill(&place(&plane).await?, 0..options.objects).await?;
    eprintln!("{} claims and as many volumes made in {:?}", options.objects, whole(begun.elapsed()));
    for kind in &kinds {
        all.push(start(&plane, &programs, *kind, options.objects).await?);
    }
    let flaws = flaws(&all);
    report(&all, &flaws, options.json)?;
    ensure!(flaws.is_empty(), "{}", flaws.join("; "));
    Ok(())
}

const fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

/// What of ours is beyond its limits.
fn flaws(all: &[Started]) -> Vec<String> {
    let mut ours = all.iter().filter(|started| started.program == Kind::Ours.name());
    let (Some(empty), Some(crowd)) = (ours.next(), ours.next()) else {
        return vec!["not everything was measured".to_owned()];
    };
    let growth = rounded(crowd.resident_mib - empty.resident_mib);
    let rows = [
        ("seconds until ready", crowd.ready_seconds, LIMITS.ready_seconds),
        ("MiB more than alone", growth, LIMITS.growth_mib),
        ("MiB at most", crowd.peak_mib, LIMITS.peak_mib),
        ("claims and volumes kept", crowd.kept.unwrap_or_default(), LIMITS.kept),
    ];
    let beyond = rows.iter().filter(|(_, measured, limit)| measured > limit);
    beyond.map(|(what, measured, limit)| format!("{measured} {what}, which may be {limit}")).collect()
}

fn report(all: &[Started], flaws: &[String], json: bool) -> Result<()> {
    eprintln!(
        "\nprogram           claims+volumes  ready s  volume s  rest MiB  peak MiB  CPU s  requests  kept"
    );
    for started in all {
        eprintln!(
            "{:<17} {:>14}  {:>7.2}  {:>8.2}  {:>8.1}  {:>8.1}  {:>5.2}  {:>8}  {:>4}",
            started.program,
            format!("2 x {}", started.objects),
            started.ready_seconds,
            started.first_volume_seconds,
            started.resident_mib,
            started.peak_mib,
            started.cpu_seconds,
            started.requests.map_or("-".to_owned(), |requests| requests.to_string()),
            started.kept.map_or("-".to_owned(), |kept| kept.to_string()),
        );
    }
    if json {
        let line = json!({
            "scenario": "crowd",
            "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "starts": all,
            "limits": LIMITS,
            "missed": flaws,
        });
        writeln!(io::stdout(), "{line}").context("cannot write the result")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(ready_seconds: f64, resident_mib: f64, peak_mib: f64) -> Started {
        Started {
            program: Kind::Ours.name(),
            objects: 1,
            ready_seconds,
            first_volume_seconds: ready_seconds,
            resident_mib,
            peak_mib,
            cpu_seconds: 0.0,
            requests: None,
            kept: Some(2.0),
        }
    }

    #[test]
    fn each_limit_is_looked_at() {
        let empty = started(0.1, 10.0, 11.0);
        let told = |crowd: Started| flaws(&[empty.clone(), crowd]).join("; ");
        assert_eq!(told(started(1.0, 12.0, 20.0)), "");
        assert!(told(started(100.0, 12.0, 20.0)).contains("until ready"));
        assert!(told(started(1.0, 100.0, 20.0)).contains("more than alone"));
        assert!(told(started(1.0, 12.0, 200.0)).contains("at most"));
        let keeps = Started { kept: Some(3.0), ..started(1.0, 12.0, 20.0) };
        assert!(told(keeps).contains("kept"));
        assert!(!flaws(&[empty]).is_empty());
    }
}
