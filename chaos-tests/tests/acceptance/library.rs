//! The library from outside: a backend of this test in a controller of this process, as its users write them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use chaos_tests::{
    cluster::{self, Scope},
    ledger::stage::DEADLINE,
    wait,
};
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use kube::{Api, ResourceExt};
use kube_provisioner::{
    ControllerOptions, DeleteError, LeaderElectionOptions, ProvisionController, ProvisionError, Provisioner,
    VolumeOptions,
    provisioner::{Capabilities, async_trait},
};
use tokio::sync::oneshot;

/// Keeps its assets in memory, leaves what is labelled `theirs` to others, and names volumes itself.
#[derive(Default)]
struct Memory {
    assets: Mutex<BTreeSet<String>>,
    deleted: Mutex<Vec<String>>,
}

fn is_theirs(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key("theirs")
}

#[async_trait]
impl Provisioner for Memory {
    async fn provision(&self, options: VolumeOptions) -> Result<PersistentVolume, ProvisionError> {
        self.assets.lock().unwrap().insert(options.pv_name.clone());
        let path = format!("/nowhere/{}", options.pv_name);
        let host_path = Some(HostPathVolumeSource { path, type_: None });
        let spec = Some(PersistentVolumeSpec { host_path, ..PersistentVolumeSpec::default() });
        Ok(PersistentVolume { spec, ..PersistentVolume::default() })
    }

    async fn delete(&self, volume: &PersistentVolume) -> Result<(), DeleteError> {
        self.assets.lock().unwrap().remove(&volume.name_any());
        self.deleted.lock().unwrap().push(volume.name_any());
        Ok(())
    }

    async fn capabilities(&self) -> Capabilities {
        Capabilities { selective: true, ..Capabilities::default() }
    }

    fn volume_name(&self, claim_uid: &str) -> Option<String> {
        Some(format!("memory-of-{claim_uid}"))
    }

    fn should_provision(&self, claim: &PersistentVolumeClaim) -> bool {
        !is_theirs(claim.labels())
    }

    fn should_delete(&self, volume: &PersistentVolume) -> bool {
        !is_theirs(volume.labels())
    }
}

/// A controller of this process that leads.
async fn controller(
    scope: &Scope<'_>,
    backend: Arc<Memory>,
    options: ControllerOptions,
) -> oneshot::Sender<()> {
    let election = LeaderElectionOptions {
        lease_namespace: Some(scope.namespace().to_owned()),
        ..LeaderElectionOptions::fast()
    };
    let config = scope.plane().client_config().await.unwrap();
    let controller =
        ProvisionController::builder(config).provisioner(options, election, backend).build().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(controller.run(async { drop(stopped.await) }));
    stop
}

async fn volume_of(scope: &Scope<'_>, claim: &str) -> PersistentVolume {
    let claim = scope.wait_bound(claim, DEADLINE).await.unwrap();
    scope.all_volumes().get(&claim.spec.unwrap().volume_name.unwrap()).await.unwrap()
}

async fn released(scope: &Scope<'_>, claim: &str) {
    cluster::delete(&scope.claims(), claim).await.unwrap();
}

/// LIFECYCLE: `should_provision`, `should_delete`, and the hook that names volumes.
#[tokio::test]
async fn a_backend_of_a_user_names_volumes_and_leaves_claims_and_volumes_to_others_by_its_filters() {
    let scope = crate::scope().await;
    let backend = Arc::new(Memory::default());
    let stop = controller(&scope, backend.clone(), ControllerOptions::new(scope.provisioner())).await;
    let class = scope.create_class("a", |_| ()).await.unwrap().name_any();
    let theirs = |claim: &mut PersistentVolumeClaim| {
        claim.labels_mut().insert("theirs".to_owned(), "yes".to_owned());
    };
    scope.create_claim("theirs", &class, theirs).await.unwrap();
    let mut names = Vec::new();
    for name in ["a", "b"] {
        let claim = scope.create_claim(name, &class, |_| ()).await.unwrap();
        let volume = volume_of(&scope, name).await;
        assert_eq!(volume.name_any(), format!("memory-of-{}", claim.uid().unwrap()));
        names.push(volume.name_any());
    }
    assert_eq!(*backend.assets.lock().unwrap(), names.iter().cloned().collect(), "theirs has none");
    let volumes: Api<PersistentVolume> = scope.all_volumes();
    let label = serde_json::json!({ "metadata": { "labels": { "theirs": "yes" } } });
    let parameters = kube::api::PatchParams::default();
    volumes.patch(&names[0], &parameters, &kube::api::Patch::Merge(label)).await.unwrap();
    released(&scope, "a").await;
    released(&scope, "b").await;
    wait::until_gone(&volumes, &names[1], DEADLINE).await.unwrap();
    assert_eq!(*backend.deleted.lock().unwrap(), names[1..]);
    assert!(volumes.get(&names[0]).await.unwrap().metadata.deletion_timestamp.is_none());
    let strip = serde_json::json!({ "metadata": { "finalizers": null } });
    volumes.patch(&names[0], &parameters, &kube::api::Patch::Merge(strip)).await.unwrap();
    cluster::delete(&volumes, &names[0]).await.unwrap();
    drop(stop);
}
