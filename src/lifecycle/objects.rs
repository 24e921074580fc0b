//! The slim objects that decisions are made on, and that caches hold. How they are read from the API's
//! objects lives in `cluster::decode`.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};

use crate::provisioner::ReclaimPolicy;

/// A resourceVersion. Numbers since Kubernetes 1.35 says so; never compared across resources.
pub type Version = u64;

/// What is kept of a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// Its resourceVersion.
    pub version: Version,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// `spec.volumeName`: set when it is bound, or when its user chose a volume.
    pub volume_name: Option<Box<str>>,
    /// Its phase is Bound: its user waits no more.
    pub bound: bool,
    /// Its class, from the annotation or the field.
    pub class: Option<Arc<str>>,
    /// The provisioner that its annotation names.
    pub provisioner: Option<Arc<str>>,
    /// The node that the scheduler chose.
    pub selected_node: Option<Box<str>>,
    /// It wants a raw block volume.
    pub block: bool,
    /// It has a selector.
    pub selector: bool,
    /// It has a data source.
    pub data_source: bool,
    /// The whole claim, as long as it has no volume: a backend gets it. Dropped when it is bound.
    pub whole: Option<Arc<PersistentVolumeClaim>>,
}

impl Claim {
    /// `namespace/name`, for messages.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether any field that decisions read differs from `other`: a label update is no change.
    #[must_use]
    pub fn differs_for_decisions(&self, other: &Self) -> bool {
        self.uid != other.uid
            || self.deleting != other.deleting
            || self.volume_name != other.volume_name
            || self.class != other.class
            || self.provisioner != other.provisioner
            || self.selected_node != other.selected_node
    }
}

/// The claim that a volume is bound to or reserved for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID; empty when a person reserved the volume by name only.
    pub uid: Box<str>,
}

/// A volume's phase, as kube-controller-manager writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not looked at yet.
    #[default]
    Pending,
    /// Free.
    Available,
    /// In use by a claim.
    Bound,
    /// Its claim is gone.
    Released,
    /// Reclaiming it failed, or its claim was lost.
    Failed,
}

impl Phase {
    /// Reads the API's spelling; what is unknown counts as pending, on which nothing is ever done.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        match word {
            "Available" => Self::Available,
            "Bound" => Self::Bound,
            "Released" => Self::Released,
            "Failed" => Self::Failed,
            _ => Self::Pending,
        }
    }
}

/// What is kept of a volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// Its name, also the key of the work on it.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// Its resourceVersion.
    pub version: Version,
    /// Its phase.
    pub phase: Phase,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// It carries our finalizer.
    pub finalizer: bool,
    /// What happens to it when its claim is gone.
    pub policy: ReclaimPolicy,
    /// Its claim.
    pub claim: Option<ClaimRef>,
    /// Its class.
    pub class: Option<Arc<str>>,
    /// Who made it (`pv.kubernetes.io/provisioned-by`).
    pub provisioned_by: Option<Arc<str>>,
    /// Who took it over (`pv.kubernetes.io/migrated-to`).
    pub migrated_to: Option<Arc<str>>,
    /// The CSI driver of a CSI volume.
    pub csi_driver: Option<Arc<str>>,
    /// The instance that made it, where one was configured.
    pub instance: Option<Arc<str>>,
    /// The W3C trace context of its provisioning.
    pub traceparent: Option<Box<str>>,
}

impl Volume {
    /// Whether it differs from `other` in what decisions read besides the state that `volume::decide` sums up:
    /// a label update is no change, nor is the deletionTimestamp that we set ourselves.
    #[must_use]
    pub fn is_another_than(&self, other: &Self) -> bool {
        self.uid != other.uid || self.claim != other.claim || self.class != other.class
    }
}

/// What is kept of a class: all of it, there are few.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// Its provisioner.
    pub provisioner: Arc<str>,
    /// Volumes wait for their first consumer (`volumeBindingMode: WaitForFirstConsumer`).
    pub wait_for_consumer: bool,
    /// The policy its volumes get.
    pub policy: ReclaimPolicy,
    /// The whole class, for the backend.
    pub whole: Arc<StorageClass>,
}

/// What is kept of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}
