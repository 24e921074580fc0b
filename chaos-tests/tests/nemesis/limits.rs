//! Replicas without files or memory to spare.

use chaos_tests::{ledger::stage::DEADLINE, nemesis::limits::Limit};

use kube::ResourceExt;

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
async fn a_leader_without_memory_ends_or_lives_on_and_nothing_leaks() {
    let mut stage = crate::stage().await;
    let spec = stage.spec("r0", None).await.unwrap();
    start(&mut stage, spec).await;
    stage.leader().await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    let limit = Limit::memory(&stage.replicas[0], 0).unwrap();
    for number in 0..20 {
        stage.claim(&format!("data-{number}"), &class).await.unwrap();
    }
    let ended = stage.replicas[0].wait_exit(std::time::Duration::from_secs(5)).await;
    eprintln!("without memory: {ended:?}");
    limit.lift();
    if ended.is_ok() {
        stage.replicas[0].restart().unwrap();
        stage.replicas[0].wait_ready(DEADLINE).await.unwrap();
    }
    for number in 0..20 {
        stage.volume_of(&format!("data-{number}")).await.unwrap();
    }
    stage.finish(&[]).await.unwrap();
}
