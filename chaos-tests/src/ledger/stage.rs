//! A test's whole cast: a ledger, replicas of the product that use it, and what must hold when the test is over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::Ledger;
use crate::{
    cluster::{self, Scope},
    ports::Port,
    product::{self, Profile},
    replica::{Replica, Spec},
    wait,
};

/// The finalizer that volumes carry.
pub const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// For what takes a moment on an idle machine, and much longer on one that builds beside it.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// How often a state is looked at that no single watch shows: files and several kinds of object together.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What the replicas of a stage are told.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many there are.
    pub replicas: usize,
    /// The backend's section of the configuration; by default the ledger's.
    pub backend: Option<Value>,
    /// Keys laid over the configuration.
    pub keys: Value,
    /// How the product is compiled.
    pub profile: Profile,
}

impl Default for Setup {
    fn default() -> Self {
        Self { replicas: 1, backend: None, keys: json!({}), profile: Profile::Dev }
    }
}

impl Setup {
    /// One replica with these keys.
    #[must_use]
    pub fn with(keys: Value) -> Self {
        Self { keys, ..Self::default() }
    }

    /// So many replicas.
    #[must_use]
    pub fn replicas(count: usize) -> Self {
        Self { replicas: count, ..Self::default() }
    }

    /// One replica with this backend.
    #[must_use]
    pub fn backend(backend: Value) -> Self {
        Self { backend: Some(backend), ..Self::default() }
    }
}

/// See the module.
pub struct Stage<'a> {
    /// The share of the control plane.
    pub scope: Scope<'a>,
    /// The backend's files.
    pub ledger: Ledger,
    /// The replicas that run.
    pub replicas: Vec<Replica>,
    setup: Setup,
    ledger_program: PathBuf,
    account: String,
}

impl<'a> Stage<'a> {
    /// A stage without replicas. `ledger_program` is the executable of the ledger.
    ///
    /// # Errors
    /// If the namespace, the permissions or the ledger cannot be made.
    pub async fn empty(scope: Scope<'a>, ledger_program: &Path, setup: Setup) -> Result<Self> {
        let ledger = Ledger::create(scope.directory(), "ledger")?;
        let deploy = workspace().join("deploy");
        // The Role names its Lease; some tests serve a second provisioner in the same process.
        let lease = lease_of(&scope, &setup.keys);
        let names = format!("{0}, {1}, {lease}", scope.provisioner(), second_provisioner(&scope));
        let replacements = [("directory.kube-provisioner.dev", names.as_str())];
        let accounts = scope.install_permissions(&deploy, &replacements).await?;
        let account = accounts.into_iter().next().context("deploy/ has no ServiceAccount")?;
        let ledger_program = ledger_program.to_owned();
        Ok(Self { scope, ledger, replicas: Vec::new(), setup, ledger_program, account })
    }

    /// A stage whose replicas are ready and one of which leads.
    ///
    /// # Errors
    /// If something of it does not come up.
    pub async fn start(scope: Scope<'a>, ledger_program: &Path, setup: Setup) -> Result<Self> {
        let mut stage = Self::empty(scope, ledger_program, setup).await?;
        for number in 0..stage.setup.replicas {
            stage.add_replica(&format!("r{number}"), None).await?;
        }
        stage.wait_ready().await?;
        Ok(stage)
    }

    /// Adds a replica without waiting for it. `server` stands between it and the API server.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn add_replica(&mut self, name: &str, server: Option<&str>) -> Result<()> {
        let spec = self.spec(name, server).await?;
        self.replicas.push(Replica::start(&self.scope, spec)?);
        Ok(())
    }

    /// How a replica of this stage is started.
    ///
    /// # Errors
    /// If its files cannot be written.
    pub async fn spec(&self, name: &str, server: Option<&str>) -> Result<Spec> {
        let profile = self.setup.profile;
        let http = Port::claim()?;
        let config = self.scope.directory().join(format!("{name}.yaml"));
        fs::write(&config, serde_json::to_vec(&self.config())?).context("cannot write the configuration")?;
        Ok(Spec {
            name: name.to_owned(),
            program: program(profile).await?,
            args: vec![
                "run".to_owned(),
                "--config".to_owned(),
                config.display().to_string(),
                "--http-address".to_owned(),
                format!("127.0.0.1:{}", http.number()),
            ],
            env: vec![("POD_NAME".to_owned(), name.to_owned())],
            kubeconfig: self.scope.service_account_kubeconfig(&self.account, server).await?,
            http,
        })
    }

    /// The configuration of the replicas. JSON is YAML.
    fn config(&self) -> Value {
        let mut config = json!({
            "provisionerName": self.scope.provisioner(),
            "backend": self.setup.backend.clone().unwrap_or_else(|| self.ledger_backend()),
            "leaseNamespace": self.scope.namespace(),
            "leaseProfile": "fast",
            "retryInitial": "200ms",
            "retryMax": "2s",
            "logFormat": "human",
        });
        if let (Some(config), Some(keys)) = (config.as_object_mut(), self.setup.keys.as_object()) {
            config.extend(keys.clone());
            config.retain(|_, value| !value.is_null());
        }
        config
    }

    /// The section that makes this stage's ledger a backend.
    #[must_use]
    pub fn ledger_backend(&self) -> Value {
        backend_of(&self.ledger, &self.ledger_program)
    }

    /// Waits until every replica is ready and one holds the Lease.
    ///
    /// # Errors
    /// If that takes longer than the deadline.
    pub async fn wait_ready(&self) -> Result<()> {
        for replica in &self.replicas {
            replica.wait_ready(DEADLINE).await?;
        }
        self.leader().await.map(drop)
    }

    /// Waits until one of the replicas holds the Lease; its place among them.
    ///
    /// # Errors
    /// If none does within the deadline.
    pub async fn leader(&self) -> Result<usize> {
        let name = lease_of(&self.scope, &self.setup.keys);
        let lease =
            wait::until(&self.leases(), &name, DEADLINE, |lease| self.holder(lease).is_some()).await?;
        self.holder(&lease).context("nobody leads")
    }

    /// The place of the replica that holds the Lease.
    #[must_use]
    pub fn holder(&self, lease: &Lease) -> Option<usize> {
        let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
        let is_holder = |replica: &Replica| {
            holder
                .strip_prefix(replica.name())
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        };
        self.replicas.iter().position(is_holder)
    }

    /// The Leases of this test.
    #[must_use]
    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.scope.client(), self.scope.namespace())
    }

    /// The replica at this place.
    ///
    /// # Errors
    /// If there is none.
    pub fn replica(&self, place: usize) -> Result<&Replica> {
        self.replicas.get(place).with_context(|| format!("there is no replica {place}"))
    }

    /// Replicas that start from now on have these keys laid over their configuration.
    pub fn set_keys(&mut self, keys: Value) {
        self.setup.keys = keys;
    }

    /// Stops all replicas and starts as many with these keys instead.
    ///
    /// # Errors
    /// If they do not come up.
    pub async fn restart_with(&mut self, keys: Value) -> Result<()> {
        let names: Vec<String> = self.replicas.iter().map(|replica| replica.name().to_owned()).collect();
        for replica in self.replicas.drain(..) {
            replica.terminate(DEADLINE).await?;
        }
        self.set_keys(keys);
        for name in names {
            self.add_replica(&name, None).await?;
        }
        self.wait_ready().await
    }
}

/// Objects.
impl Stage<'_> {
    /// A class with this binding, named after the test; what is not set here stays as the API server has it.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn class(&self, suffix: &str, customize: impl FnOnce(&mut StorageClass)) -> Result<String> {
        Ok(self.scope.create_class(suffix, customize).await?.name_any())
    }

    /// A claim of that class.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn claim(&self, name: &str, class: &str) -> Result<PersistentVolumeClaim> {
        self.scope.create_claim(name, class, |_| ()).await
    }

    /// A claim of that class once it is Bound, and its volume.
    ///
    /// # Errors
    /// If it is not in time.
    pub async fn bound(&self, name: &str, class: &str) -> Result<PersistentVolume> {
        self.claim(name, class).await?;
        self.volume_of(name).await
    }

    /// Waits until a claim is Bound; its volume.
    ///
    /// # Errors
    /// If it is not in time.
    pub async fn volume_of(&self, claim: &str) -> Result<PersistentVolume> {
        let claim = self.scope.wait_bound(claim, DEADLINE).await?;
        let name = claim.spec.and_then(|spec| spec.volume_name).context("bound without a volume")?;
        Ok(self.scope.all_volumes().get(&name).await?)
    }

    /// Deletes a claim and waits until it is gone.
    ///
    /// # Errors
    /// If it is not in time.
    pub async fn delete_claim(&self, name: &str) -> Result<()> {
        cluster::delete(&self.scope.claims(), name).await?;
        wait::until_gone(&self.scope.claims(), name, DEADLINE).await
    }

    /// Waits until a volume is gone.
    ///
    /// # Errors
    /// If it is not in time.
    pub async fn volume_gone(&self, volume: &PersistentVolume) -> Result<()> {
        wait::until_gone(&self.scope.all_volumes(), &volume.name_any(), DEADLINE).await
    }

    /// The events about an object of this reason. Those about volumes are in the namespace `default`.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub async fn events(&self, about: &str, reason: &str) -> Result<Vec<Event>> {
        let mut found = Vec::new();
        for namespace in [self.scope.namespace(), "default"] {
            let api: Api<Event> = Api::namespaced(self.scope.client(), namespace);
            found.extend(
                api.list(&ListParams::default().fields(&format!("involvedObject.name={about}"))).await?,
            );
        }
        found.retain(|event| event.reason.as_deref() == Some(reason));
        found.retain(|event| event.reporting_component.as_deref() == Some(self.scope.provisioner()));
        Ok(found)
    }

    /// Waits until there is an event about an object with this reason whose message contains `words`.
    ///
    /// # Errors
    /// If there is none within the deadline; the message shows those that there are.
    pub async fn told(&self, about: &str, reason: &str, words: &str) -> Result<Event> {
        let started = Instant::now();
        loop {
            let events = self.events(about, reason).await?;
            let fits = |event: &&Event| message(event).contains(words);
            if let Some(event) = events.iter().find(fits) {
                return Ok(event.clone());
            }
            if started.elapsed() >= DEADLINE {
                let told: Vec<&str> = events.iter().map(message).collect();
                bail!("no event {reason} about {about} says {words:?}; told was {told:?}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// What must hold.
impl Stage<'_> {
    /// The end of every test: nothing is left behind, nothing waits without a reason. `kept` are the assets that
    /// stay on purpose.
    ///
    /// # Errors
    /// If something does not hold within the deadline.
    pub async fn finish(self, kept: &[&str]) -> Result<()> {
        self.no_claim_waits_without_a_reason().await?;
        let kept: BTreeSet<String> = kept.iter().map(ToString::to_string).collect();
        self.eventually("the assets are those of the volumes, and the kept ones", || self.leaks(&kept))
            .await?;
        for claim in self.scope.claims().list(&ListParams::default()).await? {
            cluster::delete(&self.scope.claims(), &claim.name_any()).await?;
        }
        self.eventually("nothing is left once the claims are deleted", || self.remains(&kept)).await?;
        for replica in &self.replicas {
            let status = replica.exit_status();
            ensure!(status.is_none(), "replica {} has ended: {status:?}", replica.name());
        }
        Ok(())
    }

    /// Assets without a volume, and volumes without an asset.
    async fn leaks(&self, kept: &BTreeSet<String>) -> Result<Option<String>> {
        let volumes: BTreeSet<String> = self
            .scope
            .volumes()
            .await?
            .iter()
            .filter(|volume| uses(volume, &self.ledger))
            .map(ResourceExt::name_any)
            .collect();
        let expected: BTreeSet<String> = volumes.union(kept).cloned().collect();
        let assets = self.ledger.assets()?;
        Ok((assets != expected).then(|| format!("assets {assets:?}, volumes {volumes:?}, kept {kept:?}")))
    }

    async fn remains(&self, kept: &BTreeSet<String>) -> Result<Option<String>> {
        let assets = self.ledger.assets()?;
        let volumes = self.scope.volumes().await?;
        let left: Vec<String> = volumes.iter().filter(|volume| !is_kept(volume)).map(describe).collect();
        let held: Vec<String> = volumes.iter().filter(|volume| holds(volume)).map(describe).collect();
        let clean = assets == *kept && left.is_empty() && held.is_empty();
        Ok((!clean).then(|| {
            format!("assets {assets:?}, kept {kept:?}, volumes {left:?}, our finalizer on {held:?}")
        }))
    }

    async fn no_claim_waits_without_a_reason(&self) -> Result<()> {
        let claims = self.scope.claims().list(&ListParams::default()).await?;
        let events = self.scope.events().list(&ListParams::default()).await?;
        // kube-controller-manager's own ExternalProvisioning says only that it waits for us.
        let reasons = events.iter().filter(|event| event.reason.as_deref() != Some("ExternalProvisioning"));
        let told: BTreeMap<_, _> =
            reasons.map(|event| (event.involved_object.uid.clone(), message(event))).collect();
        for claim in claims {
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            ensure!(
                phase != Some("Pending") || told.contains_key(&claim.uid()),
                "{} waits, and nobody says why",
                claim.name_any()
            );
        }
        Ok(())
    }

    /// Waits until `flaw` finds none any more. A bounded look at intervals: no watch shows files and objects at once.
    ///
    /// # Errors
    /// If it still finds one after the deadline.
    pub async fn eventually(&self, what: &str, flaw: impl AsyncFn() -> Result<Option<String>>) -> Result<()> {
        let started = Instant::now();
        while let Some(flaw) = flaw().await? {
            if started.elapsed() >= DEADLINE {
                let calls: Vec<String> = self.ledger.log()?.iter().map(ToString::to_string).collect();
                bail!("not so after {DEADLINE:?}: {what}: {flaw}; the ledger's log:\n{}", calls.join("\n"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// The name of a second provisioner that the replicas of a stage may serve.
#[must_use]
pub fn second_provisioner(scope: &Scope<'_>) -> String {
    format!("second-{}", scope.provisioner())
}

/// The name of the Lease that replicas with these keys contest.
fn lease_of(scope: &Scope<'_>, keys: &Value) -> String {
    let name = scope.provisioner().replace('/', "-");
    match keys.get("instance").and_then(Value::as_str) {
        None => name,
        Some(instance) => format!("{name}-{instance}"),
    }
}

/// What an event says.
#[must_use]
pub fn message(event: &Event) -> &str {
    event.message.as_deref().unwrap_or_default()
}

/// The backend's section for a ledger.
#[must_use]
pub fn backend_of(ledger: &Ledger, program: &Path) -> Value {
    json!({ "exec": { "command": [program, ledger.root()] } })
}

/// The root of this checkout.
#[must_use]
pub fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// The product's program, built once for all tests of this process.
///
/// # Errors
/// If it does not build.
pub async fn program(profile: Profile) -> Result<PathBuf> {
    static DEV: OnceCell<PathBuf> = OnceCell::const_new();
    static RELEASE: OnceCell<PathBuf> = OnceCell::const_new();
    static KNOWN_BUGS: OnceCell<PathBuf> = OnceCell::const_new();
    let cell = match profile {
        Profile::Dev => &DEV,
        Profile::Release => &RELEASE,
        Profile::KnownBugs => &KNOWN_BUGS,
    };
    let build = || async { tokio::task::spawn_blocking(move || product::build(profile)).await? };
    cell.get_or_try_init(build).await.cloned()
}

fn uses(volume: &PersistentVolume, ledger: &Ledger) -> bool {
    let path =
        volume.spec.as_ref().and_then(|spec| spec.host_path.as_ref()).map(|source| Path::new(&source.path));
    path == Some(&ledger.asset(&volume.name_any()))
}

fn is_kept(volume: &PersistentVolume) -> bool {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    policy == Some("Retain") && !holds(volume)
}

fn holds(volume: &PersistentVolume) -> bool {
    volume.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

fn describe(volume: &PersistentVolume) -> String {
    serde_json::to_string(volume).unwrap_or_else(|error| error.to_string())
}
