//! What a claim and a deletion cost the API server, counted from its audit log.

use std::collections::BTreeMap;

use chaos_tests::{
    chaos::{
        burst,
        cast::{Cast, Kind, Programs},
    },
    ledger::{
        audit::{self, Sent},
        stage::{Setup, Stage},
    },
    product::Profile,
};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use serde_json::json;

use crate::{scope, stage};

const CLAIMS: usize = 200;

fn sent(stage: &Stage<'_>) -> Vec<Sent> {
    let log = stage.scope.plane().audit_log().unwrap();
    let mut sent = audit::requests_of(log, stage.scope.namespace()).unwrap();
    // The Lease is renewed for its own sake, and a watch belongs to no claim.
    sent.retain(|request| request.resource != "leases" && request.verb != "watch");
    sent
}

/// How often each verb was sent to each kind of object after the first `before` requests.
fn counts(stage: &Stage<'_>, before: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in sent(stage).into_iter().skip(before) {
        assert!(request.user_agent.starts_with("kube-provisioner/"), "{request:?}");
        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    counts
}

async fn life_of_claims(stage: &Stage<'_>) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
    let class = stage.class("a", |_| ()).await.unwrap();
    // What a new leader reads once is no cost of a claim.
    let first = stage.bound("first", &class).await.unwrap();
    stage.delete_claim("first").await.unwrap();
    stage.volume_gone(&first).await.unwrap();
    let before = sent(stage).len();
    let names: Vec<String> = (0..CLAIMS).map(|number| format!("data-{number}")).collect();
    for name in &names {
        stage.claim(name, &class).await.unwrap();
    }
    let mut volumes = Vec::new();
    for name in &names {
        volumes.push(stage.volume_of(name).await.unwrap());
    }
    let told = async || {
        let told = counts(stage, before).get("create events").copied().unwrap_or_default();
        Ok((told < CLAIMS).then(|| format!("{told} events")))
    };
    stage.eventually("an event for each claim", told).await.unwrap();
    let made = counts(stage, before);
    let before = sent(stage).len();
    for name in &names {
        stage.delete_claim(name).await.unwrap();
    }
    for volume in &volumes {
        stage.volume_gone(volume).await.unwrap();
    }
    assert_eq!(calls(stage, "provision"), once_each(&first, &volumes));
    assert_eq!(calls(stage, "delete"), once_each(&first, &volumes), "delete is called once per volume");
    (made, counts(stage, before))
}

/// How often the backend was called about each volume.
fn calls(stage: &Stage<'_>, operation: &str) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for call in stage.ledger.begun(operation).unwrap() {
        *calls.entry(call.volume).or_default() += 1;
    }
    calls
}

fn once_each(first: &PersistentVolume, others: &[PersistentVolume]) -> BTreeMap<String, usize> {
    others.iter().chain([first]).map(|volume| (volume.name_any(), 1)).collect()
}

fn table(rows: &[(&str, usize)]) -> BTreeMap<String, usize> {
    rows.iter().map(|(request, count)| ((*request).to_owned(), *count)).collect()
}

/// Issue 5, must show 2.
#[tokio::test]
async fn a_claim_costs_one_volume_and_one_event_and_a_deletion_two_writes() {
    let stage = stage(Setup::default()).await;
    let (made, removed) = life_of_claims(&stage).await;
    assert_eq!(made, table(&[("create events", CLAIMS), ("create persistentvolumes", CLAIMS)]));
    assert_eq!(removed, table(&[("delete persistentvolumes", CLAIMS), ("patch persistentvolumes", CLAIMS)]));
    stage.finish(&[]).await.unwrap();
}

/// Issue 5, must show 2.
#[tokio::test]
async fn without_our_finalizer_a_deletion_costs_one_read_and_one_write() {
    let stage = stage(Setup::with(json!({ "addFinalizer": false }))).await;
    let (made, removed) = life_of_claims(&stage).await;
    assert_eq!(made, table(&[("create events", CLAIMS), ("create persistentvolumes", CLAIMS)]));
    assert_eq!(removed, table(&[("delete persistentvolumes", CLAIMS), ("get persistentvolumes", CLAIMS)]));
    stage.finish(&[]).await.unwrap();
}

/// CASES 36, what can be said of it on a busy machine; `cargo chaos run burst` measures the latencies.
#[tokio::test]
async fn of_a_hundred_claims_at_once_each_is_bound_and_costs_one_volume_and_one_event() {
    let claims = 100;
    let programs = Programs::only_ours(Profile::Dev).await.unwrap();
    let cast = Cast::new(scope().await, programs).await.unwrap();
    let round = burst::round(&cast, Kind::Ours, claims).await.unwrap();
    let expected = table(&[("create events", claims), ("create persistentvolumes", claims)]);
    // The audit of orphans looks at its own pace.
    let made = round.requests.iter().filter(|(request, _)| !request.starts_with("list "));
    assert_eq!(made.map(|(request, count)| (request.clone(), *count)).collect::<BTreeMap<_, _>>(), expected);
    assert_eq!((round.to_volume.len(), round.to_bound.len()), (claims, claims));
    assert!(
        round
            .to_volume
            .iter()
            .zip(&round.to_bound)
            .all(|(volume, bound)| !volume.is_zero() && !bound.is_zero())
    );
}
