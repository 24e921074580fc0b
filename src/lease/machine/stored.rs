//! What the machine knows of a stored Lease: the fields that decisions rest on, nothing of their encoding.

use std::{sync::Arc, time::Duration};

use super::Restored;

/// A name (holder, UID, provisioner), cheap to clone.
pub(crate) type Name = Arc<str>;

/// A `renewTime` in microseconds since 1970: data that tells writes apart, never a basis for expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stamp(pub(crate) i64);

/// The mark of a step-down by our own hand: it counts only while the stored `renewTime` is `renewed`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Release {
    pub(crate) holder: Name,
    pub(crate) renewed: Stamp,
}

/// One version of the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) version: u64,
    pub(crate) uid: Name,
    /// `None` when missing or empty.
    pub(crate) holder: Option<Name>,
    /// `None` when missing or unreadable.
    pub(crate) renewed: Option<Stamp>,
    /// Zero when missing, unreadable or negative.
    pub(crate) duration: Duration,
    pub(crate) released_by: Option<Release>,
    /// The provisioner that the Lease says it belongs to, if it says.
    pub(crate) provisioner: Option<Name>,
    /// What it says of restores of the store.
    pub(crate) restored: Restored,
}

impl Stored {
    /// Whether a replica of ours gave this Lease up, and nothing has happened to it since.
    pub(super) fn is_released(&self) -> bool {
        let mark = self.released_by.as_ref().map(|release| release.renewed);
        self.holder.is_none() && mark.is_some() && mark == self.renewed
    }

    pub(super) fn is_held_by(&self, name: &str) -> bool {
        self.holder.as_deref() == Some(name)
    }
}
