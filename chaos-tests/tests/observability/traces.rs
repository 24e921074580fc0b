//! One trace per volume, in a real Jaeger, whatever happens to leaders and to Jaeger.

use std::time::Duration;

use chaos_tests::{
    binaries::Program,
    cluster::Scope,
    control_plane::{ControlPlane, Options},
    ledger::stage::DEADLINE,
};
use futures::{StreamExt, stream};
use kube::ResourceExt;

use crate::{
    eventually, fails_first, gated,
    jaeger::{Span, named, only, trace_of},
    metrics::scrape,
    page, scope, stage,
};

/// The waits of a trace for this reason.
fn waits<'a>(spans: &'a [Span], reason: &str) -> Vec<&'a Span> {
    let mut waits = named(spans, "waiting");
    waits.retain(|span| span.tag("kube_provisioner.reason").as_deref() == Some(reason));
    waits
}

#[tokio::test]
async fn one_trace_tells_a_provisioning_across_the_death_of_a_leader_and_the_deletion_links_to_it() {
    let scope = scope().await;
    let jaeger = scope.plane().jaeger().unwrap();
    let stage = stage(scope, 2, Some(&jaeger.otlp)).await;
    let class = stage.class("c", |_| ()).await.unwrap();
    let first = stage.leader().await.unwrap();

    stage.ledger.set(&[fails_first("data"), gated()]).unwrap();
    let uid = stage.claim("data", &class).await.unwrap().uid().unwrap();
    stage.ledger.wait_begun("provision", 2, DEADLINE).await.unwrap();
    // What is not exported yet dies with the leader. The attempt itself would be told at its end only.
    let underway = |spans: &[Span]| !named(spans, "provision attempt under way").is_empty();
    trace_of(jaeger, &uid, underway).await;
    stage.replicas[first].kill().await.unwrap();
    stage.ledger.wait_begun("provision", 3, DEADLINE).await.unwrap();
    stage.ledger.open("gate").unwrap();
    let volume = stage.volume_of("data").await.unwrap();

    let whole = |spans: &[Span]| !named(spans, "provision").is_empty();
    let spans = trace_of(jaeger, &uid, whole).await;
    let root = only(&spans, "provision");
    assert_eq!(root.parent(), None);
    assert_eq!(root.tag("k8s.persistentvolumeclaim.name").as_deref(), Some("data"));
    assert_eq!(root.tag("error"), None);

    // The first leader's failed attempt, and the one it was in when it died.
    let names = [first, 1 - first].map(|place| stage.replicas[place].name());
    let by = |span: &&&Span, name: &str| span.tag("kube_provisioner.identity").unwrap().starts_with(name);
    let attempts = named(&spans, "provision attempt");
    assert_eq!(attempts.len(), 2, "{spans:#?}");
    let failed = attempts.iter().find(|span| by(span, names[0])).unwrap();
    assert_eq!(failed.tag("error").as_deref(), Some("true"));
    assert_eq!(failed.tag("error.type").as_deref(), Some("ProvisioningFailed"));
    assert!(failed.tag("otel.status_description").unwrap().contains("no space"));
    let died = only(&spans, "provision attempt under way");
    assert!(by(&&died, names[0]) && died.tag("attempt").as_deref() == Some("2"), "{died:?}");

    // The second leader's.
    let done = attempts.iter().find(|span| by(span, names[1])).unwrap();
    assert_eq!(done.tag("error"), None);
    assert!(
        done.tag("epoch").unwrap().parse::<u64>().unwrap() > failed.tag("epoch").unwrap().parse().unwrap()
    );
    let create = only(&spans, "create volume");
    assert_eq!(create.parent(), Some(done.id()));
    assert_eq!(create.tag("http.request.method").as_deref(), Some("POST"));
    let calls = named(&spans, "backend provision");
    let parents: Vec<_> = calls.iter().map(|call| call.parent().unwrap()).collect();
    assert_eq!(parents.len(), 2);
    assert!(parents.contains(&failed.id()) && parents.contains(&done.id()));
    let call = calls.iter().find(|call| call.parent() == Some(done.id())).unwrap();
    let handed = format!("00-{}-{}-01", uid.replace('-', ""), call.id());
    let calls = stage.ledger.begun("provision").unwrap();
    assert_eq!(calls[2].request["traceparent"], handed, "the backend got another context");
    assert!(call.start() >= died.end() && call.duration() <= done.duration());

    // All hangs below the root, and lies in its time.
    for span in attempts.iter().copied().chain([died]).chain(named(&spans, "waiting")) {
        assert_eq!(span.parent(), Some(root.id()), "{span:?}");
        assert!(span.start() >= root.start() && span.end() <= root.end(), "{span:?} is not in {root:?}");
    }
    let tried_again = waits(&spans, "BackingOff");
    assert!(tried_again.iter().any(|wait| wait.duration() >= Duration::from_millis(150)), "{spans:#?}");
    let gap = waits(&spans, "Leaderless");
    assert!(gap.len() == 1 && gap[0].duration() >= Duration::from_millis(500), "{gap:?}");
    assert!(gap[0].end() <= done.start());
    assert_eq!(waits(&spans, "Binding").len(), 1);

    stage.delete_claim("data").await.unwrap();
    stage.volume_gone(&volume).await.unwrap();
    let whole = |spans: &[Span]| !named(spans, "delete").is_empty();
    let spans = trace_of(jaeger, &volume.uid().unwrap(), whole).await;
    let (root, attempt) = (only(&spans, "delete"), only(&spans, "delete attempt"));
    assert_eq!(attempt.parent(), Some(root.id()));
    assert_eq!(only(&spans, "backend delete").parent(), Some(attempt.id()));
    let provisioning = uid.replace('-', "");
    assert_eq!(root.links(), [(provisioning.as_str(), done.id())]);
    let requests = ["delete volume", "take the finalizer off volume"];
    for request in requests {
        assert_eq!(only(&spans, request).parent(), Some(attempt.id()));
    }
    page::photograph(&jaeger.page_of(&uid)).await;
}

#[tokio::test]
async fn a_leader_that_stops_ends_its_attempt_with_an_error_in_the_same_trace() {
    let scope = scope().await;
    let jaeger = scope.plane().jaeger().unwrap();
    let stage = stage(scope, 2, Some(&jaeger.otlp)).await;
    let class = stage.class("c", |_| ()).await.unwrap();
    let first = stage.leader().await.unwrap();
    stage.ledger.set(&[gated()]).unwrap();
    let uid = stage.claim("data", &class).await.unwrap().uid().unwrap();
    stage.ledger.wait_begun("provision", 1, DEADLINE).await.unwrap();
    stage.replicas[first].terminate(DEADLINE).await.unwrap();
    stage.ledger.wait_begun("provision", 2, DEADLINE).await.unwrap();
    stage.ledger.open("gate").unwrap();
    stage.volume_of("data").await.unwrap();
    let spans = trace_of(jaeger, &uid, |spans| !named(spans, "provision").is_empty()).await;
    let cut: Vec<_> = spans.iter().filter(|span| span.tag("error").is_some()).collect();
    let mut reasons: Vec<_> = cut.iter().map(|span| (span.name(), span.tag("error.type").unwrap())).collect();
    reasons.sort();
    let expected = [("backend provision", "cut_off"), ("provision attempt", "LeadershipEnded")];
    assert_eq!(reasons, expected.map(|(name, reason)| (name, reason.to_owned())));
    assert_eq!(named(&spans, "provision attempt").len(), 2);
}

#[tokio::test]
async fn the_death_of_jaeger_costs_spans_that_are_counted_and_no_claim() {
    let options = Options { jaeger: true, controller_manager_qps: Some(500), ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let otlp = plane.jaeger().unwrap().otlp.clone();
    let stage = stage(Scope::new(&plane).await.unwrap(), 1, Some(&otlp)).await;
    let class = stage.class("c", |_| ()).await.unwrap();
    let claims: Vec<String> = (0..500).map(|n| format!("c{n}")).collect();
    let create = async |names: &[String]| {
        let created = async |name: &String| drop(stage.claim(name, &class).await.unwrap());
        stream::iter(names).for_each_concurrent(16, created).await;
    };
    let (before, after) = claims.split_at(100);
    create(before).await;
    let exported = async || scrape(&stage.replicas[0]).await.sum("kube_provisioner_spans_exported_total");
    eventually("exported spans", async || (exported().await > 0.0).then_some(())).await;
    plane.kill(Program::Jaeger).unwrap();
    create(after).await;
    for name in &claims {
        stage.scope.wait_bound(name, DEADLINE).await.unwrap();
    }
    let dropped = eventually("dropped spans", async || {
        let dropped = scrape(&stage.replicas[0]).await.sum("kube_provisioner_spans_dropped_total");
        (dropped > 100.0).then_some(dropped)
    });
    dropped.await;
    let resident = stage.replicas[0].resident_bytes().unwrap();
    assert!(resident < 150 << 20, "{resident} bytes are resident");
    let log = stage.replicas[0].log_text().unwrap();
    assert_eq!(log.matches("traces can't be exported").count(), 1, "told more than once");
}
