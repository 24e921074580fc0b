//! Nodes: claims that wait for their pod, and nodes that are gone or can't have the volume.
//!
//! There is no kubelet: a node is an object that is patched Ready, and pods never start.

use std::collections::BTreeMap;

use chaos_tests::{
    cluster,
    ledger::{
        Conduct, Rule, Words,
        stage::{DEADLINE, Setup, Stage},
    },
    wait,
};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Map, json};

use crate::stage;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

fn waits(class: &mut StorageClass) {
    class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
}

fn nodes(stage: &Stage<'_>) -> Api<Node> {
    Api::all(stage.scope.client())
}

fn pods(stage: &Stage<'_>) -> Api<Pod> {
    Api::namespaced(stage.scope.client(), stage.scope.namespace())
}

/// A node that the scheduler takes for ready, for pods of this test only.
async fn node(stage: &Stage<'_>, suffix: &str) -> String {
    let namespace = stage.scope.namespace();
    let name = format!("{namespace}-{suffix}");
    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "test": namespace, "shelf": suffix },
        },
    }))
    .unwrap();
    cluster::create(&nodes(stage), &node).await.unwrap();
    let room = json!({ "cpu": "4", "memory": "4Gi", "pods": "100" });
    let status = json!({ "status": {
        "capacity": room,
        "allocatable": room,
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Test", "message": "" }],
    } });
    nodes(stage).patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    // kube-controller-manager marks a new node as not ready until it has seen the condition.
    let untainted = |node: &Node| {
        node.spec.as_ref().is_none_or(|spec| spec.taints.as_deref().unwrap_or_default().is_empty())
    };
    wait::until(&nodes(stage), &name, DEADLINE, untainted).await.unwrap();
    name
}

/// A pod that uses a claim, on the nodes of this test.
async fn pod(stage: &Stage<'_>, name: &str, claim: &str, node: Option<&str>) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "nodeSelector": { "test": stage.scope.namespace() },
            "containers": [{ "name": "main", "image": "none", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
            "tolerations": [{ "operator": "Exists" }],
        },
    }))
    .unwrap();
    wait::until_exists(
        &Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(
            stage.scope.client(),
            stage.scope.namespace(),
        ),
        "default",
        DEADLINE,
    )
    .await
    .unwrap();
    cluster::create(&pods(stage), &pod).await.unwrap();
}

/// No kubelet ends a pod: it is deleted with force, so that its claim may go.
async fn end(stage: &Stage<'_>, pod: &str) {
    pods(stage).delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    wait::until_gone(&pods(stage), pod, DEADLINE).await.unwrap();
}

async fn scheduled(stage: &Stage<'_>, pod: &str) -> String {
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let pod = wait::until(&pods(stage), pod, DEADLINE, |pod| node(pod).is_some()).await.unwrap();
    node(&pod).unwrap()
}

async fn remove_nodes(stage: &Stage<'_>, names: &[&str]) {
    for name in names {
        let _ = cluster::delete(&nodes(stage), name).await;
    }
}

/// LIFECYCLE, topology.
#[tokio::test]
async fn a_claim_that_waits_for_its_pod_gets_its_volume_on_the_pods_node() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", waits).await.unwrap();
    let a = node(&stage, "a").await;
    stage.claim("data", &class).await.unwrap();
    let terms = json!([{ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": [a] },
    ] }]);
    let affinity = json!({ "required": { "nodeSelectorTerms": terms } });
    let local = Words::Volume(Map::from_iter([("nodeAffinity".to_owned(), affinity)]));
    stage.ledger.set(&[Rule::on("provision").conduct(Conduct::words(local))]).unwrap();
    pod(&stage, "pod", "data", None).await;
    let volume = stage.volume_of("data").await.unwrap();
    assert_eq!(scheduled(&stage, "pod").await, a);
    assert!(volume.spec.unwrap().node_affinity.is_some());
    let request = &stage.ledger.begun("provision").unwrap()[0].request;
    assert_eq!(request["selectedNode"], a.as_str());
    assert_eq!(request["selectedNodeLabels"]["shelf"], "a", "the node's labels reach the backend");
    end(&stage, "pod").await;
    remove_nodes(&stage, &[&a]).await;
    stage.finish(&[]).await.unwrap();
}

/// CASES 49, by the backend's word.
#[tokio::test]
async fn a_node_that_the_backend_refuses_is_taken_off_the_claim_and_another_one_is_chosen() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", waits).await.unwrap();
    let refuse = Conduct::answer("reschedule", "no room on this node");
    stage.ledger.set(&[Rule::on("provision").first(1).conduct(refuse)]).unwrap();
    let (a, b) = (node(&stage, "a").await, node(&stage, "b").await);
    stage.claim("data", &class).await.unwrap();
    pod(&stage, "pod", "data", None).await;
    stage.volume_of("data").await.unwrap();
    let calls = stage.ledger.begun("provision").unwrap();
    assert_eq!(calls.len(), 2);
    let chosen = calls[1].request["selectedNode"].as_str().unwrap();
    assert_eq!(scheduled(&stage, "pod").await, chosen);
    end(&stage, "pod").await;
    remove_nodes(&stage, &[&a, &b]).await;
    stage.finish(&[]).await.unwrap();
}

/// CASES 49.
#[tokio::test]
async fn a_claim_whose_node_is_gone_lands_on_another_one() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", waits).await.unwrap();
    let a = node(&stage, "a").await;
    let gone = Conduct {
        door_before: Some("node-gone".to_owned()),
        ..Conduct::answer("reschedule", "node a is gone")
    };
    stage.ledger.set(&[Rule::on("provision").first(1).conduct(gone)]).unwrap();
    stage.claim("data", &class).await.unwrap();
    pod(&stage, "pod", "data", None).await;
    stage.ledger.wait_begun("provision", 1, DEADLINE).await.unwrap();
    let b = node(&stage, "b").await;
    cluster::delete(&nodes(&stage), &a).await.unwrap();
    stage.ledger.open("node-gone").unwrap();
    stage.volume_of("data").await.unwrap();
    assert_eq!(scheduled(&stage, "pod").await, b);
    let claim = stage.scope.claims().get("data").await.unwrap();
    assert_eq!(claim.annotations().get(SELECTED_NODE), Some(&b));
    end(&stage, "pod").await;
    remove_nodes(&stage, &[&b]).await;
    stage.finish(&[]).await.unwrap();
}

/// CASES 10.
#[tokio::test]
async fn an_asset_still_in_the_making_is_found_out_and_removed_when_node_pod_and_claim_are_gone() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", waits).await.unwrap();
    let a = node(&stage, "a").await;
    let working = Words::Outcome("background".to_owned(), "still copying".to_owned());
    stage.ledger.set(&[Rule::on("provision").conduct(Conduct::words(working))]).unwrap();
    stage.claim("data", &class).await.unwrap();
    pod(&stage, "pod", "data", None).await;
    stage.told("data", "ProvisioningFailed", "still copying").await.unwrap();
    assert_eq!(stage.ledger.assets().unwrap().len(), 1);
    cluster::delete(&nodes(&stage), &a).await.unwrap();
    end(&stage, "pod").await;
    stage.delete_claim("data").await.unwrap();
    stage.ledger.set(&[]).unwrap();
    let empty = || Ok(stage.ledger.assets()?.is_empty().then_some(()));
    stage.ledger.wait("the asset is removed", DEADLINE, empty).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// CASES 56: the volume's node is gone, and its data with it or without.
#[tokio::test]
async fn a_volume_whose_node_is_gone_is_told_and_ends_by_its_policy() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", waits).await.unwrap();
    let a = node(&stage, "a").await;
    let terms = json!([{ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": [a] },
    ] }]);
    let affinity = json!({ "required": { "nodeSelectorTerms": terms } });
    let local = Words::Volume(Map::from_iter([("nodeAffinity".to_owned(), affinity)]));
    let unreachable = Conduct::answer("failed", "node a is gone, and the volume's data is on it");
    stage
        .ledger
        .set(&[Rule::on("provision").conduct(Conduct::words(local)), Rule::on("delete").conduct(unreachable)])
        .unwrap();
    let mut volumes = Vec::new();
    for name in ["lost", "found"] {
        stage.claim(name, &class).await.unwrap();
        pod(&stage, name, name, None).await;
        volumes.push(stage.volume_of(name).await.unwrap());
        end(&stage, name).await;
    }
    remove_nodes(&stage, &[&a]).await;
    for (name, volume) in ["lost", "found"].into_iter().zip(&volumes) {
        stage.delete_claim(name).await.unwrap();
        stage.told(&volume.name_any(), "VolumeFailedDelete", "node a is gone").await.unwrap();
    }
    // Its data is not worth waiting for: with Retain the volume is let go, and the backend told.
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    let (lost, found) = (&volumes[0], &volumes[1]);
    let all = stage.scope.all_volumes();
    all.patch(&lost.name_any(), &PatchParams::default(), &Patch::Merge(retain)).await.unwrap();
    let _ = cluster::delete(&all, &lost.name_any()).await;
    stage.volume_gone(lost).await.unwrap();
    // The node comes back: the other one is deleted unaided.
    stage.ledger.set(&[]).unwrap();
    stage.volume_gone(found).await.unwrap();
    stage.finish(&[&lost.name_any()]).await.unwrap();
}

/// CASES 53.
#[tokio::test]
async fn a_pod_that_bypasses_the_scheduler_gets_nothing_and_a_hint_why() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", waits).await.unwrap();
    let a = node(&stage, "a").await;
    stage.claim("data", &class).await.unwrap();
    pod(&stage, "pod", "data", Some(&a)).await;
    let immediate = stage.class("b", |_| ()).await.unwrap();
    stage.bound("other", &immediate).await.unwrap();
    assert!(stage.ledger.log().unwrap().iter().all(|call| call.claim != "data"));
    // The hint is kube-controller-manager's: it waits for the first consumer to be scheduled.
    let events = stage.scope.events();
    let about = kube::api::ListParams::default().fields("involvedObject.name=data");
    let hinted = async || {
        let told = events.list(&about).await?;
        let reasons: Vec<_> = told.iter().filter_map(|event| event.reason.clone()).collect();
        let hint =
            reasons.iter().any(|reason| reason == "WaitForFirstConsumer" || reason == "WaitForPodScheduled");
        Ok((!hint).then(|| format!("{reasons:?}")))
    };
    stage.eventually("the claim says what it waits for", hinted).await.unwrap();
    assert_eq!(stage.replica(0).unwrap().exit_status(), None);
    end(&stage, "pod").await;
    remove_nodes(&stage, &[&a]).await;
    stage.finish(&[]).await.unwrap();
}

/// CASES 54.
#[tokio::test]
async fn an_immediate_class_on_a_backend_bound_to_nodes_is_told_once_what_to_do() {
    let stage = stage(Setup::default()).await;
    let advice = "volumes here belong to a node: use a class with volumeBindingMode WaitForFirstConsumer";
    stage.ledger.set(&[Rule::on("provision").conduct(Conduct::answer("infeasible", advice))]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.told("data", "ProvisioningFailed", advice).await.unwrap();
    stage.ledger.wait_begun("provision", 2, DEADLINE).await.unwrap();
    assert_eq!(stage.events("data", "ProvisioningFailed").await.unwrap().len(), 1);
    stage.delete_claim("data").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// CASES 45.
#[tokio::test]
async fn a_pods_claim_binds_unaided_once_its_class_is_made_anew() {
    let stage = stage(Setup::with(json!({ "retryInitial": "200ms", "retryMax": "5m" }))).await;
    let refuse = Conduct::answer("infeasible", "no pool \"tpyo\"");
    stage.ledger.set(&[Rule::on("provision").conduct(refuse)]).unwrap();
    let class = stage.class("a", waits).await.unwrap();
    let a = node(&stage, "a").await;
    stage.claim("data", &class).await.unwrap();
    pod(&stage, "pod", "data", None).await;
    stage.told("data", "ProvisioningFailed", "no pool").await.unwrap();
    stage.ledger.set(&[]).unwrap();
    let classes: Api<StorageClass> = Api::all(stage.scope.client());
    cluster::delete(&classes, &class).await.unwrap();
    wait::until_gone(&classes, &class, DEADLINE).await.unwrap();
    stage
        .class("a", |class| {
            waits(class);
            class.parameters = Some(BTreeMap::from([("pool".to_owned(), "fast".to_owned())]));
        })
        .await
        .unwrap();
    stage.volume_of("data").await.unwrap();
    assert_eq!(scheduled(&stage, "pod").await, a);
    end(&stage, "pod").await;
    remove_nodes(&stage, &[&a]).await;
    stage.finish(&[]).await.unwrap();
}

/// CASES 47, with a class that waits: the node was forged.
#[tokio::test]
async fn a_forged_node_is_one_more_call_and_at_most_one_asset() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", waits).await.unwrap();
    let forge = |claim: &mut PersistentVolumeClaim| {
        claim.annotations_mut().insert(SELECTED_NODE.to_owned(), "../no-such-node".to_owned());
        let ours = stage.scope.provisioner().to_owned();
        claim.annotations_mut().insert("volume.kubernetes.io/storage-provisioner".to_owned(), ours);
    };
    stage.scope.create_claim("data", &class, forge).await.unwrap();
    stage.volume_of("data").await.unwrap();
    assert_eq!(stage.ledger.assets().unwrap().len(), 1);
    stage.finish(&[]).await.unwrap();
}
