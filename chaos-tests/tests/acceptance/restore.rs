//! etcd restored from an older snapshot, on control planes that only these tests use: what was made since looks like
//! nobody's, and none of it that ever held data may go.

use chaos_tests::{
    cluster::Scope,
    control_plane::{ControlPlane, Options, Snapshot},
    ledger::{
        Conduct, Rule,
        stage::{DEADLINE, Setup, Stage},
    },
    wait,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::PersistentVolume};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

const RESTORED: &str = "kube-provisioner.dev/restored";
const RESTORED_FROM: &str = "kube-provisioner.dev/restored-from";
/// More than the control plane writes of its own while it starts again: versions must be behind what they were.
const WRITES: usize = 400;

async fn plane() -> ControlPlane {
    ControlPlane::start(Options { scheduler: false, ..Options::default() }).await.unwrap()
}

/// All orphans go, within seconds.
fn strict() -> Value {
    json!({ "auditInterval": "1s", "provisionTimeout": "3s", "deletionTimeout": "3s", "orphans": "delete" })
}

async fn stage(plane: &ControlPlane, replicas: usize) -> Stage<'_> {
    let setup = Setup { replicas, keys: strict(), ..Setup::default() };
    Stage::start(Scope::new(plane).await.unwrap(), crate::LEDGER.as_ref(), setup).await.unwrap()
}

fn lease_name(stage: &Stage<'_>) -> String {
    stage.scope.provisioner().replace('/', "-")
}

/// Writes that move the store's version on.
async fn time_passes(stage: &Stage<'_>, claim: &str) {
    for number in 0..WRITES {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "n": number.to_string() } } }));
        stage.scope.claims().patch(claim, &PatchParams::default(), &patch).await.unwrap();
    }
}

fn hold_data(stage: &Stage<'_>, volume: &PersistentVolume) -> String {
    std::fs::write(stage.ledger.asset(&volume.name_any()).join("file"), "data").unwrap();
    volume.name_any()
}

fn holds_data(stage: &Stage<'_>, asset: &str) -> bool {
    stage.ledger.asset(asset).join("file").exists()
}

async fn found_out(stage: &Stage<'_>) -> Lease {
    let told = |lease: &Lease| lease.annotations().contains_key(RESTORED);
    wait::until(&stage.leases(), &lease_name(stage), DEADLINE, told).await.unwrap()
}

/// Waits for more audits than an orphan needs to be ripe.
async fn audits_pass(stage: &Stage<'_>) {
    let lists = stage.ledger.begun("list").unwrap().len();
    stage.ledger.wait_begun("list", lists + 8, DEADLINE).await.unwrap();
}

/// What the operator does in the end.
async fn deal_with_it(stage: &Stage<'_>) {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { RESTORED: null } } }));
    stage.leases().patch(&lease_name(stage), &PatchParams::default(), &patch).await.unwrap();
}

async fn taken(stage: &Stage<'_>, asset: &str) {
    let gone = async || Ok(stage.ledger.assets()?.contains(asset).then(|| "it is there".to_owned()));
    stage.eventually("the audit works again", gone).await.unwrap();
}

async fn shown(stage: &Stage<'_>, replica: usize, value: u8) {
    let line = format!("kube_provisioner_store_restored{{name=\"{}\"}} {value}", lease_name(stage));
    let shown = async || {
        let body = stage.replica(replica)?.get("/metrics").await?.body;
        Ok((!body.contains(&line)).then(|| format!("no line {line}")))
    };
    stage.eventually("the metric tells of the restore", shown).await.unwrap();
}

fn provisions(stage: &Stage<'_>, claim: &str) -> usize {
    let calls = stage.ledger.begun("provision").unwrap();
    calls.iter().filter(|call| call.request["claim"]["metadata"]["name"] == claim).count()
}

/// Two claims before the snapshot, the second of which gets its volume after it; one claim made after it. The assets.
async fn history(stage: &Stage<'_>, plane: &ControlPlane) -> (Snapshot, [String; 3]) {
    let class = stage.class("a", |_| ()).await.unwrap();
    let before = hold_data(stage, &stage.bound("before", &class).await.unwrap());
    let shut = Rule::on("provision").claim("early").conduct(Conduct::answer("failed", "not yet"));
    stage.ledger.set(&[shut]).unwrap();
    stage.claim("early", &class).await.unwrap();
    stage.told("early", "ProvisioningFailed", "not yet").await.unwrap();
    let snapshot = plane.snapshot().await.unwrap();
    stage.ledger.set(&[]).unwrap();
    let early = hold_data(stage, &stage.volume_of("early").await.unwrap());
    time_passes(stage, "before").await;
    let after = hold_data(stage, &stage.bound("after", &class).await.unwrap());
    (snapshot, [before, early, after])
}

/// The keeping rules: an etcd restore. The processes have seen the time before it.
#[tokio::test]
async fn running_replicas_notice_that_etcd_was_restored_and_take_nothing_until_people_say_so() {
    let plane = plane().await;
    let mut stage = stage(&plane, 2).await;
    let (snapshot, assets) = history(&stage, &plane).await;
    let [_, early, after] = &assets;
    let made = provisions(&stage, "after");
    plane.restore(&snapshot).await.unwrap();
    found_out(&stage).await;
    assert_eq!(stage.volume_of("early").await.unwrap().name_any(), *early, "the claim gets its data back");
    let class = format!("{}-a", stage.scope.namespace());
    stage.bound("new", &class).await.unwrap();
    stage.told(&lease_name(&stage), "StoreRestored", RESTORED).await.unwrap();
    stage.told(&lease_name(&stage), "OrphanedAsset", &format!("{after} belongs to no volume")).await.unwrap();
    audits_pass(&stage).await;
    // Each of them leads once more: a process that was started anew, and the other.
    for _ in 0..2 {
        let leader = stage.leader().await.unwrap();
        stage.replicas[leader].kill().await.unwrap();
        stage.replicas[leader].restart().unwrap();
        stage.wait_ready().await.unwrap();
        shown(&stage, leader, 1).await;
        audits_pass(&stage).await;
    }
    assert!(assets.iter().all(|asset| holds_data(&stage, asset)), "{:?}", stage.ledger.assets());
    assert_eq!(provisions(&stage, "after"), made, "a claim that is no more is nobody's work");
    deal_with_it(&stage).await;
    taken(&stage, after).await;
    shown(&stage, 0, 0).await;
    assert!(assets[..2].iter().all(|asset| holds_data(&stage, asset)));
    stage.finish(&[]).await.unwrap();
}

/// The keeping rules: an etcd restore. Nobody is left who has seen the time before it: the assets' marks tell.
#[tokio::test]
async fn a_new_process_learns_from_the_assets_marks_that_etcd_was_restored() {
    let plane = plane().await;
    let mut stage = stage(&plane, 1).await;
    let (snapshot, assets) = history(&stage, &plane).await;
    let [_, early, after] = &assets;
    stage.replicas.remove(0).kill().await.unwrap();
    plane.restore(&snapshot).await.unwrap();
    stage.add_replica("r1", None).await.unwrap();
    stage.wait_ready().await.unwrap();
    let lease = found_out(&stage).await;
    let from: u64 = lease.annotations()[RESTORED_FROM].parse().unwrap();
    let version: u64 = lease.resource_version().unwrap().parse().unwrap();
    assert!(from > version, "{from} {version}");
    audits_pass(&stage).await;
    assert_eq!(stage.volume_of("early").await.unwrap().name_any(), *early);
    assert!(assets.iter().all(|asset| holds_data(&stage, asset)), "{:?}", stage.ledger.assets());
    deal_with_it(&stage).await;
    taken(&stage, after).await;
    assert!(!stage.leases().get(&lease_name(&stage)).await.unwrap().annotations().contains_key(RESTORED));
    stage.finish(&[]).await.unwrap();
}
