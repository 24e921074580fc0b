//! Replicas without files or memory to spare.

use std::os::unix::process::ExitStatusExt;

use chaos_tests::{ledger::stage::DEADLINE, nemesis::limits::Limit, replica::Replica};
use kube::ResourceExt;
use rustix::process::Signal;

use crate::start;

#[tokio::test]
async fn a_leader_that_can_open_no_file_lives_on_and_makes_everything_once_it_can() {
    let mut stage = crate::stage().await;
    let spec = stage.spec("r0", None).await.unwrap();
    start(&mut stage, spec).await;
    stage.leader().await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    let old = stage.bound("old", &class).await.unwrap();
    let limit = Limit::files(&stage.replicas[0], 0).unwrap();
    stage.claim("new", &class).await.unwrap();
    stage.told("new", "ProvisioningFailed", "Too many open files").await.unwrap();
    chaos_tests::cluster::delete(&stage.scope.claims(), "old").await.unwrap();
    stage.told(&old.name_any(), "VolumeFailedDelete", "Too many open files").await.unwrap();
    assert_eq!(stage.ledger.begun("provision").unwrap().len(), 1, "without a file no program is started");
    assert!(stage.ledger.begun("delete").unwrap().is_empty());
    limit.lift();
    // No probe was answered meanwhile.
    stage.replicas[0].wait_ready(DEADLINE).await.unwrap();
    stage.volume_of("new").await.unwrap();
    stage.volume_gone(&old).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

#[tokio::test]
async fn a_replica_that_may_never_open_what_it_needs_ends_and_says_why() {
    let stage = crate::stage().await;
    let spec = stage.spec("r0", None).await.unwrap();
    let replica = Replica::start(&stage.scope, Limit::from_start(spec, 10)).unwrap();
    assert_eq!(replica.wait_exit(DEADLINE).await.unwrap().code(), Some(1));
    assert!(replica.log_text().unwrap().contains("Too many open files"));
}

#[tokio::test]
async fn a_leader_that_runs_out_of_memory_ends_and_nothing_leaks() {
    let mut stage = crate::stage().await;
    let spec = stage.spec("r0", None).await.unwrap();
    start(&mut stage, spec).await;
    stage.leader().await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    let limit = Limit::memory(&stage.replicas[0], 0).unwrap();
    let claims: Vec<String> = (0..20).map(|number| format!("data-{number}")).collect();
    for claim in &claims {
        stage.claim(claim, &class).await.unwrap();
    }
    let ended = stage.replicas[0].wait_exit(DEADLINE).await.unwrap();
    assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()));
    limit.lift();
    stage.replicas[0].restart().unwrap();
    for claim in &claims {
        stage.volume_of(claim).await.unwrap();
    }
    stage.finish(&[]).await.unwrap();
}
