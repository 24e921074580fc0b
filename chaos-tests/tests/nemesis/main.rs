//! What each nemesis does to real replicas on a real control plane, and that they get over it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod beliefs;
mod clock;
mod limits;
mod network;
mod store;
mod watches;

use std::path::Path;

use chaos_tests::{
    chaos::history,
    cluster::{self, Scope},
    ledger::stage::{Setup, Stage},
    replica::{Replica, Spec},
};
use serde_json::json;

const LEDGER: &str = env!("CARGO_BIN_EXE_ledger-backend");

/// A stage on the shared control plane without replicas. Those that come will put their beliefs on record.
async fn stage() -> Stage<'static> {
    let scope = Scope::new(cluster::shared().await.unwrap()).await.unwrap();
    let setup = Setup::with(json!({ "logFormat": "json" }));
    Stage::empty(scope, Path::new(LEDGER), setup).await.unwrap()
}

/// Starts a replica of the stage, and waits until it is ready.
async fn start(stage: &mut Stage<'_>, mut spec: Spec) {
    spec.env.push((history::ASKED.0.to_owned(), history::ASKED.1.to_owned()));
    let replica = Replica::start(&stage.scope, spec).unwrap();
    replica.wait_ready(chaos_tests::ledger::stage::DEADLINE).await.unwrap();
    stage.replicas.push(replica);
}
