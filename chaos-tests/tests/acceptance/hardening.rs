//! What the Pod may do, and what is never read: the shipped Deployment under Pod Security, and secrets.

use std::path::Path;

use chaos_tests::{
    ledger::{
        audit,
        stage::{Setup, workspace},
    },
    manifests,
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, PersistentVolume, Pod, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{scope, stage};

/// The Pod that the shipped Deployment makes.
fn shipped_pod(deploy: &Path) -> Value {
    let objects = manifests::read(deploy, &[]).unwrap();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let mut pod = deployment["spec"]["template"].clone();
    pod["metadata"]["name"] = "shipped".into();
    pod
}

/// The same for a backend that needs no directory of the node.
fn without_host_path(mut pod: Value) -> Value {
    for volume in pod["spec"]["volumes"].as_array_mut().unwrap() {
        if volume.as_object_mut().unwrap().remove("hostPath").is_some() {
            volume["emptyDir"] = json!({});
        }
    }
    pod
}

/// What a namespace of this level says to the Pod; nothing if it takes it.
async fn refusal(pods: &Api<Pod>, pod: Value) -> String {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match pods.create(&dry, &serde_json::from_value(pod).unwrap()).await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

/// CASES 77: asked of the API server's own admission.
#[tokio::test]
async fn the_shipped_pod_is_of_the_restricted_level_but_for_the_nodes_directory() {
    let scope = scope().await;
    let deploy = workspace().join("deploy");
    scope.install_permissions(&deploy, &[]).await.unwrap();
    let level = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: Api<Namespace> = Api::all(scope.client());
    namespaces.patch(scope.namespace(), &PatchParams::default(), &Patch::Merge(level)).await.unwrap();
    let pods = Api::namespaced(scope.client(), scope.namespace());

    assert_eq!(refusal(&pods, without_host_path(shipped_pod(&deploy))).await, "");
    let told = refusal(&pods, shipped_pod(&deploy)).await;
    assert!(told.contains("hostPath"), "{told}");
    for rule in ["runAsNonRoot", "allowPrivilegeEscalation", "capabilities", "seccompProfile"] {
        assert!(!told.contains(rule), "{rule}: {told}");
        let mut weaker = without_host_path(shipped_pod(&deploy));
        for place in ["/spec/securityContext", "/spec/containers/0/securityContext"] {
            weaker.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(rule);
        }
        let told = refusal(&pods, weaker).await;
        assert!(told.contains(rule), "without {rule} the level must refuse: {told:?}");
    }
    let root = "/spec/containers/0/securityContext/readOnlyRootFilesystem";
    assert_eq!(shipped_pod(&deploy).pointer(root), Some(&json!(true)), "no level asks for this");
}

/// CASES 74: a volume by hand, with our annotation, that points at a secret of another namespace in every way
/// that there is.
#[tokio::test]
async fn a_secret_that_a_forged_volume_points_at_is_never_read() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let theirs = stage.scope.namespace().to_owned() + "-theirs";
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": theirs } })).unwrap();
    Api::all(stage.scope.client()).create(&PostParams::default(), &namespace).await.unwrap();
    let secret = Secret {
        metadata: serde_json::from_value(json!({ "name": "credentials" })).unwrap(),
        data: Some([("password".to_owned(), ByteString(b"hunter-of-secrets".to_vec()))].into()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(stage.scope.client(), &theirs);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let reference = json!({ "name": "credentials", "namespace": theirs });
    let name = format!("{}-forged", stage.scope.namespace());
    let forged: PersistentVolume = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": {
                "pv.kubernetes.io/provisioned-by": stage.scope.provisioner(),
                "volume.kubernetes.io/provisioner-deletion-secret-name": "credentials",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": theirs,
            },
        },
        "spec": {
            "capacity": { "storage": "1Mi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": class,
            "csi": {
                "driver": stage.scope.provisioner(),
                "volumeHandle": "theirs",
                "nodePublishSecretRef": reference,
                "nodeStageSecretRef": reference,
                "controllerPublishSecretRef": reference,
                "controllerExpandSecretRef": reference,
                "nodeExpandSecretRef": reference,
            },
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": stage.scope.namespace(),
                "name": "never", "uid": "00000000-0000-0000-0000-00000000dead",
            },
        },
    }))
    .unwrap();
    let forged = stage.scope.all_volumes().create(&PostParams::default(), &forged).await.unwrap();
    // The ledger has nothing of that name: the deletion succeeds.
    stage.volume_gone(&forged).await.unwrap();
    let calls = stage.ledger.begun("delete").unwrap();
    assert_eq!(calls.iter().filter(|call| call.volume == forged.name_any()).count(), 1);
    let told = format!("{:?}", stage.ledger.log().unwrap());
    let encoded = serde_json::to_value(ByteString(b"hunter-of-secrets".to_vec())).unwrap();
    for words in ["hunter-of-secrets", encoded.as_str().unwrap()] {
        assert!(!told.contains(words), "the backend was told a secret");
    }
    let log = stage.scope.plane().audit_log().unwrap();
    let sent = audit::requests_of(log, stage.scope.namespace()).unwrap();
    assert!(sent.iter().any(|request| request.verb == "delete" && request.name == forged.name_any()));
    let asked: Vec<_> = sent.iter().filter(|request| request.resource == "secrets").collect();
    assert!(asked.is_empty(), "{asked:?}");
    stage.finish(&[]).await.unwrap();
}

/// CASES 74: nor could it.
#[test]
fn the_shipped_roles_grant_nothing_on_secrets() {
    let objects = manifests::read(&workspace().join("deploy"), &[]).unwrap();
    let roles = objects.iter().filter(|object| object["rules"].is_array());
    let rules: Vec<&Value> = roles.flat_map(|role| role["rules"].as_array().unwrap()).collect();
    assert!(rules.len() > 5, "{rules:?}");
    for rule in rules {
        let resources = rule["resources"].as_array().cloned().unwrap_or_default();
        assert!(!resources.contains(&json!("secrets")) && !resources.contains(&json!("*")), "{rule}");
    }
}
