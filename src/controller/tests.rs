//! A whole controller, on its own threads, before a server that knows next to nothing.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use axum::Router;
use http::{StatusCode, Uri};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;

use super::*;
use crate::{
    clock::BootTime,
    provisioner::{DeleteError, ProvisionError, VolumeOptions},
};

const PATIENCE: Duration = Duration::from_secs(60);

struct NoBackend;

#[async_trait]
impl Provisioner for NoBackend {
    async fn provision(&self, _: VolumeOptions) -> Result<PersistentVolume, ProvisionError> {
        Err(ProvisionError::NoChange("there is no storage".into()))
    }

    async fn delete(&self, _: &PersistentVolume) -> Result<(), DeleteError> {
        Ok(())
    }
}

/// What was asked of the server.
type Asked = Arc<Mutex<HashSet<String>>>;

/// Says who it is, and knows nothing else.
async fn server() -> (SocketAddr, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let answer = move |uri: Uri| async move {
        log.lock().unwrap_or_else(PoisonError::into_inner).insert(uri.path().to_owned());
        match uri.path() {
            "/api/v1/namespaces/kube-system" => {
                (StatusCode::OK, json!({ "metadata": { "uid": "u" } }).to_string())
            }
            _ => (StatusCode::NOT_FOUND, json!({ "kind": "Status", "code": 404 }).to_string()),
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    (address, asked)
}

/// The system's clock, until it panics on the actors' thread.
#[derive(Debug, Default)]
struct MortalClock(AtomicBool);

impl Clock for MortalClock {
    fn now(&self) -> BootTime {
        let is_actors = std::thread::current().name() == Some("provisioner");
        assert!(!(is_actors && self.0.load(Ordering::SeqCst)), "the clock has died");
        SystemClock::shared().now()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_actor_that_dies_ends_the_run_with_its_words_and_not_the_process() {
    let (address, asked) = server().await;
    let clock = Arc::new(MortalClock::default());
    let mut builder =
        ProvisionController::builder(kube::Config::new(format!("http://{address}").parse().unwrap()));
    builder.clock = clock.clone();
    let controller = builder
        .provisioner(
            ControllerOptions::new("example.dev/dying"),
            LeaderElectionOptions::default(),
            Arc::new(NoBackend),
        )
        .build()
        .unwrap();
    let run = tokio::spawn(controller.run(std::future::pending()));
    let watched = async {
        while !asked.lock().unwrap().contains("/api/v1/persistentvolumes") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, watched).await.expect("the actors have not begun");
    assert!(!run.is_finished(), "a server that knows nothing ended the run");
    clock.0.store(true, Ordering::SeqCst);
    let ended = tokio::time::timeout(PATIENCE, run).await.expect("a dead actor ended nothing").unwrap();
    match ended {
        Err(RunError::Panicked(words)) => assert!(words.contains("the clock has died"), "{words}"),
        other => panic!("the run ended with {other:?}"),
    }
}
