//! The page that Jaeger shows of a volume: served by the real one, drawn by a real browser.

use std::path::Path;

use chaos_tests::{browser::Browser, http};
use kube::ResourceExt;
use serde_json::Value;

use crate::{
    fails_first,
    jaeger::{named, trace_of},
    scope, stage,
};

/// The picture of this page for the documentation, where `trace-picture.sh` asks for one.
pub(crate) async fn photograph(page: &str) {
    if let Some(picture) = std::env::var_os("TRACE_PICTURE") {
        let browser =
            Browser::find().expect("there is no chromium on PATH (Debian: apt-get install chromium)");
        browser.photograph(page, Path::new(&picture)).await.unwrap();
    }
}

#[tokio::test]
async fn jaeger_serves_a_page_of_each_trace_that_tells_a_failure_the_binding_and_the_deletion() {
    let scope = scope().await;
    let jaeger = scope.plane().jaeger().unwrap();
    let stage = stage(scope, 1, Some(&jaeger.otlp)).await;
    let class = stage.class("c", |_| ()).await.unwrap();
    stage.ledger.set(&[fails_first("data")]).unwrap();
    let uid = stage.claim("data", &class).await.unwrap().uid().unwrap();
    let volume = stage.volume_of("data").await.unwrap();
    trace_of(jaeger, &uid, |spans| !named(spans, "provision").is_empty()).await;
    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    let deletion = volume.uid().unwrap();
    trace_of(jaeger, &deletion, |spans| !named(spans, "delete").is_empty()).await;

    let page = http::get(&jaeger.page_of(&uid)).await.unwrap();
    assert_eq!(page.status, 200);
    assert!(page.body.contains("<title>Traces of volumes</title>"), "not our page: {}", page.body);
    // What the page asks for, in the shape in which it reads it.
    let trace = data(&jaeger.data_of(&uid)).await;
    assert!(trace.pointer("/0/processes/p1/tags").is_some() && trace[0]["traceID"].is_string(), "{trace}");
    let tags = format!(r#"{{"k8s.persistentvolume.name":"pvc-{uid}"}}"#).replace('"', "%22");
    let of_volume = data(&format!("{}/api/traces?service=kube-provisioner&tags={tags}", jaeger.query)).await;
    assert_eq!(of_volume.as_array().unwrap().len(), 2, "the volume's traces: {of_volume}");

    let Some(browser) = Browser::find() else {
        eprintln!("no chromium on PATH: what the page draws was not looked at");
        return;
    };
    let drawn = browser.contents(&jaeger.page_of(&uid)).await.unwrap();
    let deletion = deletion.replace('-', "");
    for text in [
        &format!("Claim {}/data", stage.scope.namespace()),
        "r0 tries and fails: no space",
        "waiting · BackingOff",
        "r0 makes the volume again (attempt 2)",
        "create volume",
        "<strong>Bound</strong>",
        &format!(r#"<a href="/trace/{deletion}">"#),
        "take the finalizer off volume",
        "<strong>gone</strong>",
    ] {
        assert!(drawn.contains(text), "{text:?} is not on the page: {drawn}");
    }
    let list = browser.contents(&jaeger.query).await.unwrap();
    assert!(
        list.contains(&format!(r#"<a href="/trace/{deletion}">deletion</a>"#)),
        "not in the list: {list}"
    );
}

async fn data(url: &str) -> Value {
    let answer = http::get(url).await.unwrap();
    assert_eq!(answer.status, 200, "{url}: {}", answer.body);
    serde_json::from_str::<Value>(&answer.body).unwrap()["data"].take()
}
