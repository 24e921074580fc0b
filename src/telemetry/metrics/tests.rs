//! What a scrape shows after what happened.

use std::{path::Path, time::Duration};

use opentelemetry::trace::TraceId;

use super::*;
use crate::telemetry::testing::ManualClock;

fn fresh() -> (Metrics, ManualClock) {
    let clock = ManualClock::default();
    (Metrics::new(&clock.shared()), clock)
}

fn scrape(metrics: &Metrics) -> String {
    metrics.encode(Format::Prometheus).unwrap()
}

#[track_caller]
fn assert_line(text: &str, line: &str) {
    assert!(text.lines().any(|it| it == line), "no line {line:?} in:\n{text}");
}

#[test]
fn provisioning_has_the_go_librarys_names_labels_and_buckets() {
    let (metrics, _) = fresh();
    let second = Duration::from_secs(1);
    metrics.volumes.provision_finished("fast", "", Verdict::Succeeded, second, None);
    metrics.volumes.provision_finished("fast", "VolumeSnapshot", Verdict::Failed, second, None);
    metrics.volumes.provision_finished("fast", "", Verdict::Neither, second, None);
    metrics.volumes.delete_finished("slow", Verdict::Succeeded, second, None);
    metrics.volumes.delete_finished("slow", Verdict::Failed, second, None);
    let text = scrape(&metrics);
    assert_line(&text, r#"controller_persistentvolumeclaim_provision_total{class="fast",source=""} 1"#);
    assert_line(
        &text,
        r#"controller_persistentvolumeclaim_provision_failed_total{class="fast",source="VolumeSnapshot"} 1"#,
    );
    assert_line(&text, "# TYPE controller_persistentvolumeclaim_provision_duration_seconds histogram");
    let bucket = "controller_persistentvolumeclaim_provision_duration_seconds_bucket";
    assert_line(&text, &format!(r#"{bucket}{{class="fast",source="",le="0.5"}} 0"#));
    assert_line(&text, &format!(r#"{bucket}{{class="fast",source="",le="1"}} 1"#));
    assert_line(&text, r#"controller_persistentvolume_delete_total{class="slow"} 1"#);
    assert_line(&text, r#"controller_persistentvolume_delete_failed_total{class="slow"} 1"#);
    assert_line(&text, r#"controller_persistentvolume_delete_duration_seconds_count{class="slow"} 1"#);
}

#[test]
fn a_queue_counts_what_waits_what_runs_and_for_how_long() {
    let (metrics, clock) = fresh();
    let queue = &metrics.claims_queue;
    queue.enqueued();
    queue.enqueued();
    queue.enqueued();
    queue.started("pvc-1", Duration::from_secs(2));
    clock.advance(Duration::from_secs(3));
    queue.started("pvc-2", Duration::ZERO);
    clock.advance(Duration::from_secs(1));
    queue.retried();
    let text = scrape(&metrics);
    assert_line(&text, r#"workqueue_depth{name="claims"} 1.0"#);
    assert_line(&text, r#"workqueue_adds_total{name="claims"} 3"#);
    assert_line(&text, r#"workqueue_retries_total{name="claims"} 1"#);
    assert_line(&text, r#"workqueue_queue_duration_seconds_sum{name="claims"} 2.0"#);
    assert_line(&text, r#"workqueue_unfinished_work_seconds{name="claims"} 5.0"#);
    assert_line(&text, r#"workqueue_longest_running_processor_seconds{name="claims"} 4.0"#);
    assert_line(&text, r#"workqueue_depth{name="volumes"} 0.0"#);

    queue.finished("pvc-1");
    queue.finished("pvc-1");
    let text = scrape(&metrics);
    assert_line(&text, r#"workqueue_work_duration_seconds_sum{name="claims"} 4.0"#);
    assert_line(&text, r#"workqueue_work_duration_seconds_count{name="claims"} 1"#);
    assert_line(&text, r#"workqueue_unfinished_work_seconds{name="claims"} 1.0"#);
}

#[test]
fn leadership_is_one_zero_or_one_per_lease() {
    let (metrics, _) = fresh();
    metrics.leadership.stands_by("example.com-dir");
    assert_line(&scrape(&metrics), r#"leader_election_master_status{name="example.com-dir"} 0.0"#);
    metrics.leadership.leads("example.com-dir", 4711);
    metrics.leadership.took_over("example.com-dir", Duration::from_millis(9));
    let text = scrape(&metrics);
    assert_line(&text, r#"leader_election_master_status{name="example.com-dir"} 1.0"#);
    assert_line(&text, r#"kube_provisioner_epoch{name="example.com-dir"} 4711.0"#);
    assert_line(&text, r#"kube_provisioner_epoch_changes_total{name="example.com-dir"} 1"#);
}

#[test]
fn requests_without_an_answer_have_client_gos_code_for_it() {
    let (metrics, clock) = fresh();
    metrics.cluster.request_finished("POST", "10.0.0.1:443", Some(201), Duration::from_millis(4));
    metrics.cluster.request_finished("POST", "10.0.0.1:443", None, Duration::from_secs(5));
    metrics.cluster.watch_heard("claims");
    clock.advance(Duration::from_secs(7));
    let text = scrape(&metrics);
    assert_line(&text, r#"rest_client_requests_total{code="201",method="POST",host="10.0.0.1:443"} 1"#);
    assert_line(&text, r#"rest_client_requests_total{code="<error>",method="POST",host="10.0.0.1:443"} 1"#);
    assert_line(&text, r#"rest_client_request_duration_seconds_count{verb="POST",host="10.0.0.1:443"} 2"#);
    assert_line(&text, r#"kube_provisioner_watch_age_seconds{kind="claims"} 7.0"#);
}

#[test]
fn our_own_metrics_are_shown_under_our_prefix() {
    let (metrics, _) = fresh();
    metrics.backend.call_started("provision");
    metrics.backend.call_started("provision");
    metrics.backend.call_finished("provision", "ok", Duration::from_secs(1), None);
    metrics.volumes.pending("example.com/dir", "WaitForNode", 3);
    metrics.reporting.event_dropped(EventDropped::QueueFull);
    metrics.reporting.event_written();
    let text = scrape(&metrics);
    assert_line(&text, r#"kube_provisioner_backend_calls_running{operation="provision"} 1.0"#);
    assert_line(&text, r#"kube_provisioner_backend_calls_total{operation="provision",outcome="ok"} 1"#);
    assert_line(
        &text,
        r#"kube_provisioner_pending_claims{provisioner="example.com/dir",reason="WaitForNode"} 3.0"#,
    );
    assert_line(&text, r#"kube_provisioner_events_dropped_total{reason="queue_full"} 1"#);
    assert_line(&text, "kube_provisioner_events_total 1");
    assert_line(
        &text,
        &format!(r#"kube_provisioner_build_info{{version="{}"}} 1"#, env!("CARGO_PKG_VERSION")),
    );
}

#[test]
fn openmetrics_carries_the_trace_as_an_exemplar_and_plain_text_does_not() {
    let (metrics, _) = fresh();
    let trace = TraceId::from(0x0af7651916cd43dd8448eb211c80319c);
    metrics.volumes.volume_saved("fast", Duration::from_secs(1), Some(trace));
    let open = metrics.encode(Format::OpenMetrics).unwrap();
    assert!(open.contains(r#"# {trace_id="0af7651916cd43dd8448eb211c80319c"} 1.0"#), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    assert!(!scrape(&metrics).contains("trace_id"));
}

#[test]
fn a_scraper_gets_openmetrics_only_when_it_asks() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
    assert_eq!(Format::accepted(Some("text/plain")), Format::Prometheus);
    assert_eq!(Format::accepted(None), Format::Prometheus);
}

#[test]
fn label_values_are_escaped() {
    let (metrics, _) = fresh();
    metrics.volumes.delete_finished("a\"b\\c\nd", Verdict::Failed, Duration::ZERO, None);
    assert_line(
        &scrape(&metrics),
        r#"controller_persistentvolume_delete_failed_total{class="a\"b\\c\nd"} 1"#,
    );
}

#[test]
fn the_reference_page_is_what_the_code_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/metrics.md");
    let rendered = fresh().0.render_reference();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&page, &rendered).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap(), rendered);
}
