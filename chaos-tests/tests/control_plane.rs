//! The control plane is a real one: what tests rely on works, and its end leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use chaos_tests::{
    binaries::Program,
    cluster::{self, Scope},
    control_plane::{ControlPlane, Options},
    http,
    procfs::{self, Watched},
    wait,
};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use kube::{Api, Client, ResourceExt, api::ListParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const DEADLINE: Duration = Duration::from_secs(60);

fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn a_new_namespace_gets_its_service_account() {
    let scope = Scope::new(cluster::shared().await.unwrap()).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(scope.client(), scope.namespace());
    wait::until_exists(&accounts, "default", DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_claim_is_bound_to_a_volume_that_waits_for_it() {
    let scope = Scope::new(cluster::shared().await.unwrap()).await.unwrap();
    let class = scope.create_class("static", |_| ()).await.unwrap();
    let volume: PersistentVolume = object(json!({
        "metadata": { "name": format!("{}-volume", scope.namespace()) },
        "spec": {
            "capacity": { "storage": "1Mi" },
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class.name_any(),
            "hostPath": { "path": "/nowhere" },
        },
    }));
    cluster::create(&scope.all_volumes(), &volume).await.unwrap();
    scope.create_claim("claim", &class.name_any(), |_| ()).await.unwrap();
    let claim = scope.wait_bound("claim", DEADLINE).await.unwrap();
    assert_eq!(claim.spec.unwrap().volume_name, volume.metadata.name);
}

#[tokio::test]
async fn a_wait_that_fails_shows_the_object_as_it_is() {
    let scope = Scope::new(cluster::shared().await.unwrap()).await.unwrap();
    scope.create_claim("lonely", "no-such-class", |_| ()).await.unwrap();
    let failure = format!("{:#}", scope.wait_bound("lonely", Duration::from_secs(1)).await.unwrap_err());
    assert!(failure.contains("lonely") && failure.contains("\"phase\":\"Pending\""), "{failure}");
}

#[tokio::test]
async fn a_deleted_claim_is_gone() {
    let scope = Scope::new(cluster::shared().await.unwrap()).await.unwrap();
    scope.create_claim("claim", "no-such-class", |_| ()).await.unwrap();
    cluster::delete(&scope.claims(), "claim").await.unwrap();
    wait::until_gone(&scope.claims(), "claim", DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_service_account_may_do_what_its_manifests_grant_and_nothing_else() {
    let scope = Scope::new(cluster::shared().await.unwrap()).await.unwrap();
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("rbac.yaml"), include_str!("rbac.yaml")).unwrap();
    let accounts = scope.install_permissions(manifests.path(), &[("PLACEHOLDER", "reader")]).await.unwrap();
    assert_eq!(accounts, ["reader"]);
    let kubeconfig = scope.service_account_kubeconfig("reader", None).await.unwrap();
    let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    claims.list(&ListParams::default()).await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes.list(&ListParams::default()).await.unwrap();
    let refusal = Api::<Node>::all(client).list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(refusal, kube::Error::Api(status) if status.code == 403));
}

#[tokio::test]
async fn jaeger_answers_and_requests_are_logged() {
    let plane = cluster::shared().await.unwrap();
    let answer = http::get(&format!("{}/api/services", plane.jaeger().unwrap().query)).await.unwrap();
    assert_eq!(answer.status, 200);
    let log = std::fs::read_to_string(plane.audit_log().unwrap()).unwrap();
    // Who asks without a name, as this process does, is logged without one.
    let named = |line| {
        let request: serde_json::Value = serde_json::from_str(line).unwrap();
        request["verb"].is_string() && request["userAgent"].is_string()
    };
    assert!(log.lines().filter(|line| line.contains("kube-controller-manager")).any(named), "{log}");
}

#[tokio::test]
async fn control_planes_side_by_side_do_not_see_each_other() {
    let scope = Scope::new(cluster::shared().await.unwrap()).await.unwrap();
    let other = ControlPlane::start(Options { scheduler: false, ..Options::default() }).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(other.client().await.unwrap());
    assert!(namespaces.get_opt("default").await.unwrap().is_some());
    assert!(namespaces.get_opt(scope.namespace()).await.unwrap().is_none());
    let directory = other.directory().to_owned();
    let processes = watch(other.pids().into_values());
    drop(other);
    assert!(!directory.exists(), "{} is still there", directory.display());
    assert_all_end(&processes);
}

#[tokio::test]
async fn an_api_server_that_was_killed_comes_back_with_its_data() {
    let plane = ControlPlane::start(Options { scheduler: false, ..Options::default() }).await.unwrap();
    let scope = Scope::new(&plane).await.unwrap();
    plane.kill(Program::KubeApiserver).unwrap();
    assert!(scope.claims().list(&ListParams::default()).await.is_err(), "a killed API server answers");
    plane.restart(Program::KubeApiserver).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(scope.client());
    assert!(namespaces.get_opt(scope.namespace()).await.unwrap().is_some());
    plane.restart(Program::Etcd).await.unwrap();
    assert!(namespaces.get_opt(scope.namespace()).await.unwrap().is_some());
}

#[tokio::test]
async fn what_was_written_after_a_snapshot_is_gone_once_that_is_restored() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let scope = Scope::new(&plane).await.unwrap();
    let before = scope.create_claim("before", "no-such-class", |_| ()).await.unwrap();
    let snapshot = plane.snapshot().await.unwrap();
    // More writes than the API server makes of its own when it starts.
    for number in 0..200 {
        scope.create_claim(&format!("after-{number}"), "no-such-class", |_| ()).await.unwrap();
    }
    let list = async || scope.claims().list(&ListParams::default()).await.unwrap();
    let then = list().await;
    plane.restore(&snapshot).await.unwrap();
    let now = list().await;
    assert_eq!(now.items.iter().map(ResourceExt::uid).collect::<Vec<_>>(), [before.uid()]);
    let version = |text: Option<String>| text.unwrap().parse::<u64>().unwrap();
    let (then, now) = (version(then.metadata.resource_version), version(now.metadata.resource_version));
    assert!(now < then, "versions go back: {now} after {then}");
    scope.create_claim("after-0", "no-such-class", |_| ()).await.unwrap();
}

#[tokio::test]
async fn a_paused_api_server_keeps_silent_until_it_is_resumed() {
    let plane = ControlPlane::start(Options { scheduler: false, ..Options::default() }).await.unwrap();
    let client = plane.client().await.unwrap();
    plane.pause(Program::KubeApiserver).unwrap();
    let silence = tokio::time::timeout(Duration::from_millis(500), client.apiserver_version()).await;
    assert!(silence.is_err(), "a paused API server answers");
    plane.resume(Program::KubeApiserver).unwrap();
    tokio::time::timeout(DEADLINE, client.apiserver_version()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_panic_takes_the_control_plane_down() {
    let (sender, told) = tokio::sync::oneshot::channel();
    let panicked = tokio::spawn(async {
        let plane = ControlPlane::start(Options { scheduler: false, ..Options::default() }).await.unwrap();
        sender.send((watch(plane.pids().into_values()), plane.directory().to_owned())).unwrap();
        panic!("on purpose");
    });
    let (processes, directory) = told.await.unwrap();
    assert!(panicked.await.unwrap_err().is_panic());
    assert_all_end(&processes);
    assert!(!directory.exists());
}

#[tokio::test]
async fn the_command_stops_cleanly_on_sigterm() {
    let mut command = Up::start();
    command.signal(Signal::TERM);
    let status = command.child.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_all_end(&command.processes);
    assert!(!command.directory.exists());
}

#[tokio::test]
async fn a_killed_command_leaves_neither_processes_nor_files() {
    let mut command = Up::start();
    command.signal(Signal::KILL);
    command.child.wait().unwrap();
    // The janitor is among the processes: when all have ended, it has done its work.
    assert_all_end(&command.processes);
    assert!(!command.directory.exists());
}

#[tokio::test]
async fn the_shared_control_plane_ends_with_the_tests_that_share_it() {
    let output = run_alone("tells_what_runs_for_the_shared_control_plane");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("shared: ")).unwrap();
    let (directory, children): (PathBuf, Vec<u32>) = serde_json::from_str(line).unwrap();
    assert_eq!(children.len(), 6, "five programs and the janitor");
    // Those that have ended already have no handle any more.
    let processes: Vec<Watched> = children.into_iter().filter_map(|pid| Watched::new(pid).ok()).collect();
    assert_all_end(&processes);
    assert!(!directory.exists());
}

#[tokio::test]
#[ignore = "a part of the test above, which runs it in a process of its own"]
async fn tells_what_runs_for_the_shared_control_plane() {
    let plane = cluster::shared().await.unwrap();
    let state = (plane.directory(), procfs::children(std::process::id()).unwrap());
    println!("\nshared: {}", serde_json::to_string(&state).unwrap());
}

#[tokio::test]
async fn a_failed_test_prints_its_logs_events_and_objects() {
    let output = run_alone("fails_with_a_claim_an_event_and_a_log");
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    for expected in
        ["what the replica said", "\"name\":\"lonely\"", "ProvisioningFailed PersistentVolumeClaim/lonely"]
    {
        assert!(text.contains(expected), "{expected:?} is not in: {text}");
    }
}

#[tokio::test]
#[ignore = "a part of the test above, which runs it in a process of its own"]
async fn fails_with_a_claim_an_event_and_a_log() {
    let scope = Scope::new(cluster::shared().await.unwrap()).await.unwrap();
    std::fs::write(scope.directory().join("replica.log"), "what the replica said\n").unwrap();
    scope.create_claim("lonely", "no-such-class", |_| ()).await.unwrap();
    scope.wait_event("lonely", "ProvisioningFailed", DEADLINE).await.unwrap();
    panic!("on purpose");
}

/// Runs a test of this file in a process of its own, which is what all tests of a binary share.
fn run_alone(test: &str) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", test]).output().unwrap()
}

/// `cargo control-plane up`, ready, with handles of all its child processes.
struct Up {
    child: Child,
    directory: PathBuf,
    processes: Vec<Watched>,
}

impl Up {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_control-plane"))
            .args(["up", "--jaeger"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(Path::new(told["kubeconfig"].as_str().unwrap()).exists());
        assert_eq!(told["processes"].as_object().unwrap().len(), 5);
        let children = procfs::children(child.id()).unwrap();
        assert_eq!(children.len(), 6, "five programs and the janitor");
        Self { directory: told["directory"].as_str().unwrap().into(), processes: watch(children), child }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

fn watch(pids: impl IntoIterator<Item = u32>) -> Vec<Watched> {
    pids.into_iter().map(|pid| Watched::new(pid).unwrap()).collect()
}

fn assert_all_end(processes: &[Watched]) {
    for process in processes {
        process.wait_end(DEADLINE).unwrap();
    }
}
