//! What a volume's spans look like to a collector, whichever replica made them.

use std::time::{Duration, UNIX_EPOCH};

use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::SpanData;
use tracing::{Dispatch, dispatcher};

use super::*;
use crate::telemetry::{
    assemble,
    export::Export,
    logs::{self, LogFormat},
    metrics::Metrics,
    settings::OtlpSettings,
    testing::{Captured, Collected, ManualClock},
};

const CLAIM: Claim<'_> = Claim {
    namespace: "shop",
    name: "data",
    uid: "0af76519-16cd-43dd-8448-eb211c80319c",
    class: "fast",
    volume: "pvc-0af76519-16cd-43dd-8448-eb211c80319c",
};

const VOLUME: Volume<'_> = Volume {
    name: CLAIM.volume,
    uid: "6e0c63257-bad",
    class: "fast",
    provisioning: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const ROOT: &str = "963611174cd3c48f";

/// One replica: its subscriber and its exporter, into a collector that others may share.
struct Replica {
    dispatch: Dispatch,
    traces: Traces,
    export: Export,
}

impl Replica {
    fn new(collector: &Collected, ratio: f64, log_filter: &str) -> Self {
        let clock = ManualClock::default();
        let settings = OtlpSettings {
            endpoint: String::new(),
            certificate: None,
            timeout: Duration::from_secs(10),
            ratio,
            queue_size: 1000,
            delay: Duration::from_secs(1),
            resource_defaults: Vec::new(),
        };
        let export = Export::to(collector.clone(), &settings, &Metrics::new(&clock.shared()));
        let (layer, _) = logs::layer(LogFormat::Human, log_filter, std::io::sink).unwrap();
        let (dispatch, traces) = assemble(layer, Some(&export));
        Self { dispatch, traces, export }
    }

    /// Does `work` as this replica, and sends what came of it.
    fn does<T>(&self, work: impl FnOnce(&Traces) -> T) -> T {
        dispatcher::with_default(&self.dispatch, || work(&self.traces))
    }

    fn stops(self) {
        self.export.shutdown(Duration::from_secs(10)).unwrap();
    }
}

fn attempt(identity: &str, number: u32) -> Attempt<'_> {
    Attempt { epoch: 4711, identity, number }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    span.attributes.iter().find(|pair| pair.key.as_str() == key).map(|pair| pair.value.to_string())
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("no span {name:?} in {spans:#?}"));
    assert!(found.next().is_none(), "more than one span {name:?}");
    span
}

#[test]
fn attempts_of_two_replicas_and_the_root_are_one_trace() {
    let collector = Collected::default();
    let (first, second) = (Replica::new(&collector, 1.0, ""), Replica::new(&collector, 1.0, "off"));
    first.does(|traces| {
        let span = traces.attempt_span(&CLAIM, &attempt("pod-a", 1));
        span.in_scope(|| {
            tracing::info_span!(target: "kube_provisioner::actors", "backend call").in_scope(|| {})
        });
        failed(&span, "Cut", "leadership ended");
    });
    second.does(|traces| {
        drop(traces.attempt_span(&CLAIM, &attempt("pod-b", 2)));
        let waits = [Wait { start: at(1), end: at(4), reason: "WaitForNode" }];
        let life = Life { began: at(0), ended: at(9), outcome: Outcome::Done, waits: &waits };
        traces.emit_root(&CLAIM, &life);
    });
    first.stops();
    second.stops();

    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.span_context.trace_id().to_string() == TRACE), "{spans:#?}");
    let root = named(&spans, "provision");
    assert_eq!(root.span_context.span_id().to_string(), ROOT);
    assert_eq!(root.parent_span_id, SpanId::INVALID);
    assert_eq!((root.start_time, root.end_time), (at(0), at(9)));
    assert_eq!(root.status, Status::Unset);

    let attempts: Vec<_> = spans.iter().filter(|span| span.name == "provision attempt").collect();
    assert_eq!(attempts.len(), 2);
    assert!(attempts.iter().all(|span| span.parent_span_id.to_string() == ROOT));
    let identities: Vec<_> = attempts.iter().map(|it| attribute(it, "kube_provisioner.identity")).collect();
    assert_eq!(identities, [Some("pod-a".into()), Some("pod-b".into())]);
    assert_eq!(attempts[0].status, Status::error("leadership ended"));
    assert_eq!(attribute(attempts[0], "error.type").as_deref(), Some("Cut"));

    let call = named(&spans, "backend call");
    assert_eq!(call.parent_span_id, attempts[0].span_context.span_id());
    let wait = named(&spans, "waiting");
    assert_eq!(wait.parent_span_id.to_string(), ROOT);
    assert_eq!((wait.start_time, wait.end_time), (at(1), at(4)));
    assert_eq!(attribute(wait, "kube_provisioner.reason").as_deref(), Some("WaitForNode"));
}

#[test]
fn spans_are_described_by_opentelemetrys_kubernetes_conventions() {
    let collector = Collected::default();
    let replica = Replica::new(&collector, 1.0, "");
    replica.does(|traces| drop(traces.attempt_span(&CLAIM, &attempt("pod-a", 3))));
    replica.stops();
    let spans = collector.spans();
    let span = named(&spans, "provision attempt");
    for (key, value) in [
        ("k8s.namespace.name", "shop"),
        ("k8s.persistentvolumeclaim.name", "data"),
        ("k8s.persistentvolumeclaim.uid", CLAIM.uid),
        ("k8s.persistentvolume.name", CLAIM.volume),
        ("k8s.storageclass.name", "fast"),
        ("epoch", "4711"),
        ("attempt", "3"),
    ] {
        assert_eq!(attribute(span, key).as_deref(), Some(value), "{key}");
    }
}

#[test]
fn a_deletion_is_a_trace_of_its_own_that_links_to_the_provisioning() {
    let collector = Collected::default();
    let replica = Replica::new(&collector, 1.0, "");
    let provisioned = replica.does(|traces| {
        let span = traces.attempt_span(&CLAIM, &attempt("pod-a", 1));
        traceparent_of(&span).unwrap()
    });
    let volume =
        Volume { provisioning: Some(&provisioned), uid: "11111111-2222-4333-8444-555555555555", ..VOLUME };
    replica.does(|traces| {
        drop(traces.deletion_span(&volume, &attempt("pod-a", 1)));
        let life = Life { began: at(0), ended: at(1), outcome: Outcome::Done, waits: &[] };
        traces.emit_deletion_root(&volume, &life);
    });
    replica.stops();

    let spans = collector.spans();
    let provisioning = named(&spans, "provision attempt").span_context.clone();
    let (root, tried) = (named(&spans, "delete"), named(&spans, "delete attempt"));
    assert_eq!(root.span_context.trace_id().to_string(), "11111111222243338444555555555555");
    assert_eq!(tried.parent_span_id, root.span_context.span_id());
    for span in [root, tried] {
        let link = &span.links[0].span_context;
        assert_eq!((link.trace_id(), link.span_id()), (provisioning.trace_id(), provisioning.span_id()));
        assert_eq!(attribute(span, "k8s.persistentvolume.name").as_deref(), Some(CLAIM.volume));
    }
}

#[test]
fn an_operation_that_failed_for_good_says_why_on_its_root() {
    let collector = Collected::default();
    let replica = Replica::new(&collector, 1.0, "");
    let outcome = Outcome::Failed { reason: "Infeasible", message: "no such pool" };
    // The clock of the API server may be ahead of ours.
    let life = Life { began: at(5), ended: at(4), outcome, waits: &[] };
    replica.does(|traces| traces.emit_root(&CLAIM, &life));
    replica.stops();
    let spans = collector.spans();
    let root = named(&spans, "provision");
    assert_eq!(root.status, Status::error("no such pool"));
    assert_eq!(attribute(root, "error.type").as_deref(), Some("Infeasible"));
    assert_eq!((root.start_time, root.end_time), (at(5), at(5)));
}

#[test]
fn what_belongs_to_no_volume_is_not_exported() {
    let collector = Collected::default();
    let replica = Replica::new(&collector, 1.0, "");
    let renewal = || tracing::debug_span!(target: "kube_client::client::builder", "HTTP").in_scope(|| {});
    replica.does(|traces| {
        renewal();
        tracing::info_span!(target: "kube_provisioner::lease", "renew").in_scope(renewal);
        traces.attempt_span(&CLAIM, &attempt("pod-a", 1)).in_scope(|| {
            renewal();
            tracing::debug_span!(target: "hyper", "noise").in_scope(|| {});
        });
    });
    replica.stops();
    let names: Vec<_> = collector.spans().into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["provision attempt"]);
}

#[test]
fn what_lasts_and_what_was_waited_for_is_told_under_the_root_at_once() {
    let collector = Collected::default();
    let replica = Replica::new(&collector, 1.0, "");
    replica.does(|traces| {
        traces.underway(&CLAIM, &attempt("pod-a", 2), at(0));
        traces.waited(CLAIM.uid, &Wait { start: at(1), end: at(3), reason: "Leaderless" });
        traces.deletion_underway(&VOLUME, &attempt("pod-a", 1), at(0));
    });
    replica.stops();
    let spans = collector.spans();
    let (underway, wait) = (named(&spans, "provision attempt under way"), named(&spans, "waiting"));
    for span in [underway, wait] {
        assert_eq!(span.span_context.trace_id().to_string(), TRACE);
        assert_eq!(span.parent_span_id.to_string(), ROOT);
    }
    assert_eq!(underway.start_time, at(0));
    assert_eq!(attribute(underway, "kube_provisioner.identity").as_deref(), Some("pod-a"));
    assert_eq!(attribute(underway, "attempt").as_deref(), Some("2"));
    let deletion = named(&spans, "delete attempt under way");
    assert_eq!(deletion.span_context.trace_id(), trace_id_of(VOLUME.uid));
}

#[test]
fn all_replicas_keep_the_same_traces_whole() {
    let collector = Collected::default();
    let replicas = [Replica::new(&collector, 0.5, ""), Replica::new(&collector, 0.5, "")];
    let uids: Vec<_> =
        (0..40_u64).map(|n| format!("{:08x}-16cd-43dd-8448-eb211c80319c", n * 0x9e37)).collect();
    for (replica, uid) in replicas.iter().flat_map(|replica| uids.iter().map(move |uid| (replica, uid))) {
        replica.does(|traces| {
            let claim = Claim { uid, ..CLAIM };
            drop(traces.attempt_span(&claim, &attempt("pod", 1)));
            traces
                .emit_root(&claim, &Life { began: at(0), ended: at(1), outcome: Outcome::Done, waits: &[] });
        });
    }
    let kept = uids.iter().filter(|uid| replicas[0].traces.exported(uid).is_some()).count();
    let spans_of = |uid: &str| {
        collector.spans().iter().filter(|span| span.span_context.trace_id() == trace_id_of(uid)).count()
    };
    replicas.into_iter().for_each(Replica::stops);
    assert!((5..=35).contains(&kept), "{kept}");
    let whole = uids.iter().filter(|uid| spans_of(uid) == 4).count();
    let none = uids.iter().filter(|uid| spans_of(uid) == 0).count();
    assert_eq!((whole, none), (kept, 40 - kept));
}

#[test]
fn a_trace_that_is_not_kept_still_has_its_id_for_others() {
    let collector = Collected::default();
    let replica = Replica::new(&collector, 0.0, "");
    let traceparent = replica.does(|traces| traceparent_of(&traces.attempt_span(&CLAIM, &attempt("pod", 1))));
    let context = parse_traceparent(&traceparent.unwrap()).unwrap();
    assert_eq!(context.trace_id().to_string(), TRACE);
    assert!(!context.is_sampled());
    replica.stops();
    assert_eq!(collector.spans().len(), 0);
}

#[test]
fn without_an_exporter_a_span_still_carries_what_logs_show() {
    let lines = Captured::default();
    let (layer, _) = logs::layer(LogFormat::Json, "", lines.writer()).unwrap();
    let (dispatch, traces) = assemble(layer, None);
    dispatcher::with_default(&dispatch, || {
        let span = traces.attempt_span(&CLAIM, &attempt("pod-a", 1));
        assert_eq!(traceparent_of(&span), None);
        span.in_scope(|| tracing::info!("saved"));
        traces.emit_root(&CLAIM, &Life { began: at(0), ended: at(1), outcome: Outcome::Done, waits: &[] });
    });
    let line: serde_json::Value = serde_json::from_str(&lines.take()).unwrap();
    assert_eq!(line["claim"], "shop/data");
    assert_eq!(line["volume"], CLAIM.volume);
    assert_eq!(line["trace_id"], TRACE);
    assert_eq!((&line["epoch"], &line["attempt"]), (&4711.into(), &1.into()));
    assert_eq!(traces.exported(CLAIM.uid), None);
}

#[test]
fn an_attempt_ends_with_its_work_and_not_with_what_the_log_says_of_it() {
    let collector = Collected::default();
    let replica = Replica::new(&collector, 1.0, "");
    let over = replica.does(|traces| {
        let span = traces.attempt_span(&CLAIM, &attempt("pod-a", 1));
        span.in_scope(|| ());
        ended(&span);
        let over = SystemTime::now();
        span.in_scope(|| tracing::info!("provisioned"));
        over
    });
    replica.stops();
    let spans = collector.spans();
    let span = named(&spans, "provision attempt");
    assert!(span.end_time <= over, "{:?} after {over:?}", span.end_time);
}
