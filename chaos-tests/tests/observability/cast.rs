//! Replicas with an exec backend that the test holds in its hand: it fails and waits as files say.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use chaos_tests::{
    cluster::{self, Scope},
    ports::Port,
    product::{self, Profile},
    replica::{Replica, Spec},
    wait,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::PersistentVolume};
use kube::{Api, ResourceExt};
use serde_json::json;

/// For what takes a moment on an idle machine, and much longer on one that builds beside it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// How often files and pages are looked at, which nothing tells of.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Fails while `fail` exists (and removes it), waits while `gate` exists, and writes down the trace context of
/// each call of provision.
const BACKEND: &str = r#"#!/bin/sh
dir=$1
request=$(cat)
name=$(printf '%s' "$request" | sed 's/.*"volumeName":"\([^"]*\)".*/\1/')
case "$2" in
capabilities) echo '{"outcome":"done","operations":["provision","delete"]}' ;;
provision)
    if rm "$dir/fail" 2>/dev/null; then
        echo '{"outcome":"failed","message":"no space"}'
        exit 0
    fi
    echo "$TRACEPARENT" >>"$dir/calls"
    while [ -e "$dir/gate" ]; do sleep 0.05; done
    echo '{"outcome":"done","volume":{"source":{"hostPath":{"path":"/nowhere/'"$name"'"}}}}'
    ;;
delete) echo '{"outcome":"done"}' ;;
esac
"#;

/// A test's replicas and their backend.
pub(crate) struct Cast<'a> {
    pub(crate) scope: Scope<'a>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) class: String,
    files: PathBuf,
}

impl<'a> Cast<'a> {
    /// So many replicas that are ready, with a class of theirs. `otlp` is where their traces go.
    pub(crate) async fn start(scope: Scope<'a>, replicas: usize, otlp: Option<&str>) -> Self {
        let files = scope.directory().join("backend");
        fs::create_dir(&files).unwrap();
        let script = files.join("backend.sh");
        fs::write(&script, BACKEND).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let class = scope.create_class("c", |_| ()).await.unwrap().name_any();
        let mut cast = Self { scope, replicas: Vec::new(), class, files };
        let account = cast.install_permissions().await;
        for number in 0..replicas {
            let spec = cast.spec(&format!("r{number}"), &account, otlp).await;
            cast.replicas.push(Replica::start(&cast.scope, spec).unwrap());
        }
        for replica in &cast.replicas {
            replica.wait_ready(DEADLINE).await.unwrap();
        }
        cast.leader().await;
        cast
    }

    async fn install_permissions(&self) -> String {
        let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let replacements = [("directory.kube-provisioner.dev", self.scope.provisioner())];
        self.scope.install_permissions(&deploy, &replacements).await.unwrap().remove(0)
    }

    async fn spec(&self, name: &str, account: &str, otlp: Option<&str>) -> Spec {
        let http = Port::claim().unwrap();
        let config = self.scope.directory().join(format!("{name}.yaml"));
        // JSON is YAML.
        let settings = json!({
            "provisionerName": self.scope.provisioner(),
            "backend": { "exec": { "command": [self.files.join("backend.sh"), self.files] } },
            "leaseNamespace": self.scope.namespace(),
            "leaseProfile": "fast",
            "retryInitial": "300ms",
            "retryMax": "2s",
            "logFormat": "json",
            "otlpEndpoint": otlp,
        });
        fs::write(&config, settings.to_string()).unwrap();
        let http_address = format!("127.0.0.1:{}", http.number());
        let args = ["run", "--config", config.to_str().unwrap(), "--http-address", &http_address];
        Spec {
            name: name.to_owned(),
            program: tokio::task::spawn_blocking(|| product::build(Profile::Dev)).await.unwrap().unwrap(),
            args: args.map(str::to_owned).to_vec(),
            env: vec![("POD_NAME".to_owned(), name.to_owned())],
            kubeconfig: self.scope.service_account_kubeconfig(account, None).await.unwrap(),
            http,
        }
    }

    /// Writes another level into a replica's configuration.
    pub(crate) fn set_log_level(&self, replica: &str, level: &str) {
        let path = self.scope.directory().join(format!("{replica}.yaml"));
        let mut settings: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        settings["logLevel"] = level.into();
        fs::write(&path, settings.to_string()).unwrap();
    }

    /// Waits until one of the replicas holds the Lease; its place among them.
    pub(crate) async fn leader(&self) -> usize {
        self.leader_but(None).await
    }

    /// The same, but not this one.
    pub(crate) async fn leader_but(&self, not: Option<usize>) -> usize {
        let leases: Api<Lease> = Api::namespaced(self.scope.client(), self.scope.namespace());
        let held = |lease: &Lease| self.holder(lease).is_some_and(|holder| Some(holder) != not);
        let lease = wait::until(&leases, self.scope.provisioner(), DEADLINE, held).await.unwrap();
        self.holder(&lease).unwrap()
    }

    fn holder(&self, lease: &Lease) -> Option<usize> {
        let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
        self.replicas.iter().position(|replica| holder.starts_with(replica.name()))
    }

    pub(crate) async fn claim(&self, name: &str) -> String {
        self.scope.create_claim(name, &self.class, |_| ()).await.unwrap().uid().unwrap()
    }

    /// Waits until a claim is Bound; its volume.
    pub(crate) async fn volume_of(&self, claim: &str) -> PersistentVolume {
        let claim = self.scope.wait_bound(claim, DEADLINE).await.unwrap();
        self.scope.all_volumes().get(&claim.spec.unwrap().volume_name.unwrap()).await.unwrap()
    }

    /// Deletes a claim and waits until its volume is gone.
    pub(crate) async fn delete(&self, claim: &str, volume: &PersistentVolume) {
        cluster::delete(&self.scope.claims(), claim).await.unwrap();
        wait::until_gone(&self.scope.all_volumes(), &volume.name_any(), DEADLINE).await.unwrap();
    }
}

/// The backend.
impl Cast<'_> {
    /// The next call of provision fails.
    pub(crate) fn fail_once(&self) {
        fs::write(self.files.join("fail"), "").unwrap();
    }

    /// Calls of provision wait from now on.
    pub(crate) fn close_gate(&self) {
        fs::write(self.files.join("gate"), "").unwrap();
    }

    /// Calls of provision go on.
    pub(crate) fn open_gate(&self) {
        fs::remove_file(self.files.join("gate")).unwrap();
    }

    /// The trace contexts of the calls of provision that did not fail.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.files.join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// Waits until provision was called so often.
    pub(crate) async fn wait_calls(&self, count: usize) {
        eventually(&format!("{count} calls of provision"), async || {
            (self.calls().len() >= count).then_some(())
        })
        .await;
    }
}

/// Looks until there is something to see.
pub(crate) async fn eventually<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let began = std::time::Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(began.elapsed() < DEADLINE, "not seen after {DEADLINE:?}: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
