//! What a test has of a control plane: a namespace and a provisioner name of its own, and short ways to use them.
//!
//! The control plane itself is in [`crate::control_plane`], waiting in [`crate::wait`].

mod report;

use std::{
    collections::BTreeMap,
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{
            Event, Namespace, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
            ServiceAccount, VolumeResourceRequirements,
        },
        storage::v1::StorageClass,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use crate::{
    control_plane::{
        ControlPlane, Options,
        kubeconfig::{self, Credentials},
    },
    manifests, wait,
};

/// The annotation of a volume that says who made it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Longer than any test.
const TOKEN_LIFETIME_SECONDS: i64 = 24 * 3600;

/// The control plane that all tests of this process share, with Jaeger and an audit log, started by the first that
/// asks. Nobody may break its parts: tests that do start their own.
///
/// It ends with the process: Rust drops no statics, but its programs and its janitor notice the end.
///
/// # Errors
/// If it does not start; the next test tries again.
pub async fn shared() -> Result<&'static ControlPlane> {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    // The controller manager's own limit would let it bind 4 claims a second, for all tests together.
    let options =
        Options { controller_manager_qps: Some(500), jaeger: true, audit_log: true, ..Options::default() };
    SHARED.get_or_try_init(|| ControlPlane::start(options)).await
}

/// The share of one test in a control plane. If the test panics, logs, events and objects of it are printed.
pub struct Scope<'a> {
    plane: &'a ControlPlane,
    client: Client,
    namespace: String,
    provisioner: String,
    directory: PathBuf,
}

impl<'a> Scope<'a> {
    /// Makes a scope with a new namespace. It belongs to the runtime of the test that makes it.
    ///
    /// # Errors
    /// If the namespace cannot be created.
    pub async fn new(plane: &'a ControlPlane) -> Result<Self> {
        let random = format!("{:08x}", RandomState::new().build_hasher().finish() >> 32);
        Self::named(plane, &format!("t-{random}"), &format!("test-{random}.example.dev")).await
    }

    /// Makes a scope with names of the caller's choice: for what is shown to people.
    ///
    /// # Errors
    /// If the namespace cannot be created; it must not exist.
    pub async fn named(plane: &'a ControlPlane, namespace: &str, provisioner: &str) -> Result<Self> {
        let directory = plane.directory().join(namespace);
        fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let client = plane.client().await?;
        let (namespace, provisioner) = (namespace.to_owned(), provisioner.to_owned());
        let scope = Self { plane, client, namespace, provisioner, directory };
        let metadata = ObjectMeta { name: Some(scope.namespace.clone()), ..ObjectMeta::default() };
        create(&Api::all(scope.client()), &Namespace { metadata, ..Namespace::default() }).await?;
        Ok(scope)
    }

    /// The control plane.
    #[must_use]
    pub const fn plane(&self) -> &'a ControlPlane {
        self.plane
    }

    /// An administrator's client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The namespace of this test.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The provisioner name of this test.
    #[must_use]
    pub fn provisioner(&self) -> &str {
        &self.provisioner
    }

    /// A directory for the files of this test; its `*.log` are printed if it fails.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Claims, volumes, classes.
impl Scope<'_> {
    /// The claims of this test.
    #[must_use]
    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// The events of this test's claims.
    #[must_use]
    pub fn events(&self) -> Api<Event> {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// All volumes of the cluster.
    #[must_use]
    pub fn all_volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client())
    }

    /// The volumes that this test's provisioner made.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub async fn volumes(&self) -> Result<Vec<PersistentVolume>> {
        let volumes = self.all_volumes().list(&ListParams::default()).await.context("cannot list volumes")?;
        let ours =
            |volume: &PersistentVolume| volume.annotations().get(PROVISIONED_BY) == Some(&self.provisioner);
        Ok(volumes.items.into_iter().filter(ours).collect())
    }

    /// Creates a class of this test's provisioner, named `<namespace>-<suffix>`, as changed by `customize`.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn create_class(
        &self,
        suffix: &str,
        customize: impl FnOnce(&mut StorageClass),
    ) -> Result<StorageClass> {
        let name = format!("{}-{suffix}", self.namespace);
        let mut class = StorageClass {
            metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
            provisioner: self.provisioner.clone(),
            ..StorageClass::default()
        };
        customize(&mut class);
        create(&Api::all(self.client()), &class).await
    }

    /// Creates a claim of 1 Mi for one node in `class`, as changed by `customize`.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn create_claim(
        &self,
        name: &str,
        class: &str,
        customize: impl FnOnce(&mut PersistentVolumeClaim),
    ) -> Result<PersistentVolumeClaim> {
        let mut claim = claim(name, class);
        customize(&mut claim);
        create(&self.claims(), &claim).await
    }

    /// Waits until a claim is Bound.
    ///
    /// # Errors
    /// If it is not within `deadline`.
    pub async fn wait_bound(&self, claim: &str, deadline: Duration) -> Result<PersistentVolumeClaim> {
        let bound = |claim: &PersistentVolumeClaim| {
            claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
        };
        wait::until(&self.claims(), claim, deadline, bound).await
    }

    /// Waits for an event with this reason about the object of this name.
    ///
    /// # Errors
    /// If there is none within `deadline`.
    pub async fn wait_event(&self, about: &str, reason: &str, deadline: Duration) -> Result<Event> {
        let fields = format!("involvedObject.name={about},reason={reason}");
        wait::until_any(&self.events(), &fields, deadline, |_| true).await
    }
}

/// Identities.
impl Scope<'_> {
    /// Applies the ServiceAccounts, roles and bindings of the manifests in `directory`, moved into this test's
    /// namespace, and returns the names of the accounts. `replacements` change the text first, for what the
    /// manifests name otherwise than the test does.
    ///
    /// # Errors
    /// If a manifest cannot be read or applied.
    pub async fn install_permissions(
        &self,
        directory: &Path,
        replacements: &[(&str, &str)],
    ) -> Result<Vec<String>> {
        let objects = manifests::permissions_in(&self.namespace, &manifests::read(directory, replacements)?);
        manifests::apply(&self.client, &self.namespace, &objects).await?;
        Ok(manifests::service_accounts(&objects).into_iter().map(str::to_owned).collect())
    }

    /// Writes a kubeconfig with a fresh token of `account` and returns its path. `server` is the address of the API
    /// server or of what stands between it and the replica; by default the API server's own.
    ///
    /// # Errors
    /// If there is no such account.
    pub async fn service_account_kubeconfig(&self, account: &str, server: Option<&str>) -> Result<PathBuf> {
        let token = self.token(account).await?;
        let random = RandomState::new().build_hasher().finish();
        let path = self.directory.join(format!("{account}-{random:016x}.kubeconfig"));
        let server = server.unwrap_or(self.plane.server());
        kubeconfig::write(
            &path,
            server,
            self.plane.authority(),
            &self.namespace,
            &Credentials::Token(&token),
        )?;
        Ok(path)
    }

    /// A kubeconfig for a replica with the shipped permissions, under an account of its own called `name`.
    ///
    /// # Errors
    /// If the permissions cannot be applied.
    pub async fn replica_kubeconfig(&self, name: &str, server: Option<&str>) -> Result<PathBuf> {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let (lease, account) = (self.provisioner.replace('/', "-"), format!("name: {name}\n"));
        let replacements =
            [("directory.kube-provisioner.dev", &*lease), ("name: kube-provisioner\n", &*account)];
        self.install_permissions(&deploy, &replacements).await?;
        self.service_account_kubeconfig(name, server).await
    }

    async fn token(&self, account: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), &self.namespace);
        let spec = TokenRequestSpec {
            expiration_seconds: Some(TOKEN_LIFETIME_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .with_context(|| format!("cannot get a token of ServiceAccount {account}"))?;
        let token = answer.status.and_then(|status| status.token);
        token.context("the answer to a token request holds no token")
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", report::of(self));
        }
    }
}

/// A claim of 1 Mi for one node in `class`.
pub(crate) fn claim(name: &str, class: &str) -> PersistentVolumeClaim {
    let requests = BTreeMap::from([("storage".to_owned(), Quantity("1Mi".to_owned()))]);
    PersistentVolumeClaim {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: Some(class.to_owned()),
            resources: Some(VolumeResourceRequirements {
                requests: Some(requests),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}

/// Creates an object.
///
/// # Errors
/// If the API server refuses it.
pub async fn create<K>(api: &Api<K>, object: &K) -> Result<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let created = api.create(&PostParams::default(), object).await;
    created.with_context(|| format!("cannot create {} {}", K::kind(&()), object.name_any()))
}

/// Deletes an object. Finalizers may keep it for a while: [`wait::until_gone`] tells.
///
/// # Errors
/// If there is no such object.
pub async fn delete<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let deleted = api.delete(name, &DeleteParams::default()).await;
    deleted.map(drop).with_context(|| format!("cannot delete {} {name}", K::kind(&())))
}
