//! Nothing leaks and nothing is lost: what crashes, refusals and silent watches leave behind, and what the audit of
//! orphans must never take.

use std::time::Duration;

use chaos_tests::{
    chaos::crash::{self, Choice, Story},
    cluster,
    ledger::{
        Conduct, Rule as Gate, Words,
        stage::{DEADLINE, Setup, Stage},
    },
    proxy::{Action, Proxy, Rule},
};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::stage;

/// The audit looks each second, and its grace is as long as the longest call.
pub(crate) fn quick(orphans: &str) -> Value {
    json!({ "auditInterval": "1s", "provisionTimeout": "3s", "deletionTimeout": "3s", "orphans": orphans })
}

async fn proxied(stage: &Stage<'_>, name: &str) -> Proxy {
    let log = stage.scope.directory().join(format!("{name}.jsonl"));
    Proxy::start(stage.scope.plane(), &log).await.unwrap()
}

/// A stage whose only replica is behind a proxy.
async fn behind_proxy(setup: Setup) -> (Stage<'static>, Proxy) {
    let mut stage = Stage::empty(crate::scope().await, crate::LEDGER.as_ref(), setup).await.unwrap();
    let proxy = proxied(&stage, "r0-proxy").await;
    stage.add_replica("r0", Some(&proxy.server())).await.unwrap();
    stage.wait_ready().await.unwrap();
    (stage, proxy)
}

/// SIGKILL for the leader; it takes no part in the rest of the test.
async fn kill_leader(stage: &mut Stage<'_>) {
    let leader = stage.leader().await.unwrap();
    stage.replicas.remove(leader).kill().await.unwrap();
}

async fn no_assets(stage: &Stage<'_>) {
    let clean = async || {
        let assets = stage.ledger.assets()?;
        Ok((!assets.is_empty()).then(|| format!("{assets:?}")))
    };
    stage.eventually("no asset is left", clean).await.unwrap();
}

/// CASES 1: open in the Go library's world since 2020.
#[tokio::test]
async fn an_asset_whose_claim_went_while_its_maker_died_is_removed_by_the_audit() {
    let mut stage = stage(Setup { keys: quick("auto"), ..Setup::replicas(2) }).await;
    stage.ledger.set(&[Gate::on("provision").nth(1).conduct(Conduct::before("made"))]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    let claim = stage.claim("data", &class).await.unwrap();
    stage.ledger.wait_arrived("made", DEADLINE).await.unwrap();
    kill_leader(&mut stage).await;
    stage.delete_claim("data").await.unwrap();
    stage.ledger.open("made").unwrap();
    assert_eq!(stage.ledger.assets().unwrap().len(), 1, "nobody but the audit knows of it");
    no_assets(&stage).await;
    assert_eq!(stage.ledger.begun("provision").unwrap().len(), 1, "a claim that is gone is not provisioned");
    let deletions = stage.ledger.begun("delete").unwrap();
    assert!(deletions.iter().all(|call| call.volume == format!("pvc-{}", claim.uid().unwrap())));
    assert!(stage.scope.volumes().await.unwrap().is_empty());
    let name = stage.scope.provisioner().replace('/', "-");
    stage.told(&name, "OrphanedAsset", "is removed").await.unwrap();
    stage.finish(&[]).await.unwrap();
}

/// A call of a dead leader that goes on by itself, and makes its asset when all is over.
#[tokio::test]
async fn what_a_straggler_of_a_dead_leader_makes_after_the_claim_is_gone_is_removed_by_the_audit() {
    let mut stage = stage(Setup { keys: quick("auto"), ..Setup::replicas(2) }).await;
    stage.ledger.set(&[Gate::on("provision").nth(1).conduct(Conduct::behind("straggler"))]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.ledger.wait_arrived("straggler", DEADLINE).await.unwrap();
    kill_leader(&mut stage).await;
    let volume = stage.volume_of("data").await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    no_assets(&stage).await;
    stage.ledger.open("straggler").unwrap();
    let made = || Ok(stage.ledger.ended("provision")?.iter().any(|call| call.number == 1).then_some(()));
    stage.ledger.wait("the straggler has ended", DEADLINE, made).await.unwrap();
    no_assets(&stage).await;
    let straggler = stage.ledger.ended("provision").unwrap().into_iter().find(|call| call.number == 1);
    assert!(straggler.unwrap().changed, "it did make an asset");
    stage.finish(&[]).await.unwrap();
}

/// CASES 2.
#[tokio::test]
async fn a_claim_that_is_deleted_while_its_calls_time_out_goes_the_ordinary_way_once_one_answers() {
    let stage = stage(Setup::with(json!({ "provisionTimeout": "1s" }))).await;
    stage.ledger.set(&[Gate::on("provision").first(2).conduct(Conduct::words(Words::Hang))]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    stage.ledger.wait_begun("provision", 1, DEADLINE).await.unwrap();
    stage.delete_claim("data").await.unwrap();
    stage.ledger.wait_begun("provision", 3, DEADLINE).await.unwrap();
    no_assets(&stage).await;
    let deletions = stage.ledger.begun("delete").unwrap();
    assert!(!deletions.is_empty());
    assert!(
        deletions.iter().all(|call| call.request["volume"].is_object()),
        "by its volume, not as an orphan"
    );
    stage.finish(&[]).await.unwrap();
}

/// CASES 4.
#[tokio::test]
async fn a_backend_that_always_ends_after_the_timeout_gets_the_claim_bound_in_the_end_with_one_asset() {
    let stage = stage(Setup::with(json!({ "provisionTimeout": "2s" }))).await;
    let late = Conduct::lingering(Duration::from_secs(3));
    stage.ledger.set(&[Gate::on("provision").conduct(late)]).unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.bound("data", &class).await.unwrap();
    assert!(stage.ledger.begun("provision").unwrap().len() >= 2, "the first call was cut off");
    assert_eq!(stage.ledger.assets().unwrap().len(), 1);
    assert!(stage.ledger.begun("delete").unwrap().is_empty());
    stage.finish(&[]).await.unwrap();
}

/// 500, then 403, then 429.
fn refusals() -> Vec<Rule> {
    let posts =
        |upto, status| Rule::on("create", "persistentvolumes").first(upto).action(Action::Answer(status));
    vec![posts(2, 500), posts(4, 403), posts(6, 429)]
}

fn refused(proxy: &Proxy) -> Vec<String> {
    let records = proxy.records().into_iter();
    let posts =
        records.filter(|it| it.request.verb == "create" && it.request.resource == "persistentvolumes");
    posts.map(|it| it.fate).collect()
}

/// CASES 5.
#[tokio::test]
async fn a_volume_that_the_api_server_refuses_for_a_while_is_saved_afterwards_and_its_asset_stays() {
    let (stage, proxy) = behind_proxy(Setup::default()).await;
    proxy.set(refusals());
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.bound("data", &class).await.unwrap();
    let fates = refused(&proxy);
    let by_proxy = |status: u16| format!("answered {status} by the proxy");
    let expected =
        [500, 500, 403, 403, 429, 429].map(by_proxy).into_iter().chain(["answered 201".to_owned()]);
    assert_eq!(fates, expected.collect::<Vec<_>>());
    assert_eq!(stage.ledger.begun("provision").unwrap().len(), 1);
    assert!(stage.ledger.begun("delete").unwrap().is_empty());
    stage.finish(&[]).await.unwrap();
}

/// CASES 5, with the leader killed while the volume is unsaved.
#[tokio::test]
async fn a_leader_that_dies_with_an_unsaved_volume_leaves_it_to_the_next_and_the_asset_stays() {
    let (mut stage, proxy) = behind_proxy(Setup { keys: quick("delete"), ..Setup::default() }).await;
    stage.add_replica("r1", None).await.unwrap();
    stage.wait_ready().await.unwrap();
    proxy.set(vec![Rule::on("create", "persistentvolumes").action(Action::Answer(500))]);
    let class = stage.class("a", |_| ()).await.unwrap();
    stage.claim("data", &class).await.unwrap();
    let tried = async || Ok((refused(&proxy).len() < 2).then(|| "not yet refused twice".to_owned()));
    stage.eventually("the leader tries to save the volume", tried).await.unwrap();
    stage.replicas.remove(0).kill().await.unwrap();
    stage.volume_of("data").await.unwrap();
    let made: Vec<_> = stage.ledger.ended("provision").unwrap().iter().map(|call| call.changed).collect();
    assert_eq!(made, [true, false]);
    assert!(stage.ledger.begun("delete").unwrap().is_empty());
    stage.finish(&[]).await.unwrap();
}

/// CASES 11, the part of `cargo chaos run crash-points` that every test run has time for: of the four faults at each
/// point, each third.
#[tokio::test]
async fn a_leader_that_dies_or_is_cut_off_at_a_request_or_a_call_is_finished_for() {
    let choice = Choice { stories: vec![Story::Life], every: 3, ..Choice::default() };
    let report =
        crash::explore(cluster::shared().await.unwrap(), crate::LEDGER.as_ref(), &choice).await.unwrap();
    assert!(report.points.len() >= 5, "{:?}", report.points);
    assert!(report.violations.is_empty() && report.missed.is_empty(), "{report:#?}");
}

/// CASES 44.
#[tokio::test]
async fn claims_and_releases_under_silent_cut_and_refused_watches_are_noticed_afterwards() {
    let (stage, proxy) = behind_proxy(Setup::default()).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let old = stage.bound("old", &class).await.unwrap();
    let watched = ["persistentvolumeclaims", "persistentvolumes"];
    for resource in watched {
        assert_eq!(proxy.half_open(resource), 1);
    }
    stage.delete_claim("old").await.unwrap();
    let silent = stage.bound("silent", &class).await.unwrap();
    stage.volume_gone(&old).await.unwrap();
    for status in [403, 410] {
        let refuse = |resource| Rule::on("watch", resource).first(3).action(Action::Answer(status));
        proxy.set(watched.map(refuse).into());
        for resource in watched {
            // The watch may still be waiting to be opened again.
            let cut = async || Ok((proxy.cut_watches(resource) == 0).then(|| "no watch is open".to_owned()));
            stage.eventually("a watch is cut", cut).await.unwrap();
        }
        let name = format!("refused-{status}");
        stage.claim(&name, &class).await.unwrap();
        stage.volume_of(&name).await.unwrap();
    }
    stage.delete_claim("silent").await.unwrap();
    stage.volume_gone(&silent).await.unwrap();
    stage.finish(&[]).await.unwrap();
}

fn calls_about(stage: &Stage<'_>, claim: &str) -> usize {
    stage.ledger.begun("provision").unwrap().iter().filter(|call| call.claim == claim).count()
}

/// Stale views: a standby whose watches are frozen comes to lead.
#[tokio::test]
async fn a_leader_with_a_frozen_view_makes_nothing_for_a_claim_that_is_gone_and_takes_nothing_that_is_used() {
    let mut stage = stage(Setup::with(quick("delete"))).await;
    let class = stage.class("a", |_| ()).await.unwrap();
    let shut = Gate::on("provision").claim("gone").conduct(Conduct::answer("failed", "not yet"));
    stage.ledger.set(&[shut]).unwrap();
    let proxy = proxied(&stage, "r1-proxy").await;
    stage.add_replica("r1", Some(&proxy.server())).await.unwrap();
    stage.wait_ready().await.unwrap();
    stage.claim("gone", &class).await.unwrap();
    stage.told("gone", "ProvisioningFailed", "not yet").await.unwrap();
    proxy.freeze("persistentvolumeclaims");
    proxy.freeze("persistentvolumes");
    let made = stage.bound("made", &class).await.unwrap();
    stage.delete_claim("gone").await.unwrap();
    stage.ledger.set(&[]).unwrap();
    stage.replicas.remove(0).kill().await.unwrap();
    let (calls, lists) = (calls_about(&stage, "gone"), stage.ledger.begun("list").unwrap().len());
    let is_read = |it: &chaos_tests::proxy::Record| it.request.verb == "get" && it.request.name == "gone";
    let read = async || Ok((!proxy.records().iter().any(is_read)).then(|| "not read".to_owned()));
    stage.eventually("the claim that is gone is read live", read).await.unwrap();
    // A second apart: the grace of three seconds is over for the asset that this leader has no volume for.
    stage.ledger.wait_begun("list", lists + 6, DEADLINE).await.unwrap();
    assert!(stage.ledger.assets().unwrap().contains(&made.name_any()), "an asset in use was taken");
    proxy.thaw("persistentvolumeclaims");
    proxy.thaw("persistentvolumes");
    stage.bound("after", &class).await.unwrap();
    assert_eq!(calls_about(&stage, "gone"), calls);
    stage.delete_claim("made").await.unwrap();
    stage.volume_gone(&made).await.unwrap();
    stage.finish(&[]).await.unwrap();
}
