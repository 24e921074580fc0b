//! From a claim to its volume and back, with every backend that is shipped.

use chaos_tests::{
    cluster,
    ledger::stage::{DEADLINE, FINALIZER, Setup, Stage, workspace},
    wait,
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::stage;

#[tokio::test]
async fn a_claim_is_bound_and_once_it_is_deleted_its_asset_and_volume_are_gone() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    assert!(stage.ledger.assets().unwrap().contains(&volume.name_any()));
    stage.told("data", "ProvisioningSucceeded", &volume.name_any()).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    assert!(stage.ledger.assets().unwrap().is_empty());
    assert_eq!(stage.ledger.begun("provision").unwrap().len(), 1);
    assert_eq!(stage.ledger.begun("delete").unwrap().len(), 1, "the backend is asked once per volume");
    stage.finish(&[]).await.unwrap();
}

/// A backend that makes directories below a base gives a claim its volume and takes it back.
async fn directories_come_and_go(backend: impl FnOnce(&str) -> Value) {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().to_str().unwrap();
    let stage = stage(Setup::backend(backend(path))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    let directory = base.path().join(volume.name_any());
    assert_eq!(volume.spec.as_ref().unwrap().host_path.as_ref().unwrap().path, directory.to_str().unwrap());
    std::fs::write(directory.join("file"), "content").unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    assert!(!directory.exists());
    stage.finish(&[]).await.unwrap();
}

#[tokio::test]
async fn the_directory_backend_makes_and_removes_directories() {
    directories_come_and_go(|base| json!({ "directory": { "path": base } })).await;
}

fn example(path: &str, base: &str) -> Value {
    let program = workspace().join("docs/examples/exec").join(path);
    json!({ "exec": { "command": [program], "env": { "BASE_DIR": base }, "passEnv": ["PATH"] } })
}

#[tokio::test]
async fn the_shell_example_makes_and_removes_directories() {
    directories_come_and_go(|base| example("shell/directories.sh", base)).await;
}

#[tokio::test]
async fn the_python_example_makes_and_removes_directories() {
    directories_come_and_go(|base| example("python/directories.py", base)).await;
}

#[tokio::test]
async fn a_class_with_retain_keeps_volume_and_asset() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |class| class.reclaim_policy = Some("Retain".to_owned())).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    let released = |volume: &k8s_openapi::api::core::v1::PersistentVolume| phase(volume) == "Released";
    wait::until(&stage.scope.all_volumes(), &volume.name_any(), DEADLINE, released).await.unwrap();
    assert!(stage.ledger.begun("delete").unwrap().is_empty());
    cluster::delete(&stage.scope.all_volumes(), &volume.name_any()).await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    stage.finish(&[&volume.name_any()]).await.unwrap();
}

async fn patch_volume(stage: &Stage<'_>, name: &str, patch: Value) {
    stage.scope.all_volumes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn phase(volume: &k8s_openapi::api::core::v1::PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// CASES 18.
#[tokio::test]
async fn a_volume_patched_to_retain_goes_with_its_claim_and_its_asset_stays() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    let name = volume.name_any();
    patch_volume(&stage, &name, json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } })).await;
    stage.delete_claim("data").await.unwrap();
    cluster::delete(&stage.scope.all_volumes(), &name).await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    assert!(stage.ledger.begun("delete").unwrap().is_empty());
    assert_eq!(
        stage.ledger.begun("keep").unwrap().len(),
        1,
        "the backend is told that the asset is people's"
    );
    stage.finish(&[&name]).await.unwrap();
}

/// CASES 14.
#[tokio::test]
async fn a_bound_volume_that_is_deleted_goes_with_its_claim_and_its_asset_is_deleted_once() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    assert!(volume.finalizers().iter().any(|finalizer| finalizer == FINALIZER));
    cluster::delete(&stage.scope.all_volumes(), &volume.name_any()).await.unwrap();
    // Nothing is to happen as long as the claim is there: another claim's whole life passes meanwhile.
    let other = stage.bound("other", &class).await.unwrap();
    stage.delete_claim("other").await.unwrap();
    stage.volume_gone(&other).await.unwrap();
    assert!(stage.ledger.assets().unwrap().contains(&volume.name_any()));
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    let deletions = stage.ledger.begun("delete").unwrap();
    assert_eq!(deletions.iter().filter(|call| call.volume == volume.name_any()).count(), 1);
    stage.finish(&[]).await.unwrap();
}
