//! The contract between the controller and a storage backend: what is asked, and what may be answered.
//!
//! Nothing here knows the controller. The names are those of the Go library's `controller` package in
//! Rust spelling; what goes beyond it says so.

use std::{collections::BTreeMap, error::Error, fmt, sync::Arc, time::SystemTime};

pub use async_trait::async_trait;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};

/// Why something failed, in the backend's own words. A string or any error converts into it.
pub type Cause = Box<dyn Error + Send + Sync + 'static>;

/// A storage backend: makes the asset behind a volume, and removes it.
///
/// # What a backend must hold to
/// * **Idempotent by name.** `provision` for a name whose asset exists answers with that asset;
///   deleting what is gone is a success. After a crash or a change of leadership calls are repeated.
/// * **Killable.** A call may be dropped at any point where it waits, or end with the process. It may
///   also run beside a late call of an earlier leader for the same name ([`Call::epoch`] tells them apart).
/// * The PV **matches the claim**: capacity at least the request, its access modes, its volume mode, labels that
///   match a selector. What is left out (these, class, policy, claim reference, finalizer …) the controller fills
///   in. One that does not match is not saved: it is told, and the call repeated.
///
/// ```
/// use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume, PersistentVolumeSpec};
/// use kube_provisioner::provisioner::{
///     DeleteError, ProvisionError, Provisioner, VolumeOptions, async_trait,
/// };
///
/// struct Share;
///
/// #[async_trait]
/// impl Provisioner for Share {
///     async fn provision(&self, options: VolumeOptions) -> Result<PersistentVolume, ProvisionError> {
///         let server = options.parameters.get("server").ok_or_else(|| {
///             ProvisionError::Infeasible("the class lacks the parameter \"server\"".into())
///         })?;
///         let nfs = NFSVolumeSource {
///             server: server.clone(),
///             path: format!("/exports/{}", options.pv_name),
///             ..Default::default()
///         };
///         Ok(PersistentVolume {
///             spec: Some(PersistentVolumeSpec { nfs: Some(nfs), ..Default::default() }),
///             ..Default::default()
///         })
///     }
///
///     async fn delete(&self, _volume: &PersistentVolume) -> Result<(), DeleteError> {
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Provisioner: Send + Sync + 'static {
    /// Makes the storage asset that `options` describe, or finds the one already made under that name,
    /// and returns the PV that stands for it. Never creates the PV object.
    ///
    /// # Errors
    /// [`ProvisionError`] says what is known about the asset now; the controller acts on that alone.
    async fn provision(&self, options: VolumeOptions) -> Result<PersistentVolume, ProvisionError>;

    /// Removes the asset behind `volume`. Never removes the PV object.
    ///
    /// # Errors
    /// [`DeleteError`]; every kind but [`DeleteError::Ignored`] is tried again.
    async fn delete(&self, volume: &PersistentVolume) -> Result<(), DeleteError>;

    /// [`delete`](Self::delete) with what is known about the call. For backends that fence, bound or
    /// trace their work; the controller calls this one.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    async fn delete_with(&self, volume: &PersistentVolume, _call: &Call) -> Result<(), DeleteError> {
        self.delete(volume).await
    }

    /// The volume's policy stopped being Delete: its asset belongs to people from now on and must never
    /// be taken for an orphan. Called before the finalizer goes. Backends that mark assets record it.
    ///
    /// # Errors
    /// Any cause; the call is repeated, and the finalizer stays until it succeeds.
    async fn keep(&self, _volume: &PersistentVolume, _call: &Call) -> Result<(), Cause> {
        Ok(())
    }

    /// Tells which assets there are, a page at a time: from the beginning, or from where `page` says. Asked
    /// by the audit of orphans, only of backends whose [`capabilities`](Self::capabilities) say `list`.
    ///
    /// # Errors
    /// Any cause; the audit begins anew later.
    async fn list(&self, _page: Option<String>, _call: &Call) -> Result<AssetPage, Cause> {
        Ok(AssetPage::default())
    }

    /// What this backend can do beyond the two operations that every backend has. Asked once, when the
    /// controller starts.
    async fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// The name of the volume for the claim with this UID, where it is not to be made of prefix and UID: the
    /// same at each call and in each replica, another one for each claim, and a name that Kubernetes allows.
    fn volume_name(&self, _claim_uid: &str) -> Option<String> {
        None
    }

    /// An early, cheap filter: `false` leaves the claim alone without an event. Must not block.
    fn should_provision(&self, _claim: &PersistentVolumeClaim) -> bool {
        true
    }

    /// An early, cheap filter: `false` leaves the volume alone without an event. Must not block.
    fn should_delete(&self, _volume: &PersistentVolume) -> bool {
        true
    }
}

/// What a backend can do beyond provision and delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// It makes raw block volumes. Otherwise a claim of `volumeMode: Block` is refused with one event.
    pub block: bool,
    /// Its volumes are bound to nodes: it sets node affinity and may answer
    /// [`ProvisionError::Reschedule`].
    pub topology: bool,
    /// It honours a claim's selector. Otherwise such a claim is refused with one event.
    pub selector: bool,
    /// It fills volumes from a claim's data source. Otherwise such a claim is refused with one event.
    pub data_source: bool,
    /// It picks among volumes (`should_delete`, or it answers Ignored), so that each is read and offered
    /// to it before anything is written. Otherwise a volume is first marked for deletion.
    pub selective: bool,
    /// It can list its assets, so that those that belong to nothing are found.
    pub list: bool,
    /// It records what people chose to keep. An audit never removes assets of a backend that can't.
    pub keep: bool,
}

/// Some of a backend's assets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssetPage {
    /// The assets, in any order.
    pub assets: Vec<Asset>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<String>,
}

/// A storage asset as its backend tells of it: what was recorded when it was made, and what it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asset {
    /// The name of the volume that it was made for.
    pub volume_name: String,
    /// The installation that made it ([`Call::installation`]); `None` if it bears no mark.
    pub installation: Option<String>,
    /// The claim that it was made for.
    pub claim: Option<AssetClaim>,
    /// The reclaim policy at that time.
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// People chose to keep it ([`Provisioner::keep`]).
    pub kept: bool,
    /// It surely never held data.
    pub unused: bool,
    /// Where its data is, as in a PV's spec: an object with one source, `{"hostPath": {"path": …}}`.
    pub source: Option<serde_json::Value>,
}

/// The claim that an asset was made for, as it was then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssetClaim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
}

/// What happens to the asset when its claim is gone (`persistentVolumeReclaimPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReclaimPolicy {
    /// The volume and its asset are deleted. What a class without a policy means.
    #[default]
    Delete,
    /// Both stay until a person deals with them.
    Retain,
    /// The deprecated scrub-and-reuse policy. Never a provisioner's business.
    Recycle,
}

impl ReclaimPolicy {
    /// The policy as the API spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Retain => "Retain",
            Self::Recycle => "Recycle",
        }
    }

    /// Reads the API's spelling; `None` for a word that is no policy.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "Delete" => Some(Self::Delete),
            "Retain" => Some(Self::Retain),
            "Recycle" => Some(Self::Recycle),
            _ => None,
        }
    }
}

impl fmt::Display for ReclaimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known about one backend call besides its subject. Beyond the Go library.
#[derive(Clone, Debug)]
pub struct Call {
    /// The provisioner name that the call is made for.
    pub provisioner: Arc<str>,
    /// Names this cluster and provisioner: the UID of the `kube-system` namespace, a slash, and the
    /// provisioner name. Mark assets with it where several clusters share a storage system.
    pub installation: Arc<str>,
    /// The leadership under which the call was started: a number that grows with every change of
    /// leadership, usable as a fencing token. Starts anew after etcd was restored from a backup.
    pub epoch: u64,
    /// When the call is cut off. Its outcome then counts as unknown.
    pub deadline: SystemTime,
    /// The W3C trace context of this attempt, where the process traces.
    pub traceparent: Option<String>,
}

/// What is asked of [`Provisioner::provision`].
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// The class's reclaim policy.
    pub persistent_volume_reclaim_policy: ReclaimPolicy,
    /// The name the PV will have. The asset's name is made from it, and from nothing else.
    pub pv_name: String,
    /// The claim, whole, as it was last seen.
    pub pvc: Arc<PersistentVolumeClaim>,
    /// The class's parameters.
    pub parameters: BTreeMap<String, String>,
    /// The class, whole. Beyond the original contract, like all that follows.
    pub storage_class: Arc<StorageClass>,
    /// The class's mount options.
    pub mount_options: Vec<String>,
    /// The node that the scheduler chose, for a class of binding mode WaitForFirstConsumer.
    pub selected_node: Option<SelectedNode>,
    /// Epoch, deadline, trace context, installation.
    pub call: Call,
}

/// The node that the scheduler chose for the claim's first consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedNode {
    /// Its name.
    pub name: String,
    /// Its labels; empty when the node is gone.
    pub labels: BTreeMap<String, String>,
}

/// Not mine: another provisioner of the same class made it, or is to make it.
///
/// Nothing is done, nothing is retried, no event is written, and it counts as no failure.
#[derive(Clone, Debug, thiserror::Error)]
#[error("ignored: {reason}")]
pub struct IgnoredError {
    /// Why it is not this backend's, for the log.
    pub reason: String,
}

impl IgnoredError {
    /// An ignored error for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// Why [`Provisioner::provision`] gave no volume, and what is known about the asset now.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// It failed and nothing was made, or nothing was left. Tried again with backoff while the claim
    /// wants a volume (the Go library's `ProvisioningFinished`).
    #[error("{0}")]
    Finished(Cause),
    /// It may still be running, or has perhaps made something. Asked again until the outcome is known,
    /// even when the claim is gone by then (`ProvisioningInBackground`).
    #[error("{0}")]
    Background(Cause),
    /// Nothing is known beyond what was known before this call (`ProvisioningNoChange`).
    #[error("{0}")]
    NoChange(Cause),
    /// Nothing was left, and the chosen node can't have this volume: the scheduler is asked to choose
    /// again (`ProvisioningReschedule`).
    #[error("{0}")]
    Reschedule(Cause),
    /// Nothing was left, and the same parameters will not work later either: tried again slowly, or at
    /// once when the class changes.
    #[error("{0}")]
    Infeasible(Cause),
    /// Not this backend's claim.
    #[error(transparent)]
    Ignored(#[from] IgnoredError),
}

impl ProvisionError {
    /// [`ProvisionError::Finished`] for any error, for use with `map_err`.
    pub fn finished(cause: impl Into<Cause>) -> Self {
        Self::Finished(cause.into())
    }

    /// [`ProvisionError::Background`] for any error, for use with `map_err`.
    pub fn background(cause: impl Into<Cause>) -> Self {
        Self::Background(cause.into())
    }
}

/// Why [`Provisioner::delete`] did not remove the asset.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// It failed; the asset, or a part of it, may still be there.
    #[error("{0}")]
    Failed(Cause),
    /// Something still uses the asset. Tried again, told with a Normal event.
    #[error("{0}")]
    InUse(Cause),
    /// Not this backend's volume: it is left alone.
    #[error(transparent)]
    Ignored(#[from] IgnoredError),
}

impl DeleteError {
    /// [`DeleteError::Failed`] for any error, for use with `map_err`.
    pub fn failed(cause: impl Into<Cause>) -> Self {
        Self::Failed(cause.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reclaim_policies_read_back_what_they_write() {
        for policy in [ReclaimPolicy::Delete, ReclaimPolicy::Retain, ReclaimPolicy::Recycle] {
            assert_eq!(ReclaimPolicy::parse(policy.as_str()), Some(policy));
        }
        assert_eq!(ReclaimPolicy::parse("delete"), None);
    }

    #[test]
    fn errors_speak_with_the_backends_own_words() {
        assert_eq!(ProvisionError::finished("no space").to_string(), "no space");
        assert_eq!(ProvisionError::from(IgnoredError::new("other site")).to_string(), "ignored: other site");
        assert_eq!(DeleteError::failed("busy").to_string(), "busy");
    }
}
