//! The fault proxy before a real API server, with a client like the product's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{pin::pin, time::Duration};

use chaos_tests::{
    cluster::{self, Scope},
    control_plane::ControlPlane,
    manifests,
    proxy::{Action, Proxy, Rule},
    wait,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);

async fn plane() -> &'static ControlPlane {
    cluster::shared().await.unwrap()
}

/// A client behind the proxy with a token, as replicas have one, that never repeats a request by itself.
async fn client(scope: &Scope<'_>, proxy: &Proxy) -> Client {
    let in_namespace = |kind: &str, rest: Value| {
        let mut object = json!({ "kind": kind, "metadata": { "name": "tester" } });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    let account = in_namespace("ServiceAccount", json!({ "apiVersion": "v1" }));
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "tester", "namespace": scope.namespace() }],
    });
    let objects = [account, in_namespace("RoleBinding", binding)];
    manifests::apply(&scope.client(), scope.namespace(), &objects).await.unwrap();
    let path = scope.service_account_kubeconfig("tester", Some(&proxy.server())).await.unwrap();
    let file = Kubeconfig::read_from(path).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    // The API server learns of new permissions by a watch of its own.
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), scope.namespace());
    let allowed = async {
        while maps.list(&ListParams::default()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, allowed).await.unwrap();
    client
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

async fn exists(real: &Api<ConfigMap>, name: &str) -> bool {
    real.get_opt(name).await.unwrap().is_some()
}

#[tokio::test]
async fn each_fault_happens_to_the_request_that_its_rule_is_about() {
    let scope = Scope::new(plane().await).await.unwrap();
    let proxy = Proxy::start(scope.plane(), &scope.directory().join("proxy.jsonl")).await.unwrap();
    let real: Api<ConfigMap> = Api::namespaced(scope.client(), scope.namespace());
    let maps: Api<ConfigMap> = Api::namespaced(client(&scope, &proxy).await, scope.namespace());
    let on = |name: &str| Rule::on("create", "configmaps").name(name);
    let (halting, mut halt) = on("halted").halt_after();
    proxy.set(vec![
        on("before").first(1).action(Action::CutBefore),
        on("after").action(Action::CutAfter),
        on("refused").nth(1).action(Action::Answer(429)),
        halting,
    ]);
    let post = async |name: &str| maps.create(&PostParams::default(), &map(name)).await;
    post("before").await.unwrap_err();
    assert!(!exists(&real, "before").await, "the server never saw it");
    post("before").await.unwrap();
    post("after").await.unwrap_err();
    assert!(exists(&real, "after").await, "only the answer was lost");
    let refusal = post("refused").await.unwrap_err();
    assert!(matches!(refusal, kube::Error::Api(status) if status.code == 429));
    post("refused").await.unwrap();
    let meet = async {
        halt.reached(DEADLINE).await.unwrap();
        assert!(exists(&real, "halted").await, "the server has done it");
        halt.release();
    };
    let (made, ()) = tokio::join!(post("halted"), meet);
    made.unwrap();
    let posts = proxy.records().into_iter().filter(|record| record.request.verb == "create");
    let told: Vec<_> = posts.map(|record| (record.request.name, record.fate)).collect();
    let expected = [
        ("before", "cut before the server"),
        ("before", "answered 201"),
        ("after", "answered 201, answer lost"),
        ("refused", "answered 429 by the proxy"),
        ("refused", "answered 201"),
        ("halted", "answered 201"),
    ];
    assert_eq!(told, expected.map(|(name, fate)| (name.to_owned(), fate.to_owned())));
}

#[tokio::test]
async fn a_watch_flows_through_freezes_thaws_and_is_cut() {
    let scope = Scope::new(plane().await).await.unwrap();
    let proxy = Proxy::start(scope.plane(), &scope.directory().join("proxy.jsonl")).await.unwrap();
    let real: Api<ConfigMap> = Api::namespaced(scope.client(), scope.namespace());
    wait::until_exists(&real, "kube-root-ca.crt", DEADLINE).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client(&scope, &proxy).await, scope.namespace());
    let start = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let params = WatchParams::default().disable_bookmarks();
    let mut events = pin!(maps.watch(&params, &start).await.unwrap());
    let mut next = async || match tokio::time::timeout(DEADLINE, events.next()).await.unwrap() {
        Some(Ok(WatchEvent::Added(map))) => map.name_any(),
        Some(Ok(WatchEvent::Deleted(map))) => format!("no {}", map.name_any()),
        other => format!("end: {}", other.is_none_or(|event| event.is_err())),
    };
    cluster::create(&real, &map("first")).await.unwrap();
    assert_eq!(next().await, "first");
    proxy.freeze("configmaps");
    cluster::create(&real, &map("second")).await.unwrap();
    real.delete("first", &DeleteParams::default()).await.unwrap();
    // Other requests go on, and by their answer the events would be here.
    maps.list(&ListParams::default()).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(300), next()).await;
    assert!(early.is_err(), "a frozen watch delivers nothing: {early:?}");
    proxy.thaw("configmaps");
    assert_eq!(next().await, "second");
    assert_eq!(next().await, "no first");
    assert_eq!(proxy.half_open("configmaps"), 1);
    real.delete("second", &DeleteParams::default()).await.unwrap();
    let late = tokio::time::timeout(Duration::from_millis(300), next()).await;
    assert!(late.is_err(), "a half-open watch is silent: {late:?}");
    assert_eq!(proxy.cut_watches("configmaps"), 1);
    assert_eq!(next().await, "end: true");
}
