//! What tests do to replicas, with a shell in the place of the product: signals, exits, probes, logs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{os::unix::process::ExitStatusExt, time::Duration};

use chaos_tests::{
    cluster::{self, Scope},
    ports::Port,
    replica::{Replica, Spec},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const DEADLINE: Duration = Duration::from_secs(30);

async fn scope() -> Scope<'static> {
    Scope::new(cluster::shared().await.unwrap()).await.unwrap()
}

/// Starts `script` and waits until it has said "started".
async fn start(scope: &Scope<'_>, script: &str) -> Replica {
    let spec = Spec {
        name: "replica".to_owned(),
        program: "sh".into(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: vec![("GREETING".to_owned(), "started".to_owned())],
        kubeconfig: "/the/kubeconfig".into(),
        http: Port::claim().unwrap(),
    };
    let replica = Replica::start(scope, spec).unwrap();
    let started = async {
        while !replica.log_text().unwrap().contains("started") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, started).await.unwrap();
    replica
}

#[tokio::test]
async fn a_replica_knows_its_identity_and_ends_with_its_own_code_on_sigterm() {
    let scope = scope().await;
    let script = "trap 'echo bye; exit 7' TERM; echo $KUBECONFIG $GREETING >&2; while :; do sleep 0.05; done";
    let replica = start(&scope, script).await;
    assert!(replica.resident_bytes().unwrap() > 0);
    assert_eq!(replica.terminate(DEADLINE).await.unwrap().code(), Some(7));
    assert_eq!(replica.log_text().unwrap(), "/the/kubeconfig started\nbye\n");
}

#[tokio::test]
async fn a_killed_replica_starts_again_with_the_same_log() {
    let scope = scope().await;
    let mut replica = start(&scope, "echo $GREETING; exec sleep 600").await;
    let first = replica.pid();
    assert_eq!(replica.kill().await.unwrap().signal(), Some(9));
    assert!(replica.resident_bytes().is_err());
    replica.restart().unwrap();
    assert_ne!(replica.pid(), first);
    assert_eq!(replica.exit_status(), None);
    assert!(replica.log_text().unwrap().starts_with("started\n"));
}

#[tokio::test]
async fn a_paused_replica_ends_only_when_it_is_resumed() {
    let scope = scope().await;
    let replica = start(&scope, "trap 'exit 0' TERM; echo $GREETING; while :; do sleep 0.05; done").await;
    replica.pause().unwrap();
    assert!(replica.terminate(Duration::from_millis(300)).await.is_err());
    replica.resume().unwrap();
    assert_eq!(replica.wait_exit(DEADLINE).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_replica_is_ready_when_its_probe_says_so_and_not_before() {
    let scope = scope().await;
    let port = Port::claim().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port.number())).await.unwrap();
    let spec = Spec {
        name: "replica".to_owned(),
        program: "sleep".into(),
        args: vec!["600".to_owned()],
        env: Vec::new(),
        kubeconfig: "/the/kubeconfig".into(),
        http: port,
    };
    let replica = Replica::start(&scope, spec).unwrap();
    let probes = tokio::spawn(async move {
        for answer in ["503 Service Unavailable", "503 Service Unavailable", "200 OK"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            assert!(request[..length].starts_with(b"GET /readyz HTTP/1.0\r\n"));
            stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\nnot yet").as_bytes()).await.unwrap();
        }
    });
    replica.wait_ready(DEADLINE).await.unwrap();
    probes.await.unwrap();
    let failure = replica.wait_ready(Duration::from_millis(100)).await.unwrap_err().to_string();
    assert!(failure.contains("is not ready after 100ms"), "{failure}");
}

#[tokio::test]
async fn waiting_for_a_replica_that_ended_fails_at_once() {
    let scope = scope().await;
    let replica = start(&scope, "echo $GREETING; exit 2").await;
    let failure = replica.wait_ready(DEADLINE).await.unwrap_err().to_string();
    assert!(failure.contains("ended (exit status: 2)"), "{failure}");
}
