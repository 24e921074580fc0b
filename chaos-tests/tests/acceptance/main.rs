//! The product from outside: real replicas on a real control plane, with the ledger as their backend.
//!
//! Each test has a namespace, a provisioner name, a ledger and replicas of its own, and ends with what must hold at
//! the end of every test (`Stage::finish`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod claims;
mod deletion;
mod hardening;
mod keeping;
mod leadership;
mod leaks;
mod library;
mod lifecycle;
mod objects;
mod operations;
mod outage;
mod outcomes;
mod probes;
mod requests;
mod restore;
mod retry;
mod topology;
mod volumes;

use std::path::Path;

use chaos_tests::{
    cluster::{self, Scope},
    ledger::stage::{Setup, Stage},
};

const LEDGER: &str = env!("CARGO_BIN_EXE_ledger-backend");

/// A stage on the shared control plane, ready, with a leader.
async fn stage(setup: Setup) -> Stage<'static> {
    Stage::start(scope().await, Path::new(LEDGER), setup).await.unwrap()
}

async fn scope() -> Scope<'static> {
    Scope::new(cluster::shared().await.unwrap()).await.unwrap()
}
