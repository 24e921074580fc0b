//! Telemetry as a program sets it up: once per process, so this test has a process of its own.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    net::{Ipv4Addr, TcpListener},
    time::{Duration, Instant},
};

use kube_provisioner::{
    clock::SystemClock,
    telemetry::{
        TelemetryError, TelemetryOptions, init,
        logs::LogFormat,
        metrics::Metrics,
        trace::{Attempt, Claim, parse_traceparent, trace_id_of, traceparent_of},
    },
};

const CLAIM: Claim<'_> = Claim {
    namespace: "shop",
    name: "data",
    uid: "0af76519-16cd-43dd-8448-eb211c80319c",
    class: "fast",
    volume: "pvc-0af76519-16cd-43dd-8448-eb211c80319c",
};

#[test]
fn a_program_traces_once_set_up_and_ends_in_time_although_the_collector_hangs() {
    // Connections are taken by the kernel, and never answered.
    let collector = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let options = TelemetryOptions {
        log_format: LogFormat::Json,
        log_filter: "off".to_owned(),
        otlp_endpoint: Some(format!("http://{}", collector.local_addr().unwrap())),
        instance: Some("pod-a".to_owned()),
        metrics: Metrics::new(&SystemClock::shared()),
    };
    let guard = init(&options).unwrap();
    let attempt = Attempt { epoch: 1, identity: "pod-a", number: 1 };
    let span = guard.traces().attempt_span(&CLAIM, &attempt);
    let context = parse_traceparent(&traceparent_of(&span).unwrap()).unwrap();
    assert_eq!(context.trace_id(), trace_id_of(CLAIM.uid));
    drop(span);

    let again = init(&options).unwrap_err();
    assert!(matches!(again, TelemetryError::AlreadySet(_)), "{again}");

    let began = Instant::now();
    let left = guard.shutdown(Duration::from_millis(200)).unwrap_err();
    assert_eq!(left.spans, 1);
    // The exporter's own limit is 10 s, and it would try again after that.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
