//! Every outcome of a call, and where it is told: events, metrics, the next try.

use std::time::Duration;

use chaos_tests::ledger::{
    Conduct, Rule, Words,
    stage::{DEADLINE, Setup, Stage, message},
};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{claims::another_claim_passes, operations::metric, stage};

const SECOND: u64 = 1_000_000_000;

/// Waits until the first replica's metric has this value; a metric that is not there is 0.
async fn counts(stage: &Stage<'_>, name: &str, label: &str, expected: f64) {
    let what = format!("{name} of {label} is {expected}");
    let reached = async || {
        let value = metric(stage.replica(0)?, name, label).await.unwrap_or_default();
        Ok((value != expected).then(|| value.to_string()))
    };
    stage.eventually(&what, reached).await.unwrap();
}

/// LIFECYCLE: Ignored, in provisioning.
#[tokio::test]
async fn a_claim_that_the_backend_ignores_has_no_event_no_second_try_and_no_failure() {
    let stage = stage(Setup::with(json!({ "retryInitial": "20ms", "retryMax": "20ms" }))).await;
    let (class, other) = (stage.class("a", |_| ()).await.unwrap(), stage.class("b", |_| ()).await.unwrap());
    let ignored = Rule::on("provision").claim("data").conduct(Conduct::answer("ignored", "not my site"));
    stage.ledger.set(&[ignored]).unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.ledger.wait_begun("provision", 1, DEADLINE).await.unwrap();
    another_claim_passes(&stage, &other).await;
    counts(&stage, "controller_persistentvolumeclaim_provision_total", &other, 1.0).await;
    let calls = stage.ledger.begun("provision").unwrap();
    assert_eq!(calls.iter().filter(|call| call.claim == "data").count(), 1);
    for reason in ["ProvisioningFailed", "Provisioning"] {
        assert!(stage.events("data", reason).await.unwrap().is_empty(), "{reason}");
    }
    for name in ["provision_failed_total", "provision_total"] {
        counts(&stage, &format!("controller_persistentvolumeclaim_{name}"), &class, 0.0).await;
    }
    stage.delete_claim("data").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: NoChange leaves known what was known, and unknown what was not.
#[tokio::test]
async fn an_outcome_stays_unknown_until_a_call_finds_it_out() {
    let stage = stage(Setup::with(json!({ "auditInterval": "1h" }))).await;
    let working = Words::Outcome("background".to_owned(), "still copying".to_owned());
    let no_answer = Conduct {
        door_before: Some("claim-gone".to_owned()),
        ..Conduct::answer("noChange", "the array does not answer")
    };
    let rules = [
        Rule::on("provision").claim("data").nth(1).conduct(Conduct::words(working)),
        Rule::on("provision").claim("data").nth(2).conduct(no_answer),
        Rule::on("provision").claim("known").nth(1).conduct(Conduct::answer("noChange", "no answer")),
    ];
    stage.ledger.set(&rules).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.ledger.wait_arrived("claim-gone", DEADLINE).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.ledger.open("claim-gone").unwrap();
    // The asset of the first call is found by the third, saved, released and deleted.
    let empty = || Ok(stage.ledger.assets()?.is_empty().then_some(()));
    stage.ledger.wait("the asset is found out about and removed", DEADLINE, empty).await.unwrap();
    let calls = |claim| stage.ledger.begun("provision").unwrap().iter().filter(|c| c.claim == claim).count();
    assert_eq!(calls("data"), 3);
    stage.bound("known", &class).await.unwrap();
    stage.told("known", "ProvisioningFailed", "no answer").await.unwrap();
    assert_eq!(calls("known"), 2);
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: metrics of each outcome, and volumes in use are no failures.
#[tokio::test]
async fn each_outcome_is_counted_and_a_volume_in_use_is_no_failure() {
    let stage = stage(Setup::with(json!({ "retryInitial": "20ms", "retryMax": "20ms" }))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let rules = [
        Rule::on("provision").nth(1).conduct(Conduct::answer("failed", "no")),
        Rule::on("provision").nth(2).conduct(Conduct::answer("noChange", "no")),
        Rule::on("delete").nth(1).conduct(Conduct::answer("inUse", "mounted")),
        Rule::on("delete").nth(2).conduct(Conduct::answer("failed", "no")),
    ];
    stage.ledger.set(&rules).unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    for (name, expected) in [
        ("controller_persistentvolumeclaim_provision_total", 1.0),
        ("controller_persistentvolumeclaim_provision_failed_total", 2.0),
        ("controller_persistentvolumeclaim_provision_duration_seconds_count", 1.0),
        ("controller_persistentvolume_delete_total", 1.0),
        ("controller_persistentvolume_delete_failed_total", 1.0),
        ("controller_persistentvolume_delete_duration_seconds_count", 1.0),
    ] {
        counts(&stage, name, &class, expected).await;
    }
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: the threshold of deletions; a label is no change of a volume, its phase is one.
#[tokio::test]
async fn a_volume_is_given_up_at_the_threshold_told_and_tried_again_when_it_changes() {
    let keys = json!({ "failedDeleteThreshold": 2, "retryInitial": "20ms", "retryMax": "20ms" });
    let stage = stage(Setup::with(keys)).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let ill = Rule::on("delete").claim("data").conduct(Conduct::answer("failed", "shelf 3 is away"));
    stage.ledger.set(&[ill]).unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    let name = volume.name_any();
    stage.delete_claim("data").await.unwrap();
    let words = "given up after 2 attempts, until the volume changes; the last error: shelf 3 is away";
    stage.told(&name, "VolumeFailedDelete", words).await.unwrap();
    counts(&stage, "kube_provisioner_given_up_total", "delete", 1.0).await;
    let patch = async |patch| {
        let (volumes, parameters) = (stage.scope.all_volumes(), PatchParams::default());
        volumes.patch(&name, &parameters, &Patch::Merge(patch)).await.unwrap()
    };
    patch(json!({ "metadata": { "labels": { "looked": "at" } } })).await;
    another_claim_passes(&stage, &class).await;
    let calls = || stage.ledger.begun("delete").unwrap().iter().filter(|call| call.volume == name).count();
    assert_eq!(calls(), 2, "a label is no change");
    stage.ledger.set(&[]).unwrap();
    // The phase is what decisions read.
    let status = json!({ "status": { "phase": "Failed" } });
    let (volumes, parameters) = (stage.scope.all_volumes(), PatchParams::default());
    let _: PersistentVolume = volumes.patch_status(&name, &parameters, &Patch::Merge(status)).await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    assert_eq!(calls(), 3);
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: exponential backoff switched off.
#[tokio::test]
async fn without_exponential_backoff_every_wait_is_the_first() {
    let keys = json!({ "exponentialBackoffOnError": false, "retryInitial": "300ms", "retryMax": "10m" });
    let stage = stage(Setup::with(keys)).await;
    stage.ledger.set(&[Rule::on("provision").first(8).conduct(Conduct::answer("failed", "no"))]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.bound("data", &class).await.unwrap();
    let (begun, ended) = (stage.ledger.begun("provision").unwrap(), stage.ledger.ended("provision").unwrap());
    for (number, (end, begin)) in ended.iter().zip(begun.iter().skip(1)).enumerate() {
        let waited = Duration::from_nanos(begin.at - end.at);
        assert!(waited >= Duration::from_millis(270), "wait {number} took {waited:?}");
        // Doubled seven times it would be 38 s.
        assert!(begin.at - end.at < 10 * SECOND, "wait {number} took {waited:?}");
    }
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: `Provisioning` is off by default, which the count of requests holds, and on where all is wanted.
#[tokio::test]
async fn the_beginning_of_a_provisioning_is_told_where_all_events_are_wanted() {
    let stage = stage(Setup::with(json!({ "eventVerbosity": "all" }))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    let event = stage.told("data", "Provisioning", &volume.name_any()).await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    stage.told("data", "ProvisioningSucceeded", &volume.name_any()).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: events of the Lease.
#[tokio::test]
async fn the_lease_tells_who_began_and_who_stopped_to_lead() {
    let mut stage = stage(Setup::replicas(2)).await;
    let lease = stage.scope.provisioner().to_owned();
    let first = stage.leader().await.unwrap();
    let leader = stage.replica(first).unwrap().name().to_owned();
    let event = stage.told(&lease, "LeaderElection", "became leader").await.unwrap();
    assert!(message(&event).starts_with(&leader), "{event:?}");
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.involved_object.kind.as_deref(), Some("Lease"));
    stage.replicas.remove(first).terminate(DEADLINE).await.unwrap();
    stage.told(&lease, "LeaderElection", "stopped leading").await.unwrap();
    let other = stage.replica(0).unwrap().name().to_owned();
    let all = async || {
        let events = stage.scope.events().list(&ListParams::default()).await?;
        let told = events
            .iter()
            .map(message)
            .find(|text| text.starts_with(&other) && text.ends_with("became leader"));
        Ok(told.is_none().then(|| format!("{other} has told nothing")))
    };
    stage.eventually("the other one tells that it leads", all).await.unwrap();
    stage.finish(&[]).await.unwrap();
}
