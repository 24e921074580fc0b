//! An etcd that has forgotten.

use std::path::Path;

use chaos_tests::{
    cluster::Scope,
    control_plane::{ControlPlane, Options},
    ledger::stage::{DEADLINE, Setup, Stage},
    nemesis::store,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};

use crate::LEDGER;

/// What a watch from this version is told first, or what the code of its refusal is.
async fn first_of(claims: &Api<PersistentVolumeClaim>, version: &str) -> String {
    let mut watch = match claims.watch(&WatchParams::default(), version).await {
        Ok(watch) => watch.boxed(),
        Err(error) => return error.to_string(),
    };
    match tokio::time::timeout(DEADLINE, watch.next()).await.unwrap() {
        Some(Ok(WatchEvent::Error(status))) => status.code.to_string(),
        Some(Ok(WatchEvent::Added(claim))) => claim.name_any(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn replicas_begin_anew_when_the_past_is_gone() {
    let options = Options { scheduler: false, ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let scope = Scope::new(&plane).await.unwrap();
    let mut stage = Stage::start(scope, Path::new(LEDGER), Setup::replicas(2)).await.unwrap();
    let class = stage.class("a", |_| ()).await.unwrap();
    let start = stage.scope.claims().list(&ListParams::default()).await.unwrap();
    let version = start.metadata.resource_version.unwrap();
    stage.bound("before", &class).await.unwrap();
    let first = store::compact(&plane).await.unwrap();
    stage.bound("between", &class).await.unwrap();
    assert!(store::remembers(&plane, first).await.unwrap());
    store::compact(&plane).await.unwrap();
    assert!(!store::remembers(&plane, first).await.unwrap());
    let told = first_of(&stage.scope.claims(), &version).await;
    assert_eq!(told, "before", "the API server has a memory of its own");
    store::forget(&plane).await.unwrap();
    assert_eq!(first_of(&stage.scope.claims(), &version).await, "410");
    stage.bound("after", &class).await.unwrap();
    let leader = stage.leader().await.unwrap();
    stage.replicas.remove(leader).kill().await.unwrap();
    stage.bound("by-the-other", &class).await.unwrap();
    stage.finish(&[]).await.unwrap();
}
