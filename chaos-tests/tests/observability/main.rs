//! What operators see of real replicas on a real control plane: traces in Jaeger, metrics, logs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod jaeger;
mod logs;
mod metrics;
mod page;
mod traces;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use chaos_tests::{
    cluster::{self, Scope},
    ledger::{
        Conduct, Rule,
        stage::{DEADLINE, Setup, Stage},
    },
};
use serde_json::json;

/// How often pages are looked at, which nothing tells of.
const LOOK_EVERY: Duration = Duration::from_millis(50);

async fn scope() -> Scope<'static> {
    Scope::new(cluster::shared().await.unwrap()).await.unwrap()
}

/// So many replicas with JSON logs, ready, one of which leads. `otlp` is where their traces go.
async fn stage<'a>(scope: Scope<'a>, replicas: usize, otlp: Option<&str>) -> Stage<'a> {
    let keys = json!({ "logFormat": "json", "retryInitial": "300ms", "otlpEndpoint": otlp });
    let setup = Setup { replicas, keys, ..Setup::default() };
    let ledger = Path::new(env!("CARGO_BIN_EXE_ledger-backend"));
    Stage::start(scope, ledger, setup).await.unwrap()
}

/// The first call of provision for a claim fails.
fn fails_first(claim: &str) -> Rule {
    Rule::on("provision").claim(claim).first(1).conduct(Conduct::answer("failed", "no space"))
}

/// Calls of provision wait until the door `gate` is open.
fn gated() -> Rule {
    Rule::on("provision").conduct(Conduct::behind("gate"))
}

/// Looks until there is something to see.
async fn eventually<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(began.elapsed() < DEADLINE, "not seen after {DEADLINE:?}: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
