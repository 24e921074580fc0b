//! Deletion: what others do meanwhile, what the backend says, and what must never be deleted.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chaos_tests::{
    cluster,
    ledger::{
        Conduct, Ledger, Rule,
        stage::{DEADLINE, FINALIZER, Setup, Stage, backend_of, message, second_provisioner},
    },
    wait,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::stage;

async fn patch(volumes: &Api<PersistentVolume>, name: &str, patch: Value) -> kube::Result<PersistentVolume> {
    volumes.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await
}

/// Adds and removes a finalizer of its own, 20 times a second each, until told to end.
async fn flap(volumes: Api<PersistentVolume>, name: String, flaps: Arc<AtomicUsize>, end: Arc<Notify>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(25));
    let mut on = false;
    let ended = end.notified();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => return,
            _ = ticks.tick() => {}
        }
        let change = match on {
            false => json!({ "metadata": { "finalizers": ["example.dev/flaps"] } }),
            true => json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.dev/flaps"] } }),
        };
        // A volume that is going away takes no new finalizer.
        if patch(&volumes, &name, change).await.is_ok() {
            flaps.fetch_add(1, Ordering::Relaxed);
        }
        on = !on;
    }
}

/// CASES 16.
#[tokio::test]
async fn finalizers_of_others_that_come_and_go_during_a_deletion_are_neither_lost_nor_restored() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    let (volumes, name) = (stage.scope.all_volumes(), volume.name_any());
    let stays = json!({ "metadata": { "finalizers": ["example.dev/stays"] } });
    patch(&volumes, &name, stays).await.unwrap();
    let (flaps, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let flapping = tokio::spawn(flap(volumes.clone(), name.clone(), flaps.clone(), end.clone()));
    let flapped = async || Ok((flaps.load(Ordering::Relaxed) < 5).then(|| "not yet".to_owned()));
    stage.eventually("another finalizer comes and goes", flapped).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    let let_go = |volume: &PersistentVolume| !volume.finalizers().iter().any(|f| f == FINALIZER);
    wait::until(&volumes, &name, DEADLINE, let_go).await.unwrap();
    assert!(stage.ledger.assets().unwrap().is_empty());
    end.notify_one();
    flapping.await.unwrap();
    let off = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.dev/flaps"] } });
    let left = patch(&volumes, &name, off).await.unwrap();
    assert_eq!(
        left.finalizers().iter().filter(|f| f.starts_with("example.dev")).collect::<Vec<_>>(),
        ["example.dev/stays"]
    );
    assert!(let_go(&left), "ours does not come back");
    let off = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.dev/stays"] } });
    patch(&volumes, &name, off).await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    assert_eq!(stage.ledger.ended("delete").unwrap().iter().filter(|call| call.changed).count(), 1);
    stage.finish(&[]).await.unwrap();
}

/// CASES 21.
#[tokio::test]
async fn volumes_made_with_the_finalizer_go_after_a_restart_without_it() {
    let mut stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volumes = [stage.bound("a", &class).await.unwrap(), stage.bound("b", &class).await.unwrap()];
    // One is on its way out already.
    cluster::delete(&stage.scope.all_volumes(), &volumes[1].name_any()).await.unwrap();
    stage.restart_with(json!({ "addFinalizer": false })).await.unwrap();
    let let_go = |volume: &PersistentVolume| !volume.finalizers().iter().any(|f| f == FINALIZER);
    wait::until(&stage.scope.all_volumes(), &volumes[0].name_any(), DEADLINE, let_go).await.unwrap();
    for (claim, volume) in ["a", "b"].iter().zip(&volumes) {
        stage.delete_claim(claim).await.unwrap();
        stage.volume_gone(volume).await.unwrap();
    }
    stage.finish(&[]).await.unwrap();
}

/// CASES 21, the reverse.
#[tokio::test]
async fn volumes_made_without_the_finalizer_go_after_a_restart_with_it() {
    let mut stage = stage(Setup::with(json!({ "addFinalizer": false }))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    assert!(!volume.finalizers().iter().any(|finalizer| finalizer == FINALIZER));
    stage.restart_with(json!({})).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    assert_eq!(stage.ledger.begun("delete").unwrap().len(), 1);
    stage.finish(&[]).await.unwrap();
}

/// CASES 23.
#[tokio::test]
async fn an_asset_in_use_is_no_warning_and_goes_when_it_is_free() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let busy = Rule::on("delete").first(5).conduct(Conduct::answer("inUse", "mounted on node n1"));
    stage.ledger.set(&[busy]).unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    let told = stage.events(&volume.name_any(), "VolumeDelete").await.unwrap();
    assert_eq!(told.iter().map(message).collect::<Vec<_>>(), ["mounted on node n1"]);
    assert_eq!(told[0].type_.as_deref(), Some("Normal"));
    assert!(stage.events(&volume.name_any(), "VolumeFailedDelete").await.unwrap().is_empty());
    assert_eq!(stage.ledger.begun("delete").unwrap().len(), 6);
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: another provisioner's asset.
#[tokio::test]
async fn a_volume_whose_deletion_the_backend_ignores_is_left_alone_without_an_event() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let ignored = Rule::on("delete").claim("data").conduct(Conduct::answer("ignored", "not mine"));
    stage.ledger.set(&[ignored]).unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.ledger.wait_begun("delete", 1, DEADLINE).await.unwrap();
    let other = stage.bound("other", &class).await.unwrap();
    stage.delete_claim("other").await.unwrap();
    stage.volume_gone(&other).await.unwrap();
    for reason in ["VolumeFailedDelete", "VolumeDelete"] {
        assert!(stage.events(&volume.name_any(), reason).await.unwrap().is_empty(), "{reason}");
    }
    let strip = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": [FINALIZER] } });
    patch(&stage.scope.all_volumes(), &volume.name_any(), strip).await.unwrap();
    let _ = cluster::delete(&stage.scope.all_volumes(), &volume.name_any()).await;
    stage.volume_gone(&volume).await.unwrap();
    stage.finish(&[&volume.name_any()]).await.unwrap();
}

/// LIFECYCLE: an admin can still save a volume whose deletion fails.
#[tokio::test]
async fn a_volume_patched_to_retain_between_failing_deletions_is_let_go_with_its_asset() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let failing = Rule::on("delete").conduct(Conduct::answer("failed", "shelf 3 does not answer"));
    stage.ledger.set(&[failing]).unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    let event = stage.told(&volume.name_any(), "VolumeFailedDelete", "shelf 3").await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    patch(&stage.scope.all_volumes(), &volume.name_any(), retain).await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    assert_eq!(stage.ledger.begun("keep").unwrap().len(), 1);
    stage.finish(&[&volume.name_any()]).await.unwrap();
}

/// CASES 20.
#[tokio::test]
async fn a_retained_volume_whose_claim_was_cleared_goes_without_its_asset_whatever_its_policy() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |class| class.reclaim_policy = Some("Retain".to_owned())).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    let (volumes, name) = (stage.scope.all_volumes(), volume.name_any());
    stage.delete_claim("data").await.unwrap();
    let phase = |wanted: &'static str| {
        move |volume: &PersistentVolume| {
            volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some(wanted)
        }
    };
    wait::until(&volumes, &name, DEADLINE, phase("Released")).await.unwrap();
    patch(&volumes, &name, json!({ "spec": { "claimRef": null } })).await.unwrap();
    wait::until(&volumes, &name, DEADLINE, phase("Available")).await.unwrap();
    patch(&volumes, &name, json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } })).await.unwrap();
    cluster::delete(&volumes, &name).await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    stage.told(&name, "VolumeDelete", "its data stays").await.unwrap();
    assert!(stage.ledger.begun("delete").unwrap().is_empty());
    stage.finish(&[&name]).await.unwrap();
}

/// CASES 25: every phase that the volume of a claim passes through until it is gone.
async fn phases_with_base(base: &Path) -> Vec<String> {
    let backend = json!({ "directory": { "path": base } });
    let stage = stage(Setup::backend(backend)).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let claim = stage.claim("data", &class).await.unwrap();
    let name = format!("pvc-{}", claim.uid().unwrap());
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut seen = std::pin::pin!(watcher(stage.scope.all_volumes(), only));
    let mut phases: Vec<String> = Vec::new();
    let watch = async {
        let mut deleting = None;
        while let Some(event) = seen.next().await {
            match event.unwrap() {
                watcher::Event::Apply(volume) | watcher::Event::InitApply(volume) => {
                    let phase = volume.status.and_then(|status| status.phase).unwrap_or_default();
                    if phase == "Bound" && deleting.is_none() {
                        cluster::delete(&stage.scope.claims(), "data").await.unwrap();
                        deleting = Some(());
                    }
                    phases.push(phase);
                }
                watcher::Event::Delete(_) => break,
                watcher::Event::Init | watcher::Event::InitDone => {}
            }
        }
    };
    tokio::time::timeout(DEADLINE, watch).await.unwrap();
    phases.dedup();
    stage.finish(&[]).await.unwrap();
    phases
}

/// CASES 25.
#[tokio::test]
async fn a_volume_below_tmp_never_passes_through_failed() {
    let base = tempfile::tempdir_in("/tmp").unwrap();
    let phases = phases_with_base(base.path()).await;
    assert!(phases.contains(&"Released".to_owned()) && !phases.contains(&"Failed".to_owned()), "{phases:?}");
}

/// CASES 25.
#[tokio::test]
async fn a_volume_outside_tmp_never_passes_through_failed() {
    let base = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let phases = phases_with_base(base.path()).await;
    assert!(phases.contains(&"Released".to_owned()) && !phases.contains(&"Failed".to_owned()), "{phases:?}");
}

/// CASES 67: volumes by hand with our annotation, at these places, which look like ours to be deleted.
#[tokio::test]
async fn forged_volumes_that_point_elsewhere_cost_nothing_but_a_warning() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    for directory in ["base/sub", "victim", "base/sub/nested"] {
        std::fs::create_dir_all(at(directory)).unwrap();
    }
    std::fs::write(at("victim/precious"), "data").unwrap();
    std::os::unix::fs::symlink(at("victim"), at("base/link")).unwrap();
    let stage = stage(Setup::backend(json!({ "directory": { "path": at("base") } }))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let living = stage.bound("data", &class).await.unwrap();
    let namespace = stage.scope.namespace().to_owned();
    std::os::unix::fs::symlink(at("victim"), at("base").join(format!("{namespace}-link"))).unwrap();
    let own_path = |name: &str| at("base").join(name).display().to_string();
    let forged = [
        ("outside", at("victim").display().to_string()),
        ("dots", at("base/../victim").display().to_string()),
        ("base", at("base").display().to_string()),
        ("root", "/".to_owned()),
        ("sub", at("base/sub").display().to_string()),
        ("through", at("base/link").display().to_string()),
        ("anothers", own_path(&living.name_any())),
        ("relative", "victim".to_owned()),
    ];
    let mut told = 0;
    for (name, path) in &forged {
        let name = format!("{namespace}-{name}");
        // The API server itself refuses dots in paths: then there is nothing to survive.
        if forge(&stage, &name, &class, path).await {
            stage.told(&name, "VolumeFailedDelete", "").await.unwrap();
            told += 1;
        }
    }
    assert!(told >= forged.len() - 1);
    // This one has the very path that its name would have: a link is in the way.
    let link = format!("{namespace}-link");
    assert!(forge(&stage, &link, &class, &own_path(&link)).await);
    stage.told(&link, "VolumeFailedDelete", "").await.unwrap();
    assert_eq!(std::fs::read_to_string(at("victim/precious")).unwrap(), "data");
    assert!(at("base/sub/nested").exists() && at("base").join(living.name_any()).exists());
    for name in forged.iter().map(|(name, _)| *name).chain(["link"]) {
        // One of them was refused.
        let _ = cluster::delete(&stage.scope.all_volumes(), &format!("{namespace}-{name}")).await;
    }
    stage.finish(&[]).await.unwrap();
    assert_eq!(std::fs::read_to_string(at("victim/precious")).unwrap(), "data");
    assert!(at("base/sub/nested").exists());
}

/// A volume by hand whose claim never was: kube-controller-manager releases it.
/// Whether the API server takes it.
async fn forge(stage: &Stage<'_>, name: &str, class: &str, path: &str) -> bool {
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": { "pv.kubernetes.io/provisioned-by": stage.scope.provisioner() },
        },
        "spec": {
            "capacity": { "storage": "1Mi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": class,
            "hostPath": { "path": path },
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": stage.scope.namespace(),
                "name": format!("never-{name}"),
                "uid": "00000000-0000-0000-0000-00000000dead",
            },
        },
    }))
    .unwrap();
    cluster::create(&stage.scope.all_volumes(), &volume).await.is_ok()
}

/// CASES 67.
#[tokio::test]
async fn names_annotations_and_parameters_that_try_to_escape_the_base_do_not() {
    let root = tempfile::tempdir().unwrap();
    let base = root.path().join("deep/base");
    std::fs::create_dir_all(&base).unwrap();
    let stage = stage(Setup::backend(json!({ "directory": { "path": base } }))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let odd = stage
        .class("odd", |class| {
            class.parameters = Some([("path".to_owned(), "../../escaped".to_owned())].into());
        })
        .await
        .unwrap();
    stage.claim("odd", &odd).await.unwrap();
    stage.told("odd", "ProvisioningFailed", "parameter").await.unwrap();
    let hostile = |claim: &mut PersistentVolumeClaim| {
        for key in ["path", "example.dev/path", "pv.kubernetes.io/path"] {
            claim.annotations_mut().insert(key.to_owned(), "/../../escaped\u{0}".to_owned());
        }
        claim.labels_mut().insert("path".to_owned(), "a..b".to_owned());
    };
    for name in ["a.b", "x-.-y", "0"] {
        if stage.scope.create_claim(name, &class, hostile).await.is_ok() {
            let volume = stage.volume_of(name).await.unwrap();
            assert!(base.join(volume.name_any()).is_dir());
        }
    }
    let names =
        |path: &Path| -> Vec<_> { path.read_dir().unwrap().map(|e| e.unwrap().file_name()).collect() };
    assert_eq!(names(root.path()), ["deep"]);
    assert_eq!(names(&root.path().join("deep")), ["base"]);
    stage.finish(&[]).await.unwrap();
}

/// CASES 83.
#[tokio::test]
async fn two_classes_with_different_backends_live_in_one_process() {
    let scope = crate::scope().await;
    let (first, second) = (scope.provisioner().to_owned(), second_provisioner(&scope));
    let other = Ledger::create(scope.directory(), "second").unwrap();
    let mut stage = Stage::empty(scope, crate::LEDGER.as_ref(), Setup::default()).await.unwrap();
    stage.set_keys(json!({
        "provisionerName": null,
        "backend": null,
        "provisioners": [
            { "name": first, "backend": stage.ledger_backend() },
            { "name": second, "backend": backend_of(&other, crate::LEDGER.as_ref()) },
        ],
    }));
    stage.add_replica("r0", None).await.unwrap();
    stage.wait_ready().await.unwrap();
    let one = stage.class("one", |_| ()).await.unwrap();
    let two = stage.class("two", |class| class.provisioner.clone_from(&second)).await.unwrap();
    let volumes = [stage.bound("a", &one).await.unwrap(), stage.bound("b", &two).await.unwrap()];
    let assets = [stage.ledger.assets().unwrap(), other.assets().unwrap()];
    for (volume, assets) in volumes.iter().zip(&assets) {
        assert_eq!(assets.iter().collect::<Vec<_>>(), [&volume.name_any()]);
    }
    for (claim, volume) in ["a", "b"].iter().zip(&volumes) {
        stage.delete_claim(claim).await.unwrap();
        stage.volume_gone(volume).await.unwrap();
    }
    assert!(other.assets().unwrap().is_empty());
    stage.finish(&[]).await.unwrap();
}
