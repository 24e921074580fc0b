//! The typed calls, one method each: what is asked of the API server besides watching.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim},
};
use kube::{
    Client, Resource,
    api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ObjectList, PartialObjectMeta, Request},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Semaphore;
use tracing::{Instrument as _, Span};

use super::{Authority, CallError, Permissions, decode, permissions};
use crate::{
    known_bugs::{self, Bug},
    lease::LeaderGuard,
    lifecycle::{
        names,
        objects::{Claim, Version},
        orphan::Users,
    },
    provisioner::AssetClaim,
    telemetry::trace,
};

/// The longest that one call may take, connecting included.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// Calls at once. Each is a connection (HTTP/1.1), and after a takeover each of those is a TLS handshake that the
/// first volume would share the processor with; 16 calls of 5 ms are 3,200 a second.
const CALLS_AT_ONCE: usize = 16;

/// The calls to one API server. Clones share the connections and the limit.
#[derive(Clone)]
pub struct Calls {
    client: Client,
    slots: Arc<Semaphore>,
    permissions: Permissions,
}

/// Volumes per page of a list: bounds what is decoded at a time.
const VOLUMES_PER_PAGE: u32 = 250;

type Sent = http::Request<Vec<u8>>;

impl Calls {
    /// Calls over `client`, which must come from [`super::clients::for_requests`].
    #[must_use]
    pub fn new(client: Client, permissions: Permissions) -> Self {
        Self { client, slots: Arc::new(Semaphore::new(CALLS_AT_ONCE)), permissions }
    }

    /// The UID of the `kube-system` namespace, which stands for the cluster.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn cluster_uid(&self) -> Result<String, CallError> {
        let what = "read namespace kube-system".to_owned();
        let request = at::<Namespace>(None).get("kube-system", &GetParams::default());
        let namespace: PartialObjectMeta<Namespace> = self.read(what, request).await?;
        Ok(namespace.metadata.uid.unwrap_or_default())
    }

    /// The version of the API server (`v1.37.2`).
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn server_git_version(&self) -> Result<String, CallError> {
        let what = "read the API server's version".to_owned();
        let request = http::Request::get("/version").body(Vec::new());
        let request = request.map_err(kube::core::request::Error::BuildRequest);
        let version: k8s_openapi::apimachinery::pkg::version::Info = self.read(what, request).await?;
        Ok(version.git_version)
    }

    /// The version at which the claims are now, by a consistent read.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn claims_mark(&self) -> Result<Version, CallError> {
        let what = "list one persistentvolumeclaim".to_owned();
        let request = at::<PersistentVolumeClaim>(None).list(&ListParams::default().limit(1));
        let list: ObjectList<PartialObjectMeta<PersistentVolumeClaim>> = self.read(what, request).await?;
        let version = list.metadata.resource_version.as_deref();
        Ok(version.and_then(|version| version.parse().ok()).unwrap_or_default())
    }

    /// The claim as it is now; `None` if there is none.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn read_claim(&self, namespace: &str, name: &str) -> Result<Option<Claim>, CallError> {
        let what = format!("read claim {namespace}/{name}");
        let request = at::<PersistentVolumeClaim>(Some(namespace)).get(name, &GetParams::default());
        Ok(found(self.read(what, request).await)?.map(decode::claim))
    }

    /// The volume as it is now; `None` if there is none.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn read_volume(&self, name: &str) -> Result<Option<PersistentVolume>, CallError> {
        let what = format!("read volume {name}");
        found(self.read(what, at::<PersistentVolume>(None).get(name, &GetParams::default())).await)
    }

    /// All volumes of the cluster, live, as far as they can protect an asset.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn users(&self) -> Result<Users, CallError> {
        let mut users = Users::default();
        let mut parameters = ListParams::default().limit(VOLUMES_PER_PAGE);
        loop {
            let request = at::<PersistentVolume>(None).list(&parameters);
            let page: ObjectList<PersistentVolume> = self.read("list volumes".to_owned(), request).await?;
            page.items.iter().for_each(|volume| users.add(volume));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(users),
            }
        }
    }

    /// Whether the claim that an asset was made for lives, read live.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn claim_lives(&self, claim: &AssetClaim) -> Result<bool, CallError> {
        let now = self.read_claim(&claim.namespace, &claim.name).await?;
        Ok(now.is_some_and(|now| *now.uid == *claim.uid))
    }

    /// What an annotation of a Lease says; `None` if it, or the Lease, is not there.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn lease_annotation(
        &self,
        namespace: &str,
        name: &str,
        annotation: &str,
    ) -> Result<Option<String>, CallError> {
        let what = format!("read lease {namespace}/{name}");
        let request = at::<Lease>(Some(namespace)).get(name, &GetParams::default());
        let lease: Option<PartialObjectMeta<Lease>> = found(self.read(what, request).await)?;
        Ok(lease.and_then(|lease| lease.metadata.annotations?.remove(annotation)))
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn create_volume(
        &self,
        guard: &LeaderGuard,
        volume: &PersistentVolume,
    ) -> Result<PersistentVolume, CallError> {
        let what = format!("create volume {}", volume.metadata.name.as_deref().unwrap_or_default());
        let body = serde_json::to_vec(volume)
            .map_err(|error| CallError::Rejected { what: what.clone(), message: error.to_string() })?;
        self.change(guard, what, at::<PersistentVolume>(None).create(&PostParams::default(), body)).await
    }

    /// Marks a volume for deletion, if it has this UID and, where one is given, this version. The volume
    /// as it is then; `None` if it vanished with that.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if it is another one or has changed, and the others.
    pub async fn delete_volume(
        &self,
        guard: &LeaderGuard,
        name: &str,
        uid: &str,
        version: Option<Version>,
    ) -> Result<Option<PersistentVolume>, CallError> {
        let what = format!("delete volume {name}");
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version.map(|version| version.to_string()),
        };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = at::<PersistentVolume>(None).delete(name, &parameters);
        // The answer is the volume while finalizers hold it, and a Status once it is gone.
        let answer: serde_json::Value = self.change(guard, what.clone(), request).await?;
        if answer.get("kind").and_then(|kind| kind.as_str()) == Some("Status") {
            return Ok(None);
        }
        serde_json::from_value(answer)
            .map(Some)
            .map_err(|error| CallError::Unavailable { what, message: error.to_string() })
    }

    /// Takes our finalizer off the volume with this UID, and nobody else's. Without a version the patch
    /// meets no conflict, whatever others do to the volume meanwhile.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if it is another volume or version, and the others.
    pub async fn strip_finalizer(
        &self,
        guard: &LeaderGuard,
        name: &str,
        uid: &str,
        version: Option<Version>,
    ) -> Result<PersistentVolume, CallError> {
        let what = format!("take the finalizer off volume {name}");
        let mut metadata = json!({ "uid": uid, "$deleteFromPrimitiveList/finalizers": [names::FINALIZER] });
        if let (Some(version), Some(metadata)) = (version, metadata.as_object_mut()) {
            metadata.insert("resourceVersion".to_owned(), version.to_string().into());
        }
        let patch = json!({ "metadata": metadata });
        if known_bugs::is(Bug::UnconditionalFinalizerPatch) {
            let request = at::<PersistentVolume>(None).patch(
                name,
                &PatchParams::default(),
                &Patch::Merge(json!({ "metadata": { "finalizers": [] } })),
            );
            return self.change(guard, what, request).await;
        }
        self.patch_volume(guard, what, name, patch).await
    }

    /// Puts our finalizer on the volume with this UID in this version, beside those of others.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if it is another volume or version, and the others.
    pub async fn add_finalizer(
        &self,
        guard: &LeaderGuard,
        name: &str,
        uid: &str,
        version: Version,
    ) -> Result<PersistentVolume, CallError> {
        let what = format!("put the finalizer on volume {name}");
        let patch = json!({
            "metadata": {
                "uid": uid,
                "resourceVersion": version.to_string(),
                "finalizers": [names::FINALIZER],
            }
        });
        self.patch_volume(guard, what, name, patch).await
    }

    async fn patch_volume(
        &self,
        guard: &LeaderGuard,
        what: String,
        name: &str,
        patch: serde_json::Value,
    ) -> Result<PersistentVolume, CallError> {
        let request =
            at::<PersistentVolume>(None).patch(name, &PatchParams::default(), &Patch::Strategic(patch));
        self.change(guard, what, request).await
    }

    /// Takes the chosen node off the claim, if it still is the same claim in the same version. The claim
    /// as it is then; `None` if there is none any more.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if it has changed, and the others.
    pub async fn unselect_node(
        &self,
        guard: &LeaderGuard,
        claim: &Claim,
    ) -> Result<Option<Claim>, CallError> {
        let what = format!("take the selected node off claim {}", claim.path());
        let patch = json!({
            "metadata": {
                "uid": claim.uid,
                "resourceVersion": claim.version.to_string(),
                "annotations": { names::SELECTED_NODE: null },
            }
        });
        let request = at::<PersistentVolumeClaim>(Some(&claim.namespace)).patch(
            &claim.name,
            &PatchParams::default(),
            &Patch::Merge(patch),
        );
        Ok(found(self.change(guard, what, request).await)?.map(decode::claim))
    }

    /// Creates or patches an event; `request` must go to the events API.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn send_event(
        &self,
        what: String,
        request: Result<Sent, kube::core::request::Error>,
    ) -> Result<(), CallError> {
        let request = built(&what, request)?;
        self.send::<serde::de::IgnoredAny>(what, with(request, Authority::Events), CALL_LIMIT).await.map(drop)
    }

    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        what: String,
        request: Result<Sent, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        let request = built(&what, request)?;
        self.send(what, request, CALL_LIMIT).await
    }

    /// Sends what changes something, within what is left of the guard.
    async fn change<T: DeserializeOwned>(
        &self,
        guard: &LeaderGuard,
        what: String,
        request: Result<Sent, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        let request = built(&what, request)?;
        let limit = guard.remaining()?.min(CALL_LIMIT);
        self.send(what, with(request, Authority::Leader(guard.clone())), limit).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        what: String,
        mut request: Sent,
        limit: Duration,
    ) -> Result<T, CallError> {
        let span = span(&what, &request);
        if let Some(traceparent) = trace::traceparent_of(&span).and_then(|text| text.parse().ok()) {
            request.headers_mut().insert("traceparent", traceparent);
        }
        let answer = self.exchange(what, request, limit).instrument(span.clone()).await;
        if let Err(error) = &answer {
            trace::failed(&span, error.category(), &error.to_string());
        }
        answer
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        what: String,
        request: Sent,
        limit: Duration,
    ) -> Result<T, CallError> {
        let permission = permissions::needed(request.method(), request.uri().path());
        let call = async {
            // A closed semaphore does not exist here; without a slot the call would merely be unlimited.
            let _slot = self.slots.acquire().await;
            self.client.request(request).await
        };
        let answer = match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map_err(|error| CallError::sort(what, error)),
            Err(_) => Err(CallError::timed_out(what, limit)),
        };
        if let Some(permission) = permission {
            self.permissions.judge(&permission, &answer);
        }
        answer
    }
}

/// Requests for a kind of object, in a namespace where it has one.
pub(crate) fn at<K>(namespace: Option<&str>) -> Request
where
    K: Resource<DynamicType = ()>,
{
    Request::new(K::url_path(&(), namespace))
}

/// The span of one request, below what it is made for.
fn span(what: &str, request: &Sent) -> Span {
    // All calls are told as a deed and, as the last word, its object: the name of a span names no object.
    let deed = what.rsplit_once(' ').map_or(what, |(deed, _)| deed);
    trace::below_current(|| {
        // At debug: the log does without it, so its fields are not formatted for the log either.
        tracing::debug_span!(
            "API request",
            otel.name = deed,
            otel.kind = "client",
            http.request.method = request.method().as_str(),
            url.path = request.uri().path(),
        )
    })
}

fn built(what: &str, request: Result<Sent, kube::core::request::Error>) -> Result<Sent, CallError> {
    request.map_err(|error| CallError::Rejected { what: what.to_owned(), message: error.to_string() })
}

fn with(mut request: Sent, authority: Authority) -> Sent {
    request.extensions_mut().insert(authority);
    request
}

pub(super) fn found<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(CallError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
