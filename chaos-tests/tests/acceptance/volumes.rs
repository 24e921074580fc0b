//! Volumes in odd states: made by hand, taken over, another's, failed, or deleted before they were bound.
//!
//! The ordinary life of a volume is in `lifecycle`, its ordinary end in `deletion`.

use chaos_tests::{
    cluster,
    ledger::stage::{DEADLINE, FINALIZER, Setup, Stage},
    wait,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    claims::{another_claim_passes, spec},
    stage,
};

/// The UID of a claim that never was.
const NOBODY: &str = "00000000-0000-0000-0000-00000000dead";

/// Lays `over` on `base`, map by map; null takes a field away.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            over.into_iter().for_each(|(key, value)| merge(base.entry(key).or_insert(Value::Null), value));
            base.retain(|_, value| !value.is_null());
        }
        (base, over) => *base = over,
    }
}

/// Makes a volume by hand that looks like ours, with its asset, as changed by `over`.
async fn make(stage: &Stage<'_>, name: &str, class: &str, over: Value) -> PersistentVolume {
    let mut volume = json!({
        "metadata": {
            "name": name,
            "annotations": { "pv.kubernetes.io/provisioned-by": stage.scope.provisioner() },
        },
        "spec": {
            "capacity": { "storage": "1Mi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": class,
            "hostPath": { "path": stage.ledger.asset(name) },
        },
    });
    merge(&mut volume, over);
    stage.ledger.plant(name, None).unwrap();
    cluster::create(&stage.scope.all_volumes(), &serde_json::from_value(volume).unwrap()).await.unwrap()
}

/// A reference to a claim.
fn reference(stage: &Stage<'_>, claim: &str, uid: &str) -> Value {
    json!({ "spec": { "claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": stage.scope.namespace(), "name": claim, "uid": uid,
    } } })
}

fn phase(wanted: &'static str) -> impl Fn(&PersistentVolume) -> bool {
    move |volume| volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(wanted)
}

fn has_finalizer(volume: &PersistentVolume) -> bool {
    volume.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

async fn patch(stage: &Stage<'_>, name: &str, patch: Value) {
    stage.scope.all_volumes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Asks for a deletion, which finalizers may hold.
async fn delete(stage: &Stage<'_>, name: &str) {
    stage.scope.all_volumes().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn set_phase(stage: &Stage<'_>, name: &str, phase: &str) {
    let status = json!({ "status": { "phase": phase } });
    let (volumes, parameters) = (stage.scope.all_volumes(), PatchParams::default());
    volumes.patch_status(name, &parameters, &Patch::Merge(status)).await.unwrap();
}

/// How often the backend was called for an operation on a volume.
fn calls(stage: &Stage<'_>, operation: &str, volume: &str) -> usize {
    stage.ledger.begun(operation).unwrap().iter().filter(|call| call.volume == volume).count()
}

/// A claim whose class is yet to come, and the volume that an earlier leader made for it: too small to be bound, so
/// that it stays in the moment between saving and binding. The claim's name is `data`, the class's suffix `late`.
async fn unbound(stage: &Stage<'_>) -> String {
    let class = format!("{}-late", stage.scope.namespace());
    let ours = stage.scope.provisioner().to_owned();
    let named = |claim: &mut PersistentVolumeClaim| {
        claim.annotations_mut().insert("volume.kubernetes.io/storage-provisioner".to_owned(), ours);
    };
    let claim = stage.scope.create_claim("data", &class, named).await.unwrap();
    let uid = claim.uid().unwrap();
    let name = format!("pvc-{uid}");
    let mut over = reference(stage, "data", &uid);
    let small = json!({
        "metadata": { "finalizers": [FINALIZER] },
        "spec": { "capacity": { "storage": "1" } },
    });
    merge(&mut over, small);
    make(stage, &name, &class, over).await;
    name
}

/// LIFECYCLE: not already provisioned.
#[tokio::test]
async fn a_claim_that_has_its_volume_already_is_not_provisioned_again() {
    let stage = stage(Setup::default()).await;
    let name = unbound(&stage).await;
    let class = stage.class("late", |_| ()).await.unwrap();
    another_claim_passes(&stage, &class).await;
    assert_eq!(calls(&stage, "provision", &name), 0);
    stage.delete_claim("data").await.unwrap();
    wait::until_gone(&stage.scope.all_volumes(), &name, DEADLINE).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: Terminating, never bound, its claim lives.
#[tokio::test]
async fn a_volume_that_is_deleted_before_it_was_bound_is_let_go_and_its_asset_adopted_by_the_claim() {
    let stage = stage(Setup::default()).await;
    let name = unbound(&stage).await;
    delete(&stage, &name).await;
    stage.told(&name, "VolumeDelete", "the claim gets a new one with the same data").await.unwrap();
    wait::until_gone(&stage.scope.all_volumes(), &name, DEADLINE).await.unwrap();
    stage.class("late", |_| ()).await.unwrap();
    assert_eq!(stage.volume_of("data").await.unwrap().name_any(), name);
    let made = stage.ledger.ended("provision").unwrap();
    assert_eq!(made.iter().map(|call| call.changed).collect::<Vec<_>>(), [false], "the asset was there");
    assert_eq!((calls(&stage, "keep", &name), calls(&stage, "delete", &name)), (0, 0));
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: Terminating, never bound, its claim is gone.
#[tokio::test]
async fn a_volume_that_is_deleted_before_it_was_bound_goes_with_its_asset_once_its_claim_is_gone() {
    let scope = crate::scope().await;
    let mut stage = Stage::empty(scope, crate::LEDGER.as_ref(), Setup::default()).await.unwrap();
    let name = unbound(&stage).await;
    delete(&stage, &name).await;
    stage.delete_claim("data").await.unwrap();
    stage.add_replica("r0", None).await.unwrap();
    stage.wait_ready().await.unwrap();
    wait::until_gone(&stage.scope.all_volumes(), &name, DEADLINE).await.unwrap();
    assert_eq!((calls(&stage, "keep", &name), calls(&stage, "delete", &name)), (0, 1));
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: Terminating, never bound, without a claim.
#[tokio::test]
async fn a_volume_that_is_deleted_without_ever_having_had_a_claim_is_kept_let_go_and_told() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let name = format!("{}-free", stage.scope.namespace());
    make(&stage, &name, &class, json!({ "metadata": { "finalizers": [FINALIZER] } })).await;
    wait::until(&stage.scope.all_volumes(), &name, DEADLINE, phase("Available")).await.unwrap();
    delete(&stage, &name).await;
    wait::until_gone(&stage.scope.all_volumes(), &name, DEADLINE).await.unwrap();
    let event = stage.told(&name, "VolumeDelete", "its data stays").await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!((calls(&stage, "keep", &name), calls(&stage, "delete", &name)), (1, 0));
    stage.finish(&[&name]).await.unwrap();
}

/// LIFECYCLE: phase Bound with an unbound claim.
#[tokio::test]
async fn a_volume_that_goes_away_called_bound_is_left_and_told_until_a_person_decides() {
    let stage = stage(Setup::default()).await;
    let name = unbound(&stage).await;
    set_phase(&stage, &name, "Bound").await;
    delete(&stage, &name).await;
    let class = stage.class("late", |_| ()).await.unwrap();
    stage.told("data", "ProvisioningFailed", "was deleted before this claim was bound").await.unwrap();
    another_claim_passes(&stage, &class).await;
    assert_eq!((calls(&stage, "keep", &name), calls(&stage, "delete", &name)), (0, 0));
    let left = stage.scope.all_volumes().get(&name).await.unwrap();
    assert!(has_finalizer(&left), "it is left alone");
    // What the event advises to those who want the data.
    patch(&stage, &name, json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } })).await;
    stage.delete_claim("data").await.unwrap();
    wait::until_gone(&stage.scope.all_volumes(), &name, DEADLINE).await.unwrap();
    assert_eq!((calls(&stage, "keep", &name), calls(&stage, "delete", &name)), (1, 0));
    stage.finish(&[&name]).await.unwrap();
}

/// LIFECYCLE: Failed, its claim is gone. The Go library leaves such a volume for ever.
#[tokio::test]
async fn a_failed_volume_goes_with_its_asset_when_its_claim_is_gone() {
    let scope = crate::scope().await;
    let mut stage = Stage::empty(scope, crate::LEDGER.as_ref(), Setup::default()).await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    let name = format!("{}-failed", stage.scope.namespace());
    make(&stage, &name, &class, reference(&stage, "never", NOBODY)).await;
    wait::until(&stage.scope.all_volumes(), &name, DEADLINE, phase("Released")).await.unwrap();
    set_phase(&stage, &name, "Failed").await;
    stage.add_replica("r0", None).await.unwrap();
    stage.wait_ready().await.unwrap();
    wait::until_gone(&stage.scope.all_volumes(), &name, DEADLINE).await.unwrap();
    assert_eq!(calls(&stage, "delete", &name), 1);
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: Failed, its claim lives.
#[tokio::test]
async fn a_failed_volume_whose_claim_lives_is_left_alone() {
    let stage = stage(Setup::default()).await;
    // Nobody overwrites the phase of a volume whose claim is not bound to it.
    let name = unbound(&stage).await;
    set_phase(&stage, &name, "Failed").await;
    let class = stage.class("late", |_| ()).await.unwrap();
    another_claim_passes(&stage, &class).await;
    assert_eq!(calls(&stage, "delete", &name), 0);
    assert!(phase("Failed")(&stage.scope.all_volumes().get(&name).await.unwrap()));
    stage.delete_claim("data").await.unwrap();
    wait::until_gone(&stage.scope.all_volumes(), &name, DEADLINE).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// A volume by hand and the claim that chooses it, once they are bound and the volume has our finalizer.
async fn adopted(stage: &Stage<'_>, suffix: &str, class: &str, over: Value) -> String {
    let name = format!("{}-{suffix}", stage.scope.namespace());
    make(stage, &name, class, over).await;
    let chooses = |claim: &mut PersistentVolumeClaim| spec(claim).volume_name = Some(name.clone());
    stage.scope.create_claim(suffix, class, chooses).await.unwrap();
    stage.volume_of(suffix).await.unwrap();
    wait::until(&stage.scope.all_volumes(), &name, DEADLINE, has_finalizer).await.unwrap();
    name
}

/// LIFECYCLE: static CSI, migrated, and the finalizer of Bound volumes that lack it.
#[tokio::test]
async fn volumes_of_our_driver_and_those_taken_over_by_us_get_the_finalizer_and_go_with_their_claim() {
    // The driver that kube-controller-manager itself hands the volumes of this in-tree plugin to.
    let stage = stage(Setup::with(json!({ "additionalProvisionerNames": ["ebs.csi.aws.com"] }))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let ours = stage.scope.provisioner().to_owned();
    let csi = json!({
        "metadata": { "annotations": { "pv.kubernetes.io/provisioned-by": null } },
        "spec": { "hostPath": null, "csi": { "driver": ours, "volumeHandle": "h" } },
    });
    let taken = json!({ "metadata": { "annotations": {
        "pv.kubernetes.io/provisioned-by": null, "pv.kubernetes.io/migrated-to": ours,
    } } });
    let migrated = json!({
        "metadata": { "annotations": { "pv.kubernetes.io/provisioned-by": "kubernetes.io/aws-ebs" } },
        "spec": { "hostPath": null, "awsElasticBlockStore": { "volumeID": "vol-1" } },
    });
    for (suffix, over) in [("csi", csi), ("taken", taken), ("migrated", migrated)] {
        let name = adopted(&stage, suffix, &class, over).await;
        stage.delete_claim(suffix).await.unwrap();
        wait::until_gone(&stage.scope.all_volumes(), &name, DEADLINE).await.unwrap();
        assert_eq!(calls(&stage, "delete", &name), 1, "{suffix}");
        assert!(!stage.ledger.assets().unwrap().contains(&name), "{suffix}");
    }
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: what is not ours, or was never given up by a claim.
#[tokio::test]
async fn volumes_of_others_of_another_instance_and_without_a_claim_are_never_touched() {
    let stage = stage(Setup::with(json!({ "instance": "east" }))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    assert_eq!(volume.annotations()["kube-provisioner.dev/instance"], "east");
    let released = reference(&stage, "never", NOBODY);
    let annotated = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    let instance = |name| annotated("kube-provisioner.dev/instance", name);
    let maker = |name| annotated("pv.kubernetes.io/provisioned-by", name);
    let reserved =
        json!({ "spec": { "claimRef": { "namespace": stage.scope.namespace(), "name": "later" } } });
    let rows = [
        ("west", vec![released.clone(), instance("west")]),
        ("no-instance", vec![released.clone()]),
        ("theirs", vec![released, instance("east"), maker("somebody.else.dev")]),
        ("reserved", vec![reserved, instance("east")]),
        ("free", vec![instance("east")]),
    ];
    let name = |suffix: &str| format!("{}-{suffix}", stage.scope.namespace());
    for (suffix, over) in rows.iter().cloned() {
        let over = over.into_iter().fold(json!({}), |mut all, over| {
            merge(&mut all, over);
            all
        });
        // Of a class that no claim asks for.
        make(&stage, &name(suffix), &name("nobodys"), over).await;
        let seen = if suffix == "reserved" || suffix == "free" { "Available" } else { "Released" };
        wait::until(&stage.scope.all_volumes(), &name(suffix), DEADLINE, phase(seen)).await.unwrap();
    }
    another_claim_passes(&stage, &class).await;
    let mut kept = Vec::new();
    for (suffix, _) in &rows {
        let volume = stage.scope.all_volumes().get(&name(suffix)).await.unwrap();
        assert!(!has_finalizer(&volume) && volume.metadata.deletion_timestamp.is_none(), "{suffix}");
        assert_eq!(calls(&stage, "delete", &name(suffix)), 0, "{suffix}");
        cluster::delete(&stage.scope.all_volumes(), &name(suffix)).await.unwrap();
        wait::until_gone(&stage.scope.all_volumes(), &name(suffix), DEADLINE).await.unwrap();
        kept.push(name(suffix));
    }
    stage.finish(&kept.iter().map(String::as_str).collect::<Vec<_>>()).await.unwrap();
}
