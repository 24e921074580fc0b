//! What people are told about an object, as data. Writing it is the Recorder's work.

use super::objects::{Claim, Volume};

/// The object that something is told about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct About {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for a volume.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
}

/// The kinds of object that events are written on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    /// A Lease.
    Lease,
}

impl From<&Claim> for About {
    fn from(claim: &Claim) -> Self {
        Self {
            kind: Kind::Claim,
            namespace: (&*claim.namespace).into(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
        }
    }
}

impl From<&Volume> for About {
    fn from(volume: &Volume) -> Self {
        Self {
            kind: Kind::Volume,
            namespace: "".into(),
            name: (&*volume.name).into(),
            uid: volume.uid.clone(),
        }
    }
}

/// The event reasons, as the Go library spells them. Stable: people filter by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A backend call begins (only with full event verbosity).
    Provisioning,
    /// The volume is saved.
    ProvisioningSucceeded,
    /// The claim has no volume, and why.
    ProvisioningFailed,
    /// An asset could not be removed.
    ProvisioningCleanupFailed,
    /// The asset of a released volume could not be removed.
    VolumeFailedDelete,
    /// The asset of a released volume is in use and will be tried again.
    VolumeDelete,
    /// An asset belongs to no volume and no claim.
    OrphanedAsset,
    /// A replica began or stopped to lead.
    LeaderElection,
    /// The API server's store was restored from a backup.
    StoreRestored,
}

impl Reason {
    /// The word in the event.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provisioning => "Provisioning",
            Self::ProvisioningSucceeded => "ProvisioningSucceeded",
            Self::ProvisioningFailed => "ProvisioningFailed",
            Self::ProvisioningCleanupFailed => "ProvisioningCleanupFailed",
            Self::VolumeFailedDelete => "VolumeFailedDelete",
            Self::VolumeDelete => "VolumeDelete",
            Self::OrphanedAsset => "OrphanedAsset",
            Self::LeaderElection => "LeaderElection",
            Self::StoreRestored => "StoreRestored",
        }
    }

    /// Whether it is a warning, as opposed to the ordinary course of things.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        matches!(
            self,
            Self::ProvisioningFailed
                | Self::ProvisioningCleanupFailed
                | Self::VolumeFailedDelete
                | Self::OrphanedAsset
                | Self::StoreRestored
        )
    }
}

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// The object.
    pub about: About,
    /// What it is about.
    pub reason: Reason,
    /// In words.
    pub message: String,
}

impl Note {
    /// Something to tell about a claim or a volume.
    pub fn new(about: impl Into<About>, reason: Reason, message: impl Into<String>) -> Self {
        Self { about: about.into(), reason, message: message.into() }
    }
}
