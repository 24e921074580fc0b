//! What is read from claims and classes, and what stands on the volumes that are made for them.

use std::collections::BTreeMap;

use chaos_tests::{
    cluster,
    ledger::{
        Conduct, Rule,
        stage::{DEADLINE, Setup, Stage},
    },
    wait,
};
use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, TopologySelectorLabelRequirement, TopologySelectorTerm},
    storage::v1::StorageClass,
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    claims::{another_claim_passes, calls_about, spec},
    stage,
};

const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

fn parameters(pool: &str) -> Option<BTreeMap<String, String>> {
    Some(BTreeMap::from([("pool".to_owned(), pool.to_owned())]))
}

fn annotate(claim: &mut PersistentVolumeClaim, key: &str, value: &str) {
    claim.annotations_mut().insert(key.to_owned(), value.to_owned());
}

/// LIFECYCLE: what the controller sets where the backend did not, all in the write that makes the volume.
#[tokio::test]
async fn a_volume_says_whose_it_is_who_made_it_and_how() {
    let stage = stage(Setup::default()).await;
    let zones = TopologySelectorTerm {
        match_label_expressions: Some(vec![TopologySelectorLabelRequirement {
            key: "zone".to_owned(),
            values: vec!["z1".to_owned()],
        }]),
    };
    let rich = |class: &mut StorageClass| {
        class.parameters = parameters("fast");
        class.mount_options = Some(vec!["noatime".to_owned()]);
        class.allowed_topologies = Some(vec![zones]);
    };
    let class = stage.class("a", rich).await.unwrap();
    let claim = stage.claim("data", &class).await.unwrap();
    let volume = stage.volume_of("data").await.unwrap();
    let annotations = volume.annotations().clone();
    assert_eq!(annotations["pv.kubernetes.io/provisioned-by"], stage.scope.provisioner());
    assert_eq!(annotations["kube-provisioner.dev/parameters"], r#"{"pool":"fast"}"#);
    assert!(!annotations.contains_key("kube-provisioner.dev/instance"));
    let spec = volume.spec.unwrap();
    let of = spec.claim_ref.unwrap();
    assert_eq!((of.api_version.as_deref(), of.kind.as_deref()), (Some("v1"), Some("PersistentVolumeClaim")));
    assert_eq!(of.namespace.as_deref(), Some(stage.scope.namespace()));
    assert_eq!((of.name.as_deref(), of.uid), (Some("data"), claim.uid()));
    assert!(of.resource_version.is_some());
    assert_eq!(spec.storage_class_name.as_deref(), Some(class.as_str()));
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
    assert_eq!(spec.mount_options.unwrap(), ["noatime"]);
    assert_eq!(spec.volume_mode.as_deref(), Some("Filesystem"));
    assert_eq!(spec.access_modes.unwrap(), ["ReadWriteOnce"]);
    let request = &stage.ledger.begun("provision").unwrap()[0].request;
    let zones = &request["storageClass"]["allowedTopologies"][0]["matchLabelExpressions"][0];
    assert_eq!(*zones, json!({ "key": "zone", "values": ["z1"] }), "topologies reach the backend as data");
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: the older annotation wins over the field.
#[tokio::test]
async fn the_class_in_the_older_annotation_wins_over_the_field() {
    let stage = stage(Setup::default()).await;
    let wins = stage.class("wins", |class| class.parameters = parameters("annotated")).await.unwrap();
    let loses = stage.class("loses", |class| class.parameters = parameters("field")).await.unwrap();
    let both = |claim: &mut PersistentVolumeClaim| {
        annotate(claim, "volume.beta.kubernetes.io/storage-class", &wins);
    };
    stage.scope.create_claim("data", &loses, both).await.unwrap();
    let volume = stage.volume_of("data").await.unwrap();
    assert_eq!(volume.spec.unwrap().storage_class_name, Some(wins));
    assert_eq!(stage.ledger.begun("provision").unwrap()[0].request["parameters"]["pool"], "annotated");
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: both annotations that name the owner. kube-controller-manager writes none where no class is.
#[tokio::test]
async fn each_annotation_that_names_us_makes_a_claim_ours() {
    let stage = stage(Setup::default()).await;
    let late = format!("{}-late", stage.scope.namespace());
    for (number, key) in PROVISIONER.iter().enumerate() {
        let named = |claim: &mut PersistentVolumeClaim| annotate(claim, key, stage.scope.provisioner());
        let name = format!("data-{number}");
        stage.scope.create_claim(&name, &late, named).await.unwrap();
        stage.told(&name, "ProvisioningFailed", "does not exist").await.unwrap();
    }
    stage.class("late", |_| ()).await.unwrap();
    for number in 0..PROVISIONER.len() {
        stage.volume_of(&format!("data-{number}")).await.unwrap();
    }
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: additional names.
#[tokio::test]
async fn claims_and_volumes_of_an_additional_name_are_ours_and_keep_that_name() {
    let scope = crate::scope().await;
    let also = format!("also-{}", scope.provisioner());
    let keys = json!({ "additionalProvisionerNames": [also] });
    let stage = Stage::start(scope, crate::LEDGER.as_ref(), Setup::with(keys)).await.unwrap();
    let class = stage.class("a", |class| class.provisioner.clone_from(&also)).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    assert_eq!(volume.annotations()["pv.kubernetes.io/provisioned-by"], also);
    stage.told("data", "ProvisioningSucceeded", &volume.name_any()).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    assert!(stage.ledger.assets().unwrap().is_empty());
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: names.
#[tokio::test]
async fn a_volumes_name_has_the_prefix_and_as_much_of_the_uid_as_was_configured() {
    let keys = json!({ "volumeNamePrefix": "shelf", "volumeNameUuidLength": 10 });
    let stage = stage(Setup::with(keys)).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let claim = stage.claim("data", &class).await.unwrap();
    let volume = stage.volume_of("data").await.unwrap();
    let digits: String = claim.uid().unwrap().chars().filter(|digit| *digit != '-').take(10).collect();
    assert_eq!(volume.name_any(), format!("shelf-{digits}"));
    assert_eq!(stage.ledger.assets().unwrap().iter().collect::<Vec<_>>(), [&volume.name_any()]);
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: a deletionTimestamp. The Go library provisions such a claim.
#[tokio::test]
async fn a_claim_that_is_going_away_gets_no_volume() {
    let stage = stage(Setup::default()).await;
    let held = |claim: &mut PersistentVolumeClaim| {
        annotate(claim, PROVISIONER[0], stage.scope.provisioner());
        claim.finalizers_mut().push("example.dev/held".to_owned());
    };
    let late = format!("{}-late", stage.scope.namespace());
    stage.scope.create_claim("data", &late, held).await.unwrap();
    stage.told("data", "ProvisioningFailed", "does not exist").await.unwrap();
    cluster::delete(&stage.scope.claims(), "data").await.unwrap();
    let class = stage.class("late", |_| ()).await.unwrap();
    another_claim_passes(&stage, &class).await;
    assert_eq!(calls_about(&stage, "data"), 0);
    let let_go = json!({ "metadata": { "finalizers": null } });
    stage.scope.claims().patch("data", &PatchParams::default(), &Patch::Merge(let_go)).await.unwrap();
    wait::until_gone(&stage.scope.claims(), "data", DEADLINE).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: a data source that the backend does not read.
#[tokio::test]
async fn a_claim_with_a_data_source_is_refused_with_one_event() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let sources: [(&str, Value); 2] = [
        ("clone", json!({ "kind": "PersistentVolumeClaim", "name": "passer-by" })),
        ("restored", json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" })),
    ];
    for (name, source) in sources {
        let filled = |claim: &mut PersistentVolumeClaim| {
            spec(claim).data_source = Some(serde_json::from_value(source).unwrap());
        };
        stage.scope.create_claim(name, &class, filled).await.unwrap();
        stage.told(name, "ProvisioningFailed", "does not fill volumes").await.unwrap();
    }
    another_claim_passes(&stage, &class).await;
    for name in ["clone", "restored"] {
        assert_eq!(calls_about(&stage, name), 0);
        assert_eq!(stage.events(name, "ProvisioningFailed").await.unwrap().len(), 1);
    }
    stage.finish(&[]).await.unwrap();
}

/// CASES 26: the parameters that the volume was made with come with it, whatever became of its class.
#[tokio::test]
async fn a_deletion_is_told_the_parameters_that_the_volume_was_made_with() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |class| class.parameters = parameters("first")).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    stage.ledger.set(&[Rule::on("delete").first(1).conduct(Conduct::answer("failed", "not yet"))]).unwrap();
    let classes: kube::Api<StorageClass> = kube::Api::all(stage.scope.client());
    cluster::delete(&classes, &class).await.unwrap();
    wait::until_gone(&classes, &class, DEADLINE).await.unwrap();
    stage.class("a", |class| class.parameters = parameters("second")).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    let asked = stage.ledger.begun("delete").unwrap();
    assert_eq!(asked.len(), 2);
    for call in &asked {
        let annotations = &call.request["volume"]["metadata"]["annotations"];
        assert_eq!(annotations["kube-provisioner.dev/parameters"], r#"{"pool":"first"}"#);
    }
    stage.finish(&[]).await.unwrap();
}
