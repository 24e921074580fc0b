//! Random chaos in small: a few seconds of it for some scenarios, with seeds that stay, and known bugs that must be
//! caught. `cargo chaos run --all` does it at length.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::path::Path;

use chaos_tests::{
    chaos::random::{Control, Outcome, Plan, Scenario, Setting, run},
    cluster,
};

const LEDGER: &str = env!("CARGO_BIN_EXE_ledger-backend");
/// How long things break, in milliseconds.
const SPAN: u64 = 12_000;

async fn outcome(plan: &Plan, setting: &Setting) -> Outcome {
    let plane = cluster::shared().await.unwrap();
    Box::pin(run::run(plane, Path::new(LEDGER), plan, setting, None)).await.unwrap()
}

async fn passes(scenario: Scenario, seed: u64) {
    let plan = Plan::of(scenario, seed, SPAN);
    let outcome = outcome(&plan, &Setting::default()).await;
    assert!(outcome.words().is_empty(), "{plan}{:#?}\nsee {:?}", outcome.words(), outcome.directory);
    assert!(outcome.run.faults.values().sum::<usize>() > 2, "{plan}");
}

#[tokio::test]
async fn nothing_is_lost_while_replicas_die_end_and_stand_still() {
    passes(Scenario::Replicas, 11).await;
}

#[tokio::test]
async fn nothing_is_lost_while_requests_are_cut_delayed_and_refused() {
    passes(Scenario::Api, 12).await;
}

#[tokio::test]
async fn nothing_is_lost_while_the_backend_hangs_lies_and_crashes() {
    passes(Scenario::Backend, 13).await;
}

#[tokio::test]
async fn a_known_bug_is_caught_by_its_control() {
    let control = Control::named("no-keep").unwrap();
    let outcome = outcome(&control.plan(1), &Setting::of(&control, true)).await;
    let found = control.found(&outcome.run.verdict);
    assert!(!found.is_empty(), "{:#?}", outcome.words());
}
