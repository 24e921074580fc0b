//! Retries, limits and fairness: failures heal by themselves, and nobody holds up another.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use chaos_tests::ledger::{
    Call, Conduct, Phase, Rule, Words,
    stage::{DEADLINE, Setup, message},
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{operations::metric, stage};

const MILLISECOND: u64 = 1_000_000;

/// CASES 37.
#[tokio::test]
async fn after_thirty_failures_a_claim_is_bound_within_the_longest_wait() {
    let stage = stage(Setup::with(json!({ "retryInitial": "20ms", "retryMax": "200ms" }))).await;
    let ill = Rule::on("provision").first(30).conduct(Conduct::answer("failed", "the array reboots"));
    stage.ledger.set(&[ill]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.volume_of("data").await.unwrap();
    let (begun, ended) = (stage.ledger.begun("provision").unwrap(), stage.ledger.ended("provision").unwrap());
    assert_eq!(begun.len(), 31);
    assert!(begun[30].at - ended[29].at < 1000 * MILLISECOND, "the longest wait is 200 ms");
    let events = stage.events("data", "ProvisioningFailed").await.unwrap();
    assert_eq!(
        events.len(),
        1,
        "one event for one reason: {:?}",
        events.iter().map(message).collect::<Vec<_>>()
    );
    stage.finish(&[]).await.unwrap();
}

/// CASES 39.
#[tokio::test]
async fn the_waits_between_attempts_grow() {
    let stage = stage(Setup::with(json!({ "retryInitial": "200ms", "retryMax": "1600ms" }))).await;
    let ill = Rule::on("provision").first(5).conduct(Conduct::answer("failed", "no"));
    stage.ledger.set(&[ill]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.volume_of("data").await.unwrap();
    let (begun, ended) = (stage.ledger.begun("provision").unwrap(), stage.ledger.ended("provision").unwrap());
    for (number, least) in [180, 360, 720, 1440, 1440].into_iter().enumerate() {
        let waited = (begun[number + 1].at - ended[number].at) / MILLISECOND;
        assert!(waited >= least, "wait {number} took {waited} ms");
    }
    stage.finish(&[]).await.unwrap();
}

/// LIFECYCLE: thresholds.
#[tokio::test]
async fn a_claim_that_was_given_up_is_tried_again_when_its_class_is_made_anew() {
    let keys = json!({ "failedProvisionThreshold": 3, "retryInitial": "50ms", "retryMax": "100ms" });
    let stage = stage(Setup::with(keys)).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let ill = Rule::on("provision").claim("data").conduct(Conduct::answer("failed", "no"));
    stage.ledger.set(&[ill]).unwrap();
    stage.claim("data", &class).await.unwrap();
    let words =
        "given up after 3 attempts, until the claim, its class or its node changes; the last error: no";
    stage.told("data", "ProvisioningFailed", words).await.unwrap();
    let given_up = metric(stage.replica(0).unwrap(), "kube_provisioner_given_up_total", "provision").await;
    assert_eq!(given_up, Some(1.0));
    let label = json!({ "metadata": { "labels": { "looked": "at" } } });
    stage.scope.claims().patch("data", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    stage.bound("other", &class).await.unwrap();
    let calls =
        || stage.ledger.begun("provision").unwrap().iter().filter(|call| call.claim == "data").count();
    assert_eq!(calls(), 3, "a label is no change");
    stage.ledger.set(&[]).unwrap();
    let classes = kube::Api::<k8s_openapi::api::storage::v1::StorageClass>::all(stage.scope.client());
    chaos_tests::cluster::delete(&classes, &class).await.unwrap();
    stage
        .class("a", |class| class.parameters = Some([("new".to_owned(), "yes".to_owned())].into()))
        .await
        .unwrap();
    stage.volume_of("data").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// The most calls of an operation that were under way at once.
fn most_at_once(log: &[Call], operation: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for call in log.iter().filter(|call| call.operation == operation) {
        match call.phase {
            Phase::Begin => now += 1,
            Phase::End => now -= 1,
        }
        most = most.max(now);
    }
    most
}

/// CASES 42.
#[tokio::test]
async fn fifty_gated_claims_never_pass_the_limit_and_a_deletion_passes_them() {
    let stage = stage(Setup::with(json!({ "provisionWorkers": 2 }))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let before = stage.bound("before", &class).await.unwrap();
    stage.ledger.set(&[Rule::on("provision").conduct(Conduct::behind("gate"))]).unwrap();
    for number in 0..50 {
        stage.claim(&format!("data-{number}"), &class).await.unwrap();
    }
    stage.ledger.wait_begun("provision", 3, DEADLINE).await.unwrap();
    stage.delete_claim("before").await.unwrap();
    stage.volume_gone(&before).await.unwrap();
    assert_eq!(stage.ledger.begun("provision").unwrap().len(), 3, "one before, two at the gate");
    stage.ledger.open("gate").unwrap();
    for number in 0..50 {
        stage.volume_of(&format!("data-{number}")).await.unwrap();
    }
    assert_eq!(most_at_once(&stage.ledger.log().unwrap(), "provision"), 2);
    stage.finish(&[]).await.unwrap();
}

/// Issue 5, must show 4.
#[tokio::test]
async fn thirty_hanging_deletions_hold_up_no_claim() {
    let stage = stage(Setup::with(json!({ "deleteWorkers": 2, "deletionTimeout": "2m" }))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let names: Vec<String> = (0..30).map(|number| format!("data-{number}")).collect();
    for name in &names {
        stage.claim(name, &class).await.unwrap();
    }
    for name in &names {
        stage.volume_of(name).await.unwrap();
    }
    stage.ledger.set(&[Rule::on("delete").conduct(Conduct::behind("gate"))]).unwrap();
    for name in &names {
        stage.delete_claim(name).await.unwrap();
    }
    stage.ledger.wait_begun("delete", 2, DEADLINE).await.unwrap();
    let asked = Instant::now();
    stage.bound("new", &class).await.unwrap();
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(stage.ledger.begun("delete").unwrap().len(), 2);
    stage.ledger.open("gate").unwrap();
    stage.finish(&[]).await.unwrap();
}

/// Issue 5: fairness between classes.
#[tokio::test]
async fn a_class_that_hangs_leaves_room_for_the_others() {
    let stage = stage(Setup::with(json!({ "provisionWorkers": 4 }))).await;
    let (hanging, quick) =
        (stage.class("hanging", |_| ()).await.unwrap(), stage.class("quick", |_| ()).await.unwrap());
    let names: Vec<String> = (0..12).map(|number| format!("hanging-{number}")).collect();
    let gate = |name: &String| Rule::on("provision").claim(name).conduct(Conduct::behind("gate"));
    stage.ledger.set(&names.iter().map(gate).collect::<Vec<_>>()).unwrap();
    for name in &names {
        stage.claim(name, &hanging).await.unwrap();
    }
    stage.ledger.wait_begun("provision", 3, DEADLINE).await.unwrap();
    stage.bound("quick", &quick).await.unwrap();
    stage.ledger.open("gate").unwrap();
    for name in &names {
        stage.volume_of(name).await.unwrap();
    }
    stage.finish(&[]).await.unwrap();
}

/// CASES 4.
#[tokio::test]
async fn a_backend_that_is_always_slower_than_the_timeout_ends_in_one_asset() {
    let stage = stage(Setup::with(json!({ "provisionTimeout": "1s" }))).await;
    // The asset is there before the call is killed, so the next call finds it.
    let slow = Rule::on("provision").first(2).conduct(Conduct::before("never"));
    stage.ledger.set(&[slow]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    let volume = stage.bound("data", &class).await.unwrap();
    stage.told("data", "ProvisioningFailed", "deadline").await.unwrap();
    assert_eq!(stage.ledger.begun("provision").unwrap().len(), 3);
    assert_eq!(stage.ledger.assets().unwrap().len(), 1);
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// CASES 2: the claim goes while nobody knows what its calls have made.
#[tokio::test]
async fn an_asset_of_unknown_outcome_is_found_out_and_goes_though_its_claim_is_gone() {
    let stage = stage(Setup::with(json!({ "provisionTimeout": "1s", "retryMax": "1s" }))).await;
    stage.ledger.set(&[Rule::on("provision").conduct(Conduct::before("known"))]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    let claim = stage.claim("data", &class).await.unwrap();
    stage.told("data", "ProvisioningFailed", "deadline").await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.ledger.open("known").unwrap();
    let name = format!("pvc-{}", claim.uid().unwrap());
    let deleted = |call: &Call| call.volume == name && call.changed;
    let seen = || Ok(stage.ledger.ended("delete")?.iter().any(deleted).then_some(()));
    stage.ledger.wait("the asset is deleted", DEADLINE, seen).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// What a backend does wrong, and what people are told about it.
async fn heals_after(words: Words, stderr: &str, told: &str) {
    let stage = stage(Setup::default()).await;
    let ill = Conduct::words(words).stderr(stderr);
    stage.ledger.set(&[Rule::on("provision").first(2).conduct(ill)]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    let event = stage.told("data", "ProvisioningFailed", told).await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    stage.volume_of("data").await.unwrap();
    let made = stage.ledger.ended("provision").unwrap();
    assert_eq!(made.iter().filter(|call| call.changed).count(), 1, "one asset");
    let resident = stage.replica(0).unwrap().resident_bytes().unwrap();
    assert!(resident < 100 << 20, "{resident} bytes resident");
    stage.finish(&[]).await.unwrap();
}

#[tokio::test]
async fn garbage_instead_of_an_answer_is_told_and_tried_again() {
    heals_after(Words::Text("Segmentation fault\n".to_owned()), "", "not one JSON object").await;
}

#[tokio::test]
async fn an_answer_that_is_a_json_list_is_told_and_tried_again() {
    heals_after(Words::Text("[1, 2]".to_owned()), "", "not an object").await;
}

#[tokio::test]
async fn an_answer_of_a_hundred_megabytes_is_cut_off_told_and_tried_again() {
    heals_after(Words::Flood(100 << 20), "", "1048576 bytes").await;
}

#[tokio::test]
async fn death_by_a_signal_is_told_with_the_first_line_of_standard_error() {
    heals_after(Words::Signal(9), "pool lost\nmore\n", "pool lost (the program was killed by signal 9)")
        .await;
}

#[tokio::test]
async fn an_exit_status_is_told_with_the_first_line_of_standard_error() {
    heals_after(Words::Exit(3), "disk on fire\n", "disk on fire (the program ended with exit status 3)")
        .await;
}

#[tokio::test]
async fn silence_instead_of_an_answer_is_told_and_tried_again() {
    heals_after(Words::Text(String::new()), "nothing to say\n", "nothing to say").await;
}

/// Issue 3, bad input.
#[tokio::test]
async fn a_program_that_is_missing_is_told_and_used_once_it_is_there() {
    let scope = crate::scope().await;
    let program = scope.directory().join("backend");
    let mut stage = chaos_tests::ledger::stage::Stage::empty(scope, crate::LEDGER.as_ref(), Setup::default())
        .await
        .unwrap();
    stage.set_keys(json!({ "backend": { "exec": { "command": [program, stage.ledger.root()] } } }));
    stage.add_replica("r0", None).await.unwrap();
    stage.wait_ready().await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.told("data", "ProvisioningFailed", "can't be started").await.unwrap();
    std::os::unix::fs::symlink(crate::LEDGER, &program).unwrap();
    stage.volume_of("data").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// Issue 3, bad input: a deletion that goes wrong in each of these ways.
#[tokio::test]
async fn a_deletion_that_goes_wrong_is_told_and_tried_again_until_the_asset_is_gone() {
    let stage = stage(Setup::with(json!({ "deletionTimeout": "1s", "retryMax": "500ms" }))).await;
    let ways = BTreeMap::from([
        ("garbage", (Words::Text("oops".to_owned()), "not one JSON object")),
        ("hanging", (Words::Hang, "deadline")),
        ("killed", (Words::Signal(6), "signal 6")),
        ("failed", (Words::Outcome("failed".to_owned(), "shelf 3 is away".to_owned()), "shelf 3 is away")),
    ]);
    let rule = |(name, (words, _)): (&&str, &(Words, &str))| {
        Rule::on("delete").claim(name).first(2).conduct(Conduct::words(words.clone()))
    };
    stage.ledger.set(&ways.iter().map(rule).collect::<Vec<_>>()).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    for (name, (_, told)) in &ways {
        let volume = stage.bound(name, &class).await.unwrap();
        stage.delete_claim(name).await.unwrap();
        stage.told(&volume.name_any(), "VolumeFailedDelete", told).await.unwrap();
        stage.volume_gone(&volume).await.unwrap();
    }
    stage.finish(&[]).await.unwrap();
}
