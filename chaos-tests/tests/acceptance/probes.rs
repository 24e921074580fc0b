//! What probes and metrics say of replicas at work, stopped, and with a watch that stands still. What they say of
//! missing permissions is in `leadership`.

use std::{path::PathBuf, time::Duration};

use chaos_tests::{
    ledger::{
        Call, Conduct, Rule as Gate,
        stage::{DEADLINE, Setup, Stage},
    },
    proxy::{Proxy, Rule},
    replica::Replica,
    scrape::Scrape,
};

use crate::stage;

/// How many of these calls answered so.
fn with(calls: Vec<Call>, outcome: &str) -> f64 {
    calls.iter().filter(|call| call.outcome.contains(outcome)).count() as f64
}

/// What the ledger says that the counters of all replicas must come to.
fn on_record(stage: &Stage<'_>) -> [(&'static str, f64); 4] {
    let ended = |operation| stage.ledger.ended(operation).unwrap();
    [
        ("controller_persistentvolumeclaim_provision_total", with(ended("provision"), "Done")),
        ("controller_persistentvolumeclaim_provision_failed_total", with(ended("provision"), "failed")),
        ("controller_persistentvolume_delete_total", with(ended("delete"), "Done")),
        ("controller_persistentvolume_delete_failed_total", with(ended("delete"), "failed")),
    ]
}

/// Where the sums over these replicas are not what the ledger has, if anywhere.
async fn miscounted(stage: &Stage<'_>, replicas: &[&Replica]) -> anyhow::Result<Option<String>> {
    let mut scrapes = Vec::new();
    for replica in replicas {
        scrapes.push(Scrape::of(replica).await?);
    }
    let counted = |name| scrapes.iter().map(|scrape| scrape.sum(name)).sum::<f64>();
    let wrong = on_record(stage).into_iter().map(|(name, expected)| (name, counted(name), expected));
    let wrong: Vec<_> = wrong.filter(|(_, counted, expected)| counted != expected).collect();
    Ok((!wrong.is_empty()).then(|| format!("{wrong:?}")))
}

/// Bound and deleted claims, with failures of both operations on the way.
async fn live_and_die(stage: &Stage<'_>, class: &str, round: &str) {
    let names = ["a", "b", "c", "d"].map(|name| format!("{name}-{round}"));
    for name in &names {
        stage.claim(name, class).await.unwrap();
    }
    for (number, name) in names.iter().enumerate() {
        let volume = stage.volume_of(name).await.unwrap();
        if number > 0 {
            stage.delete_claim(name).await.unwrap();
            stage.volume_gone(&volume).await.unwrap();
        }
    }
}

/// CASES 80.
#[tokio::test]
async fn counters_of_leader_and_standby_equal_the_ledger_and_a_stopped_replica_fails_its_liveness() {
    let stage = stage(Setup::replicas(2)).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let fail = |operation, times| Gate::on(operation).first(times).conduct(Conduct::answer("failed", "no"));
    stage.ledger.set(&[fail("provision", 2), fail("delete", 1)]).unwrap();
    live_and_die(&stage, &class, "first").await;
    let first = stage.leader().await.unwrap();
    let (leader, standby) = (stage.replica(first).unwrap(), stage.replica(1 - first).unwrap());
    stage
        .eventually("the leader's counters equal the ledger", async || miscounted(&stage, &[leader]).await)
        .await
        .unwrap();
    for (name, expected) in on_record(&stage) {
        assert!(expected >= 3.0, "{name} is {expected}: nothing that could be miscounted");
        assert_eq!(Scrape::of(standby).await.unwrap().sum(name), 0.0, "{name} of the standby");
    }

    // A stopped replica answers nobody; the standby goes on, and its own counters go on from nothing.
    assert_eq!(leader.get("/livez").await.unwrap().status, 200);
    let before = on_record(&stage).map(|(_, count)| count);
    leader.pause().unwrap();
    // The signal takes a moment to reach every thread.
    let silent = async || {
        let answer = tokio::time::timeout(Duration::from_secs(2), leader.get("/livez")).await;
        Ok(answer.ok().and_then(Result::ok).map(|answer| answer.body))
    };
    stage.eventually("a stopped process does not answer", silent).await.unwrap();
    live_and_die(&stage, &class, "second").await;
    leader.resume().unwrap();
    leader.wait_ready(DEADLINE).await.unwrap();
    assert_eq!(leader.get("/livez").await.unwrap().status, 200);
    stage
        .eventually("the counters of both equal the ledger", async || {
            miscounted(&stage, &[leader, standby]).await
        })
        .await
        .unwrap();
    let after = on_record(&stage).map(|(_, count)| count);
    let (scrape, names) = (Scrape::of(standby).await.unwrap(), on_record(&stage).map(|(name, _)| name));
    for ((name, before), after) in names.into_iter().zip(before).zip(after) {
        assert_eq!(scrape.sum(name), after - before, "{name} of the replica that took over");
    }
    stage.finish(&[]).await.unwrap();
}

const CLAIMS: &str = "persistentvolumeclaims";

#[tokio::test]
async fn a_watch_that_stalls_fails_readiness_and_ages_but_the_replica_lives_and_catches_up() {
    let scope = crate::scope().await;
    let mut stage = Stage::empty(scope, crate::LEDGER.as_ref(), Setup::default()).await.unwrap();
    let log: PathBuf = stage.scope.directory().join("proxy.log");
    let proxy = Proxy::start(stage.scope.plane(), &log).await.unwrap();
    stage.add_replica("r0", Some(&proxy.server())).await.unwrap();
    stage.wait_ready().await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.bound("before", &class).await.unwrap();
    // The open watch says nothing any more, and no other one begins.
    let (stall, halt) = Rule::on("watch", CLAIMS).halt_before();
    proxy.set(vec![stall]);
    assert_eq!(proxy.half_open(CLAIMS), 1);
    stage.claim("meanwhile", &class).await.unwrap();
    let replica = stage.replica(0).unwrap();
    let told = async || {
        let answer = replica.get("/readyz").await?;
        let fits = answer.status == 500 && answer.body.contains("[-]watch/claims");
        Ok((!fits).then(|| format!("{} {}", answer.status, answer.body)))
    };
    stage.eventually("readiness names the watch", told).await.unwrap();
    // Nothing was heard for longer than a quiet watch lasts.
    let age = [("kind", "claims")];
    let scrape = Scrape::of(replica).await.unwrap();
    let old = scrape.sum_where("kube_provisioner_watch_age_seconds", &age);
    assert!(old > 25.0, "the watch's age is {old}");
    assert_eq!(replica.get("/livez").await.unwrap().status, 200, "a restart would not help");
    assert!(stage.ledger.begun("provision").unwrap().iter().all(|call| call.claim != "meanwhile"));

    proxy.set(Vec::new());
    halt.release();
    stage.volume_of("meanwhile").await.unwrap();
    replica.wait_ready(DEADLINE).await.unwrap();
    let young = Scrape::of(replica).await.unwrap().sum_where("kube_provisioner_watch_age_seconds", &age);
    assert!(young < 25.0, "the watch's age is still {young}");
    stage.finish(&[]).await.unwrap();
}
