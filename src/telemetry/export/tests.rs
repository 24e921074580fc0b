//! What happens to spans when the collector is well, dead, or hangs: over real sockets.

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener},
    sync::mpsc,
    time::Instant,
};

use tracing::dispatcher;

use super::*;
use crate::telemetry::{
    assemble,
    logs::{self, LogFormat},
    metrics::Format,
    testing::{Captured, ManualClock},
    trace::{Attempt, Claim, Traces},
};

/// Far above what any step takes, and below what a test may hang.
const LONG: Duration = Duration::from_secs(20);

fn metrics() -> Metrics {
    Metrics::new(&ManualClock::default().shared())
}

fn settings(endpoint: String, queue_size: usize) -> OtlpSettings {
    OtlpSettings {
        endpoint,
        certificate: None,
        timeout: Duration::from_secs(10),
        ratio: 1.0,
        queue_size,
        delay: Duration::from_secs(1),
        resource_defaults: vec![("service.name", "kube-provisioner".into())],
    }
}

fn exporting(endpoint: String, queue_size: usize, metrics: &Metrics) -> Export {
    Export::over_http(&settings(endpoint, queue_size), metrics).unwrap()
}

fn count(metrics: &Metrics, series: &str) -> u64 {
    let text = metrics.encode(Format::Prometheus).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("no {series}")).trim().parse().unwrap()
}

fn exported(metrics: &Metrics) -> u64 {
    count(metrics, "kube_provisioner_spans_exported_total")
}

fn dropped(metrics: &Metrics, reason: &str) -> u64 {
    count(metrics, &format!("kube_provisioner_spans_dropped_total{{reason={reason:?}}}"))
}

/// Makes so many spans as the program would.
fn make_spans(export: &Export, spans: u64) {
    let (layer, _) = logs::layer(LogFormat::Human, "off", std::io::sink).unwrap();
    let (dispatch, traces) = assemble(layer, Some(export));
    dispatcher::with_default(&dispatch, || (0..spans).for_each(|n| make_span(&traces, n)));
}

fn make_span(traces: &Traces, n: u64) {
    let uid = format!("{n:032x}");
    let claim = Claim { namespace: "shop", name: "data", uid: &uid, class: "fast", volume: "pvc-x" };
    drop(traces.attempt_span(&claim, &Attempt { epoch: 1, identity: "pod-a", number: 1 }));
}

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    (listener, endpoint)
}

/// One request's path and body, answered with 200.
fn take_request(mut stream: impl Read + Write) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(&mut stream);
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    Some((first, body))
}

#[test]
fn everything_is_sent_before_the_shutdown_returns() {
    let (listener, endpoint) = listener();
    let (requests, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            while let Some(request) = take_request(&stream) {
                let _ = requests.send(request);
            }
        }
    });
    let metrics = metrics();
    let export = exporting(endpoint, 20_000, &metrics);
    make_spans(&export, 10_000);
    assert_eq!(export.shutdown(LONG), Ok(()));
    assert_eq!(exported(&metrics), 10_000);
    let requests: Vec<_> = received.try_iter().collect();
    assert!(requests.iter().all(|(line, _)| line.starts_with("POST /v1/traces ")));
    let bodies: Vec<u8> = requests.into_iter().flat_map(|(_, body)| body).collect();
    let contains = |needle: &[u8]| bodies.windows(needle.len()).any(|window| window == needle);
    assert!(contains(b"kube-provisioner"), "the service name");
    assert!(contains(&9_999_u128.to_be_bytes()), "the last trace's id");
    assert!(contains(b"k8s.persistentvolumeclaim.uid"));
}

/// A collector with this certificate for 127.0.0.1; the lines of the requests that it takes.
fn encrypted(signed: rcgen::CertifiedKey<rcgen::KeyPair>) -> (String, mpsc::Receiver<String>) {
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(signed.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let (listener, endpoint) = listener();
    let (lines, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream);
            while let Some((line, _)) = take_request(&mut stream) {
                let _ = lines.send(line);
            }
        }
    });
    (endpoint.replace("http:", "https:"), received)
}

#[test]
fn over_tls_spans_go_to_a_collector_that_is_trusted_and_to_no_other() {
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let authority = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(authority.path(), signed.cert.pem()).unwrap();
    let (endpoint, received) = encrypted(signed);
    let send = |certificate: Option<&std::path::Path>| {
        let metrics = metrics();
        let certificate = certificate.map(Into::into);
        let settings = OtlpSettings { certificate, ..settings(endpoint.clone(), 100) };
        let export = Export::over_http(&settings, &metrics).unwrap();
        make_spans(&export, 3);
        assert_eq!(export.shutdown(LONG), Ok(()));
        (exported(&metrics), dropped(&metrics, "export_failed"))
    };
    assert_eq!(send(Some(authority.path())), (3, 0));
    assert!(received.try_iter().all(|line| line.starts_with("POST /v1/traces ")));
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(authority.path(), other.cert.pem()).unwrap();
    assert_eq!(send(Some(authority.path())), (0, 3));
}

#[test]
fn authorities_that_can_not_be_read_are_named_at_the_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path(), std::path::Path::new("/nowhere/ca.pem")] {
        let certificate = Some(path.into());
        let settings = OtlpSettings { certificate, ..settings("https://jaeger:4318".to_owned(), 100) };
        let told = Export::over_http(&settings, &metrics()).unwrap_err().to_string();
        assert!(told.contains(&path.display().to_string()), "{told}");
    }
}

#[test]
fn a_collector_that_fails_is_told_once_and_so_is_its_return() {
    let lines = Captured::default();
    let (layer, _) = logs::layer(LogFormat::Human, "", lines.writer()).unwrap();
    let (dispatch, _) = assemble(layer, None);
    let queue = Queue::new(10, metrics());
    let error = OTelSdkError::Timeout(Duration::from_secs(10));
    dispatcher::with_default(&dispatch, || {
        queue.not_sent(1, &error);
        queue.not_sent(1, &error);
        queue.sent(1);
        queue.sent(1);
    });
    let told = lines.take();
    let told: Vec<_> = told.lines().collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("WARN") && told[0].contains("traces can't be exported"), "{told:?}");
    assert!(told[1].contains("INFO") && told[1].contains("takes spans again"), "{told:?}");
}

#[test]
fn a_dead_collector_costs_counted_spans_and_nothing_else() {
    let (listener, endpoint) = listener();
    drop(listener);
    let metrics = metrics();
    let export = exporting(endpoint, 20_000, &metrics);
    make_spans(&export, 100);
    assert_eq!(export.shutdown(LONG), Ok(()), "nothing waits any more");
    assert_eq!(exported(&metrics), 0);
    assert_eq!(dropped(&metrics, "export_failed"), 100);
    assert_eq!(count(&metrics, "kube_provisioner_span_export_failures_total"), 1);
}

#[test]
fn a_collector_that_hangs_neither_blocks_the_work_nor_the_shutdown() {
    // Connections are taken by the kernel, and never answered.
    let (_listener, endpoint) = listener();
    let metrics = metrics();
    let export = exporting(endpoint, 1000, &metrics);
    let began = Instant::now();
    make_spans(&export, 5000);
    let deadline = Duration::from_millis(300);
    let left = export.shutdown(deadline).unwrap_err().spans as u64;
    // The exporter's own limit is 10 s, and it would try again after that.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());

    assert_eq!(left, 1000, "the queue was full");
    assert_eq!(dropped(&metrics, "shutdown"), left);
    assert_eq!(dropped(&metrics, "queue_full") + left, 5000, "every span is accounted for");
}
