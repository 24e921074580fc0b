//! What claims may ask for, and what is said where they ask too much.

use std::collections::BTreeMap;

use chaos_tests::{
    cluster,
    ledger::{
        Conduct, Rule, Words,
        stage::{DEADLINE, Setup, Stage, message},
    },
    wait,
};
use k8s_openapi::{
    api::{
        core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::LabelSelector},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Map, Value, json};

use crate::stage;

pub(crate) fn spec(claim: &mut PersistentVolumeClaim) -> &mut PersistentVolumeClaimSpec {
    claim.spec.as_mut().unwrap()
}

fn request(claim: &mut PersistentVolumeClaim, size: &str) {
    let requests = BTreeMap::from([("storage".to_owned(), Quantity(size.to_owned()))]);
    spec(claim).resources.as_mut().unwrap().requests = Some(requests);
}

/// A volume by hand, of this source.
pub(crate) fn by_hand(name: &str, class: &str, source: Value) -> PersistentVolume {
    let mut volume = json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "1Mi" },
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
        },
    });
    volume["spec"].as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    serde_json::from_value(volume).unwrap()
}

/// A claim goes its whole way. What was asked of the backend about other claims before it is complete by then, also
/// what should not have been asked.
pub(crate) async fn another_claim_passes(stage: &Stage<'_>, class: &str) {
    let volume = stage.bound("passer-by", class).await.unwrap();
    stage.delete_claim("passer-by").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
}

pub(crate) fn calls_about(stage: &Stage<'_>, claim: &str) -> usize {
    stage.ledger.log().unwrap().iter().filter(|call| call.claim == claim).count()
}

/// CASES 65.
#[tokio::test]
async fn a_claim_that_names_its_volume_never_reaches_the_backend() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let name = format!("{}-static", stage.scope.namespace());
    let volume = by_hand(&name, &class, json!({ "hostPath": { "path": "/nowhere" } }));
    let named = |claim: &mut PersistentVolumeClaim| spec(claim).volume_name = Some(name.clone());
    stage.scope.create_claim("data", &class, named).await.unwrap();
    another_claim_passes(&stage, &class).await;
    cluster::create(&stage.scope.all_volumes(), &volume).await.unwrap();
    assert_eq!(stage.volume_of("data").await.unwrap().name_any(), name);
    another_claim_passes(&stage, &class).await;
    assert_eq!(calls_about(&stage, "data"), 0);
    stage.finish(&[]).await.unwrap();
    // It is nobody's but the test's.
}

/// CASES 8.
#[tokio::test]
async fn an_asset_that_is_there_already_is_adopted() {
    let stage = stage(Setup::default()).await;
    let lost = Rule::on("provision").first(1).conduct(Conduct::words(Words::Exit(9)));
    stage.ledger.set(&[lost]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.bound("data", &class).await.unwrap();
    let calls = stage.ledger.ended("provision").unwrap();
    assert_eq!(calls.iter().map(|call| call.changed).collect::<Vec<_>>(), [true, false]);
    stage.finish(&[]).await.unwrap();
}

/// CASES 7: the volume's name is known once the first attempt has failed.
#[tokio::test]
async fn a_volume_of_the_same_name_for_another_claim_is_no_success_and_no_leak() {
    let stage = stage(Setup::default()).await;
    let shut = Rule::on("provision").claim("data").conduct(Conduct::answer("failed", "not yet"));
    stage.ledger.set(&[shut]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    let claim = stage.claim("data", &class).await.unwrap();
    let name = format!("pvc-{}", claim.uid().unwrap());
    stage.told("data", "ProvisioningFailed", "not yet").await.unwrap();
    let mut foreign = by_hand(&name, &class, json!({ "hostPath": { "path": "/elsewhere" } }));
    foreign.spec.as_mut().unwrap().claim_ref = Some(ObjectReference {
        namespace: Some("default".to_owned()),
        name: Some("somebody-elses".to_owned()),
        uid: Some("00000000-0000-0000-0000-000000000001".to_owned()),
        ..ObjectReference::default()
    });
    cluster::create(&stage.scope.all_volumes(), &foreign).await.unwrap();
    let busy = Rule::on("delete").first(1).conduct(Conduct::answer("failed", "the shelf is locked"));
    stage.ledger.set(&[busy]).unwrap();
    stage.told("data", "ProvisioningFailed", "belongs to another claim").await.unwrap();
    let left = format!("the surplus asset {name} could not be removed: the shelf is locked");
    let event = stage.told("data", "ProvisioningCleanupFailed", &left).await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let clean = async || Ok(stage.ledger.assets()?.iter().next().cloned());
    stage.eventually("an asset that this volume does not use is removed", clean).await.unwrap();
    let pending = stage.scope.claims().get("data").await.unwrap();
    assert_eq!(pending.status.unwrap().phase.as_deref(), Some("Pending"));
    stage.scope.all_volumes().delete(&name, &DeleteParams::default()).await.unwrap();
    let volume = stage.volume_of("data").await.unwrap();
    assert_eq!(volume.name_any(), name);
    stage.finish(&[]).await.unwrap();
}

/// CASES 13.
#[tokio::test]
async fn a_change_of_a_label_during_an_attempt_neither_loses_nor_hastens_the_next() {
    let stage = stage(Setup::default()).await;
    stage
        .ledger
        .set(&[
            Rule::on("provision").first(1).conduct(Conduct::answer("failed", "first")),
            Rule::on("provision").first(2).conduct(Conduct {
                door_before: Some("second".to_owned()),
                ..Conduct::answer("failed", "second")
            }),
        ])
        .unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.ledger.wait_begun("provision", 2, DEADLINE).await.unwrap();
    let label = json!({ "metadata": { "labels": { "changed": "meanwhile" } } });
    stage.scope.claims().patch("data", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    stage.ledger.open("second").unwrap();
    stage.volume_of("data").await.unwrap();
    let (ended, begun) = (stage.ledger.ended("provision").unwrap(), stage.ledger.begun("provision").unwrap());
    assert_eq!(begun.len(), 3);
    // The second wait of 400 ms, less a tenth of jitter.
    assert!(begun[2].at - ended[1].at >= 350_000_000, "a label is no reason to hurry");
    stage.finish(&[]).await.unwrap();
}

/// CASES 6.
#[tokio::test]
async fn the_backend_is_left_alone_once_an_impossible_claim_is_deleted() {
    let stage = stage(Setup::default()).await;
    let impossible =
        Rule::on("provision").claim("data").conduct(Conduct::answer("failed", "8 EiB is too much"));
    stage.ledger.set(&[impossible]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.scope.create_claim("data", &class, |claim| request(claim, "8191Pi")).await.unwrap();
    stage.told("data", "ProvisioningFailed", "8 EiB is too much").await.unwrap();
    stage.delete_claim("data").await.unwrap();
    another_claim_passes(&stage, &class).await;
    let calls = calls_about(&stage, "data");
    // Longer than the longest step of the backoff, which is 2 s here: this is the one thing that only time shows.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(calls_about(&stage, "data"), calls);
    stage.finish(&[]).await.unwrap();
}

/// CASES 59.
#[tokio::test]
async fn a_selector_is_refused_once_and_a_volume_with_its_labels_binds() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let labels = BTreeMap::from([("speed".to_owned(), stage.scope.namespace().to_owned())]);
    let selector = LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() };
    let with_selector = |claim: &mut PersistentVolumeClaim| spec(claim).selector = Some(selector);
    stage.scope.create_claim("data", &class, with_selector).await.unwrap();
    stage.told("data", "ProvisioningFailed", "selector").await.unwrap();
    another_claim_passes(&stage, &class).await;
    assert_eq!(calls_about(&stage, "data"), 0);
    assert_eq!(stage.events("data", "ProvisioningFailed").await.unwrap().len(), 1);
    let name = format!("{}-static", stage.scope.namespace());
    let mut volume = by_hand(&name, &class, json!({ "hostPath": { "path": "/nowhere" } }));
    volume.metadata.labels = Some(labels);
    cluster::create(&stage.scope.all_volumes(), &volume).await.unwrap();
    assert_eq!(stage.volume_of("data").await.unwrap().name_any(), name);
    stage.finish(&[]).await.unwrap();
}

fn block(claim: &mut PersistentVolumeClaim) {
    spec(claim).volume_mode = Some("Block".to_owned());
}

/// CASES 61.
#[tokio::test]
async fn a_block_claim_is_refused_with_one_event_by_a_backend_that_makes_none() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.scope.create_claim("data", &class, block).await.unwrap();
    stage.told("data", "ProvisioningFailed", "block").await.unwrap();
    another_claim_passes(&stage, &class).await;
    assert_eq!(calls_about(&stage, "data"), 0);
    assert_eq!(stage.events("data", "ProvisioningFailed").await.unwrap().len(), 1);
    stage.finish(&[]).await.unwrap();
}

/// CASES 61, the other way.
#[tokio::test]
async fn a_block_claim_gets_a_block_volume_from_a_backend_that_makes_them() {
    let scope = crate::scope().await;
    let mut stage = Stage::empty(scope, crate::LEDGER.as_ref(), Setup::default()).await.unwrap();
    let able = Words::Volume(Map::from_iter([("block".to_owned(), json!(true))]));
    stage.ledger.set(&[Rule::on("capabilities").conduct(Conduct::words(able))]).unwrap();
    stage.add_replica("r0", None).await.unwrap();
    stage.wait_ready().await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.scope.create_claim("data", &class, block).await.unwrap();
    let volume = stage.volume_of("data").await.unwrap();
    assert_eq!(volume.spec.unwrap().volume_mode.as_deref(), Some("Block"));
    stage.finish(&[]).await.unwrap();
}

/// CASES 62.
#[tokio::test]
async fn every_combination_of_access_modes_is_on_the_volume() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let shared = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"];
    let mut wanted: Vec<Vec<String>> = vec![vec!["ReadWriteOncePod".to_owned()]];
    for set in 1..8_usize {
        let chosen = shared.iter().enumerate().filter(|(bit, _)| set & (1 << bit) != 0);
        wanted.push(chosen.map(|(_, mode)| (*mode).to_owned()).collect());
    }
    for (number, modes) in wanted.iter().enumerate() {
        let with_modes = |claim: &mut PersistentVolumeClaim| spec(claim).access_modes = Some(modes.clone());
        stage.scope.create_claim(&format!("data-{number}"), &class, with_modes).await.unwrap();
    }
    for (number, modes) in wanted.iter().enumerate() {
        let volume = stage.volume_of(&format!("data-{number}")).await.unwrap();
        let on_volume = volume.spec.unwrap().access_modes.unwrap();
        assert!(modes.iter().all(|mode| on_volume.contains(mode)), "{modes:?} became {on_volume:?}");
    }
    stage.finish(&[]).await.unwrap();
}

/// CASES 62 and 63: the backend makes less than was asked for, or something else.
#[tokio::test]
async fn a_volume_that_can_not_be_its_claims_is_told_and_never_made() {
    let stage = stage(Setup::default()).await;
    let odd = [
        ("modes", "accessModes", json!(["ReadOnlyMany"]), "access modes lack ReadWriteOnce"),
        ("small", "capacity", json!("1000k"), "capacity is 1000k, less than the 1Mi"),
        ("block", "volumeMode", json!("Block"), "volume mode is \"Block\""),
    ];
    let rules = odd.iter().map(|(claim, field, value, _)| {
        let words = Words::Volume(Map::from_iter([((*field).to_owned(), value.clone())]));
        Rule::on("provision").claim(claim).conduct(Conduct::words(words))
    });
    stage.ledger.set(&rules.collect::<Vec<_>>()).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    for (claim, _, _, told) in &odd {
        stage.claim(claim, &class).await.unwrap();
        stage.told(claim, "ProvisioningFailed", told).await.unwrap();
    }
    assert!(stage.scope.volumes().await.unwrap().is_empty());
    stage.ledger.set(&[]).unwrap();
    for (claim, ..) in &odd {
        stage.volume_of(claim).await.unwrap();
    }
    stage.finish(&[]).await.unwrap();
}

/// CASES 63, with the claim deleted: the asset goes the ordinary way, behind a volume that nobody could use.
#[tokio::test]
async fn what_a_backend_made_too_small_goes_with_its_claim() {
    let stage = stage(Setup::with(json!({ "orphans": "report" }))).await;
    let small = Words::Volume(Map::from_iter([("capacity".to_owned(), json!("1000k"))]));
    stage.ledger.set(&[Rule::on("provision").conduct(Conduct::words(small))]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.told("data", "ProvisioningFailed", "less than the 1Mi").await.unwrap();
    assert_eq!(stage.ledger.assets().unwrap().len(), 1);
    stage.delete_claim("data").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// CASES 63.
#[tokio::test]
async fn a_volume_is_never_smaller_than_its_claim_whatever_the_quantity() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let sizes = ["1", "1048577", "1Mi", "1.5Gi", "1M", "500m", "9223372036854775807", "8191Pi", "7E", "12e6"];
    for (number, size) in sizes.iter().enumerate() {
        stage
            .scope
            .create_claim(&format!("data-{number}"), &class, |claim| request(claim, size))
            .await
            .unwrap();
    }
    for (number, size) in sizes.iter().enumerate() {
        // Binding is the proof: kube-controller-manager binds only a volume that is big enough.
        let volume = stage.volume_of(&format!("data-{number}")).await.unwrap();
        let claim = stage.scope.claims().get(&format!("data-{number}")).await.unwrap();
        let capacity = volume.spec.unwrap().capacity.unwrap()["storage"].clone();
        assert_eq!(claim.status.unwrap().capacity.unwrap()["storage"], capacity, "{size}");
    }
    let grow = json!({ "spec": { "resources": { "requests": { "storage": "2Mi" } } } });
    let grown = stage.scope.claims().patch("data-2", &PatchParams::default(), &Patch::Merge(grow)).await;
    assert!(grown.is_err(), "a class does not promise expansion by itself");
    stage.finish(&[]).await.unwrap();
}

/// CASES 47.
#[tokio::test]
async fn forged_annotations_of_binding_get_at_most_one_asset_which_goes_with_the_claim() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let ours = stage.scope.provisioner().to_owned();
    let forgeries = [
        ("complete", "pv.kubernetes.io/bind-completed", "yes".to_owned()),
        ("controller", "pv.kubernetes.io/bound-by-controller", "yes".to_owned()),
        ("provisioner", "volume.kubernetes.io/storage-provisioner", ours.clone()),
        ("old-provisioner", "volume.beta.kubernetes.io/storage-provisioner", ours),
        ("node", "volume.kubernetes.io/selected-node", "no-such-node".to_owned()),
    ];
    for (name, key, value) in &forgeries {
        let forge = |claim: &mut PersistentVolumeClaim| {
            claim.annotations_mut().insert((*key).to_owned(), value.clone());
        };
        stage.scope.create_claim(name, &class, forge).await.unwrap();
    }
    another_claim_passes(&stage, &class).await;
    for (name, ..) in &forgeries {
        let made = stage.ledger.ended("provision").unwrap();
        assert!(made.iter().filter(|call| call.claim == *name && call.changed).count() <= 1, "{name}");
        stage.delete_claim(name).await.unwrap();
    }
    stage.finish(&[]).await.unwrap();
}

/// CASES 47: the forged owner has a class of another provisioner.
#[tokio::test]
async fn a_claim_that_names_us_but_whose_class_does_not_is_left_alone() {
    let stage = stage(Setup::default()).await;
    let ours = stage.scope.provisioner().to_owned();
    let class = stage.class("a", |_| ()).await.unwrap();
    let foreign = stage.class("b", |class| class.provisioner = "somebody.else.dev".to_owned()).await.unwrap();
    let forge = |claim: &mut PersistentVolumeClaim| {
        claim.annotations_mut().insert("volume.kubernetes.io/storage-provisioner".to_owned(), ours);
    };
    stage.scope.create_claim("data", &foreign, forge).await.unwrap();
    another_claim_passes(&stage, &class).await;
    assert_eq!(calls_about(&stage, "data"), 0);
    stage.delete_claim("data").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// Issue 3, bad input.
#[tokio::test]
async fn of_a_claim_of_another_provisioner_nothing_is_said() {
    let stage = stage(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let foreign = stage.class("b", |class| class.provisioner = "somebody.else.dev".to_owned()).await.unwrap();
    stage.claim("not-for-us", &foreign).await.unwrap();
    another_claim_passes(&stage, &class).await;
    let log = stage.replica(0).unwrap().log_text().unwrap();
    assert!(!log.contains("not-for-us"), "{log}");
    assert_eq!(stage.events("not-for-us", "ProvisioningFailed").await.unwrap().len(), 0);
    stage.delete_claim("not-for-us").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: a missing class is told, and acted on as soon as it comes.
#[tokio::test]
async fn a_claim_that_is_ours_but_whose_class_is_missing_says_so_and_is_bound_when_it_comes() {
    let stage = stage(Setup::default()).await;
    let ours = stage.scope.provisioner().to_owned();
    let name = format!("{}-late", stage.scope.namespace());
    let forge = |claim: &mut PersistentVolumeClaim| {
        claim.annotations_mut().insert("volume.kubernetes.io/storage-provisioner".to_owned(), ours);
    };
    stage.scope.create_claim("data", &name, forge).await.unwrap();
    stage.told("data", "ProvisioningFailed", "does not exist").await.unwrap();
    stage.class("late", |_| ()).await.unwrap();
    stage.volume_of("data").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// CASES 76.
#[tokio::test]
async fn the_backends_own_words_stand_in_the_event() {
    let stage = stage(Setup::default()).await;
    let words = "pool \"fast\" on shelf 3 is full: 0 of 12 TiB left";
    let full = Rule::on("provision").first(1).conduct(Conduct::answer("failed", words));
    stage.ledger.set(&[full]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    let event = stage.told("data", "ProvisioningFailed", words).await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(message(&event), words);
    stage.volume_of("data").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// CASES 40.
#[tokio::test]
async fn impossible_parameters_are_tried_seldom_and_at_once_when_the_class_is_made_anew() {
    // At these settings a wait that nothing cuts short is 5 min long.
    let stage = stage(Setup::with(json!({ "retryInitial": "200ms", "retryMax": "5m" }))).await;
    stage
        .ledger
        .set(&[Rule::on("provision").conduct(Conduct::answer("infeasible", "no pool \"tpyo\""))])
        .unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.told("data", "ProvisioningFailed", "no pool").await.unwrap();
    remake(&stage, &class, "a", |_| ()).await;
    stage.claim("other", &class).await.unwrap();
    stage.told("other", "ProvisioningFailed", "no pool").await.unwrap();
    assert!(stage.ledger.begun("provision").unwrap().len() <= 4, "few calls");
    let events = stage.events("data", "ProvisioningFailed").await.unwrap();
    assert_eq!(events.iter().filter(|event| message(event).contains("no pool")).count(), 1, "one event");
    stage.ledger.set(&[]).unwrap();
    remake(&stage, &class, "a", |class| {
        class.parameters = Some(BTreeMap::from([("pool".to_owned(), "fast".to_owned())]));
    })
    .await;
    stage.volume_of("data").await.unwrap();
    stage.volume_of("other").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// Deletes a class and makes it anew under its name.
async fn remake(stage: &Stage<'_>, name: &str, suffix: &str, customize: impl FnOnce(&mut StorageClass)) {
    let classes: Api<StorageClass> = Api::all(stage.scope.client());
    cluster::delete(&classes, name).await.unwrap();
    wait::until_gone(&classes, name, DEADLINE).await.unwrap();
    stage.class(suffix, customize).await.unwrap();
}

/// CASES 26.
#[tokio::test]
async fn an_asset_is_deleted_though_its_class_is_gone_or_has_changed() {
    let stage = stage(Setup::default()).await;
    let with = |value: &str| Some(BTreeMap::from([("pool".to_owned(), value.to_owned())]));
    let gone = stage.class("gone", |class| class.parameters = with("first")).await.unwrap();
    let remade = stage.class("remade", |class| class.parameters = with("first")).await.unwrap();
    let volumes = [stage.bound("a", &gone).await.unwrap(), stage.bound("b", &remade).await.unwrap()];
    cluster::delete(&Api::<StorageClass>::all(stage.scope.client()), &gone).await.unwrap();
    remake(&stage, &remade, "remade", |class| {
        class.parameters = with("second");
        class.reclaim_policy = Some("Retain".to_owned());
    })
    .await;
    for (claim, volume) in ["a", "b"].iter().zip(&volumes) {
        stage.delete_claim(claim).await.unwrap();
        stage.volume_gone(volume).await.unwrap();
    }
    assert_eq!(stage.ledger.ended("delete").unwrap().iter().filter(|call| call.changed).count(), 2);
    stage.finish(&[]).await.unwrap();
}
