//! The keeping rules by name: what the audit must never take, each under the strictest policy (`--orphans=delete`), and
//! an orphan with data under the default one. An etcd restore is in `restore.rs`.

use chaos_tests::{
    cluster,
    ledger::stage::{DEADLINE, FINALIZER, Setup, Stage},
    wait,
};
use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolume};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{leaks::quick, stage};

/// The mark of an asset that an earlier claim of this installation left behind.
fn mark(installation: &Value, uid: &str) -> Value {
    json!({
        "installation": installation,
        "claim": { "namespace": "default", "name": "gone", "uid": uid, "resourceVersion": "1" },
        "reclaimPolicy": "Delete",
        "kept": false,
    })
}

async fn patch_to_retain(stage: &Stage<'_>, volume: &PersistentVolume) {
    let retain = Patch::Merge(json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
    let volumes = stage.scope.all_volumes();
    volumes.patch(&volume.name_any(), &PatchParams::default(), &retain).await.unwrap();
    let let_go = |volume: &PersistentVolume| !volume.finalizers().iter().any(|it| it == FINALIZER);
    wait::until(&volumes, &volume.name_any(), DEADLINE, let_go).await.unwrap();
}

/// Deletes claim and volume: nothing but the asset is left.
async fn strip(stage: &Stage<'_>, claim: &str, volume: &PersistentVolume) {
    stage.delete_claim(claim).await.unwrap();
    stage.scope.all_volumes().delete(&volume.name_any(), &DeleteParams::default()).await.unwrap();
    stage.volume_gone(volume).await.unwrap();
}

/// Waits until the audit has taken two true orphans, one after the other: the second is ripe only when all that was
/// there before it has been ripe too.
async fn audited(stage: &Stage<'_>, installation: &Value) {
    for number in 1..=2 {
        let name = format!("pvc-{number}-{}", stage.scope.namespace());
        stage.ledger.plant(&name, Some(&mark(installation, &name))).unwrap();
        let taken = async || Ok(stage.ledger.assets()?.contains(&name).then(|| "it is there".to_owned()));
        stage.eventually("the audit takes a true orphan", taken).await.unwrap();
    }
}

/// A stage with a claim of a class that deletes, and the installation that its backend is told.
async fn strict() -> (Stage<'static>, PersistentVolume, Value) {
    let stage = stage(Setup::with(quick("delete"))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    let installation = stage.ledger.begun("provision").unwrap()[0].request["installation"].clone();
    (stage, volume, installation)
}

/// Plants an asset and sees that audits which take others leave it.
async fn planted_stays(what: &str, mark: Option<Value>) {
    let (stage, _, installation) = strict().await;
    let asset = format!("{what}-{}", stage.scope.namespace());
    stage.ledger.plant(&asset, mark.as_ref()).unwrap();
    audited(&stage, &installation).await;
    assert!(stage.ledger.assets().unwrap().contains(&asset));
    stage.finish(&[&asset]).await.unwrap();
}

#[tokio::test]
async fn an_asset_that_was_to_be_retained_from_the_start_stays() {
    let (stage, _, installation) = strict().await;
    let retains = stage.class("r", |class| class.reclaim_policy = Some("Retain".to_owned())).await.unwrap();
    let retained = stage.bound("retained", &retains).await.unwrap();
    strip(&stage, "retained", &retained).await;
    audited(&stage, &installation).await;
    assert!(stage.ledger.assets().unwrap().contains(&retained.name_any()));
    stage.finish(&[&retained.name_any()]).await.unwrap();
}

#[tokio::test]
async fn an_asset_whose_volume_was_patched_from_delete_to_retain_stays() {
    let (stage, patched, installation) = strict().await;
    patch_to_retain(&stage, &patched).await;
    strip(&stage, "data", &patched).await;
    audited(&stage, &installation).await;
    assert!(stage.ledger.assets().unwrap().contains(&patched.name_any()));
    stage.finish(&[&patched.name_any()]).await.unwrap();
}

#[tokio::test]
async fn an_asset_that_a_static_volume_of_another_name_uses_stays_for_as_long_as_it_does() {
    let (stage, _, installation) = strict().await;
    let [asset, volume] = ["re-homed", "static"].map(|what| format!("{what}-{}", stage.scope.namespace()));
    stage.ledger.plant(&asset, Some(&mark(&installation, "re-homed"))).unwrap();
    re_home(&stage, &asset, &volume).await;
    audited(&stage, &installation).await;
    assert!(stage.ledger.assets().unwrap().contains(&asset));
    stage.scope.all_volumes().delete(&volume, &DeleteParams::default()).await.unwrap();
    let gone = async || Ok(stage.ledger.assets()?.contains(&asset).then(|| "it is there".to_owned()));
    stage.eventually("what nothing uses any more is an orphan again", gone).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

#[tokio::test]
async fn an_asset_of_another_installation_on_the_same_share_stays() {
    planted_stays("foreign", Some(mark(&json!("another/installation"), "foreign"))).await;
}

#[tokio::test]
async fn an_asset_without_a_mark_stays() {
    planted_stays("unmarked", None).await;
}

/// A volume by hand, of another name, with this asset as its source.
async fn re_home(stage: &Stage<'_>, asset: &str, name: &str) {
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "1Mi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    let mut volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    let path = stage.ledger.asset(asset).display().to_string();
    volume.spec.as_mut().unwrap().host_path = Some(HostPathVolumeSource { path, type_: None });
    cluster::create(&stage.scope.all_volumes(), &volume).await.unwrap();
}

/// Under the default policy, an orphan with data in it is only reported.
#[tokio::test]
async fn an_orphan_that_holds_data_is_reported_and_left_alone_by_default() {
    let stage = stage(Setup::with(quick("auto"))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.bound("data", &class).await.unwrap();
    let installation = stage.ledger.begun("provision").unwrap()[0].request["installation"].clone();
    let name = format!("used-{}", stage.scope.namespace());
    stage.ledger.plant(&name, Some(&mark(&installation, "used"))).unwrap();
    std::fs::write(stage.ledger.asset(&name).join("file"), "data").unwrap();
    let lease = stage.scope.provisioner().replace('/', "-");
    stage
        .told(
            &lease,
            "OrphanedAsset",
            &format!("{name} belongs to no volume and no claim, and is left alone"),
        )
        .await
        .unwrap();
    audited(&stage, &installation).await;
    assert!(stage.ledger.asset(&name).join("file").exists());
    stage.finish(&[&name]).await.unwrap();
}
