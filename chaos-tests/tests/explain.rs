//! `kube-provisioner explain` on a real control plane, with a real replica whose backend is told by the class
//! what to answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../../tests/support/json_schema.rs"]
mod json_schema;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use chaos_tests::{
    cluster::{self, Scope},
    manifests,
    ports::Port,
    product::{self, Profile},
    replica::{Replica, Spec},
    wait,
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::Instant};

const DEADLINE: Duration = Duration::from_secs(60);

/// Says that it is done, or what the class's parameter `error` says.
const BACKEND: &str = r#"#!/bin/sh
read -r request
case $1:$request in
    capabilities:*) echo '{"outcome":"done","operations":["provision","delete"]}' ;;
    provision:*'"error":"'*)
        error=${request#*\"error\":\"}
        echo "{\"outcome\":\"failed\",\"message\":\"${error%%\"*}\"}" ;;
    provision:*) echo '{"outcome":"done","volume":{"source":{"hostPath":{"path":"/nowhere"}}}}' ;;
    delete:*) echo '{"outcome":"inUse","message":"mounted on shelf 3"}' ;;
esac
"#;

async fn scope() -> Scope<'static> {
    Scope::new(cluster::shared().await.unwrap()).await.unwrap()
}

async fn program() -> &'static Path {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let build =
        || async { tokio::task::spawn_blocking(|| product::build(Profile::Dev)).await.unwrap().unwrap() };
    PROGRAM.get_or_init(build).await
}

/// A replica that leads.
async fn replica(scope: &Scope<'_>) -> Replica {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let accounts =
        scope.install_permissions(&deploy, &[("directory.kube-provisioner.dev", scope.provisioner())]).await;
    let backend = scope.directory().join("backend.sh");
    std::fs::write(&backend, BACKEND).unwrap();
    let http = Port::claim().unwrap();
    let words = [
        "run",
        "--provisioner-name",
        scope.provisioner(),
        "--lease-namespace",
        scope.namespace(),
        "--http-address",
        &format!("127.0.0.1:{}", http.number()),
        "--backend=exec",
        "--exec-command=/bin/sh",
        &format!("--exec-command={}", backend.display()),
    ]
    .map(str::to_owned);
    let spec = Spec {
        name: "replica".to_owned(),
        program: program().await.to_owned(),
        args: words.into(),
        env: Vec::new(),
        kubeconfig: scope.service_account_kubeconfig(&accounts.unwrap()[0], None).await.unwrap(),
        http,
    };
    let replica = Replica::start(scope, spec).unwrap();
    replica.wait_ready(DEADLINE).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(scope.client(), scope.namespace());
    wait::until(&leases, scope.provisioner(), DEADLINE, |lease| holder(lease).is_some()).await.unwrap();
    replica
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

async fn output(kubeconfig: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(program().await);
    command.arg("explain").args(words).env("KUBECONFIG", kubeconfig);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// An answer in JSON, which is as the documented schema has it.
fn fitting(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    let found = serde_json::from_slice(&output.stdout).unwrap();
    let schema = include_str!("../../docs/reference/explain.schema.json");
    let flaws = json_schema::flaws(&serde_json::from_str(schema).unwrap(), &found);
    assert!(flaws.is_empty(), "{flaws:?}: {found:#}");
    found
}

/// What is explained, as JSON. Asked again until the state is `state`: events and phases take a moment.
async fn explained(scope: &Scope<'_>, words: &[&str], state: &str) -> Value {
    let started = Instant::now();
    loop {
        let output = output(scope.plane().kubeconfig(), &[words, &["--json"]].concat()).await;
        let found = fitting(&output);
        if found["state"] == state {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "not {state}: {found:#}");
        tokio::task::yield_now().await;
    }
}

async fn claim_explained(scope: &Scope<'_>, claim: &str, state: &str) -> Value {
    explained(scope, &["pvc", &format!("{}/{claim}", scope.namespace())], state).await
}

fn says(found: &Value, words: &str) {
    assert!(found.to_string().contains(words), "{words:?} is missing in {found:#}");
}

async fn pod(scope: &Scope<'_>, name: &str, claim: &str, node: Option<&str>) {
    let pods: Api<Pod> = Api::namespaced(scope.client(), scope.namespace());
    let accounts: Api<ServiceAccount> = Api::namespaced(scope.client(), scope.namespace());
    wait::until_exists(&accounts, "default", DEADLINE).await.unwrap();
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "example.dev/none"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    });
    cluster::create(&pods, &serde_json::from_value(pod).unwrap()).await.unwrap();
}

#[tokio::test]
async fn classes_and_provisioner_names_that_are_wrong_are_found_with_the_right_ones() {
    let scope = scope().await;
    let _replica = replica(&scope).await;
    let right = scope.create_class("right", |_| ()).await.unwrap().name_any();
    let mistyped = format!("{}x", scope.provisioner());
    let wrong = scope.create_class("wrong", |class| class.provisioner.clone_from(&mistyped)).await.unwrap();

    scope.create_claim("no-class", &format!("{right}s"), |_| ()).await.unwrap();
    let found = claim_explained(&scope, "no-class", "ClassMissing").await;
    says(&found, &format!("Did you mean \\\"{right}\\\"?"));

    scope.create_claim("wrong", &wrong.name_any(), |_| ()).await.unwrap();
    let found = claim_explained(&scope, "wrong", "WrongProvisionerName").await;
    says(&found, &format!("provisioner: {} (that field", scope.provisioner()));
    assert_eq!(found["leader"]["leadership"], "Absent");
}

#[tokio::test]
async fn claims_that_wait_for_a_consumer_are_told_what_is_wrong_with_their_pod() {
    let scope = scope().await;
    let _replica = replica(&scope).await;
    let waits = |class: &mut k8s_openapi::api::storage::v1::StorageClass| {
        class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
    };
    let class = scope.create_class("waits", waits).await.unwrap().name_any();
    for claim in ["lonely", "bypassed", "unscheduled"] {
        scope.create_claim(claim, &class, |_| ()).await.unwrap();
    }
    let found = claim_explained(&scope, "lonely", "WaitingForConsumer").await;
    assert_eq!(found["leader"]["leadership"], "Held");
    assert_eq!(found["notRead"], json!([]));

    pod(&scope, "past-the-scheduler", "bypassed", Some("node-a")).await;
    says(&claim_explained(&scope, "bypassed", "SchedulerBypassed").await, "past-the-scheduler");

    // There is no node at all in this cluster.
    pod(&scope, "homeless", "unscheduled", None).await;
    let told = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.conditions.is_some());
    let pods: Api<Pod> = Api::namespaced(scope.client(), scope.namespace());
    wait::until(&pods, "homeless", DEADLINE, told).await.unwrap();
    says(&claim_explained(&scope, "unscheduled", "PodUnscheduled").await, "Unschedulable");
}

#[tokio::test]
async fn refusals_and_failures_are_told_with_their_error_and_the_next_try() {
    let scope = scope().await;
    let replica = replica(&scope).await;
    let class = scope.create_class("fine", |_| ()).await.unwrap().name_any();
    scope
        .create_claim("block", &class, |claim| {
            claim.spec.as_mut().unwrap().volume_mode = Some("Block".to_owned());
        })
        .await
        .unwrap();
    let found = claim_explained(&scope, "block", "BlockUnsupported").await;
    assert_eq!((&found["lastAttempt"], &found["nextTry"]), (&Value::Null, &Value::Null));

    let errors = [
        ("failing", "the shelf is on fire", "BackingOff"),
        ("quota", "the team's quota is used up", "QuotaExceeded"),
        ("denied", "mkdir: Permission denied", "PermissionDenied"),
    ];
    for (name, error, state) in errors {
        let parameters = Some([("error".to_owned(), error.to_owned())].into());
        let class = scope.create_class(name, |class| class.parameters = parameters).await.unwrap();
        scope.create_claim(name, &class.name_any(), |_| ()).await.unwrap();
        let found = claim_explained(&scope, name, state).await;
        assert!(found["lastAttempt"]["message"].as_str().unwrap().contains(error), "{found:#}");
        assert_eq!(found["nextTry"]["estimated"], true);
    }

    replica.terminate(DEADLINE).await.unwrap();
    let found = claim_explained(&scope, "failing", "NobodyLeads").await;
    assert_eq!(found["leader"]["leadership"], "Vacant");
    assert_eq!(found["leader"]["lease"], format!("{}/{}", scope.namespace(), scope.provisioner()));
    says(&found, "the shelf is on fire");
}

#[tokio::test]
async fn a_volume_that_stays_is_explained() {
    let scope = scope().await;
    let _replica = replica(&scope).await;
    let class = scope.create_class("fine", |_| ()).await.unwrap().name_any();
    scope.create_claim("data", &class, |_| ()).await.unwrap();
    let bound = scope.wait_bound("data", DEADLINE).await.unwrap();
    claim_explained(&scope, "data", "Bound").await;
    let volume = bound.spec.unwrap().volume_name.unwrap();
    explained(&scope, &["pv", &volume], "Bound").await;

    cluster::delete(&scope.all_volumes(), &volume).await.unwrap();
    let found = explained(&scope, &["pv", &volume], "TerminatingWithClaim").await;
    assert_eq!(found["waitingFor"], format!("claim {}/data to be deleted", scope.namespace()));

    cluster::delete(&scope.claims(), "data").await.unwrap();
    says(&explained(&scope, &["pv", &volume], "InUse").await, "mounted on shelf 3");
}

#[tokio::test]
async fn whoever_may_read_only_the_claim_gets_an_answer_that_says_what_is_missing() {
    let scope = scope().await;
    let _replica = replica(&scope).await;
    let parameters = Some([("error".to_owned(), "the shelf is on fire".to_owned())].into());
    let class =
        scope.create_class("failing", |class| class.parameters = parameters).await.unwrap().name_any();
    scope.create_claim("data", &class, |_| ()).await.unwrap();
    wait_for_event(&scope, "data").await;
    let rights = json!([
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "asker"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "stranger"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "asker"},
            "rules": [
                {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]},
                {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "asker"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asker"},
            "subjects": [{"kind": "ServiceAccount", "name": "asker", "namespace": scope.namespace()}],
        },
    ]);
    manifests::apply(&scope.client(), scope.namespace(), rights.as_array().unwrap()).await.unwrap();
    let claim = format!("{}/data", scope.namespace());

    let asker = scope.service_account_kubeconfig("asker", None).await.unwrap();
    let answer = output(&asker, &["pvc", &claim, "--json"]).await;
    let found = fitting(&answer);
    assert_eq!((&found["state"], &found["leader"]["leadership"]), (&json!("BackingOff"), &json!("Unknown")));
    let missing = found["notRead"].to_string();
    for part in ["storageclass", "pods", "leases", "volume", "is forbidden"] {
        assert!(missing.contains(part), "{part} is missing in {missing}");
    }

    let stranger = scope.service_account_kubeconfig("stranger", None).await.unwrap();
    let answer = output(&stranger, &["pvc", &claim]).await;
    assert_eq!(answer.status.code(), Some(1));
    let told = String::from_utf8(answer.stderr).unwrap();
    assert!(told.contains("it takes the permission to get persistentvolumeclaims"), "{told}");

    let absent = output(scope.plane().kubeconfig(), &["pvc", &format!("{claim}-nowhere")]).await;
    assert_eq!(absent.status.code(), Some(1));
    assert!(String::from_utf8(absent.stderr).unwrap().contains("there is no claim"));
    assert_eq!(output(scope.plane().kubeconfig(), &["pvc", "data"]).await.status.code(), Some(2));
}

async fn wait_for_event(scope: &Scope<'_>, claim: &str) {
    let about =
        ListParams::default().fields(&format!("involvedObject.name={claim},reason=ProvisioningFailed"));
    let started = Instant::now();
    while scope.events().list(&about).await.unwrap().items.is_empty() {
        assert!(started.elapsed() < DEADLINE, "no event on {claim}");
    }
}
