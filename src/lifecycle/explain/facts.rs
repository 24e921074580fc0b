//! What an explanation is made from: plain data, read by somebody else. Each part may be missing, and then
//! says why.

use std::fmt;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::lifecycle::objects::{Claim, Class, Volume};

/// Something that was to be read: what it is, or why it could not be.
pub type Read<T> = Result<T, NotRead>;

/// A part that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotRead {
    /// What it is, with the permission that reading it takes.
    pub what: String,
    /// What the API server said.
    pub why: String,
}

/// A point in time, written in UTC to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Moment {
    /// The point in time so many seconds after 1970; the nearest there is, if that is out of range.
    #[must_use]
    pub fn from_second(second: i64) -> Self {
        Self(Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn as_second(self) -> i64 {
        self.0.as_second()
    }

    /// Seconds from `earlier` until this, 0 if it is not earlier.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> u64 {
        u64::try_from(self.as_second().saturating_sub(earlier.as_second())).unwrap_or_default()
    }

    /// So many seconds later.
    #[must_use]
    pub fn plus(self, seconds: u64) -> Self {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        Self::from_second(self.as_second().saturating_add(seconds))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}", self.0)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An event about the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its reason.
    pub reason: String,
    /// Its words.
    pub note: String,
    /// Who told it: for ours the provisioner's name.
    pub controller: String,
    /// Which replica told it.
    pub instance: String,
    /// When it happened first.
    pub first: Option<Moment>,
    /// When it happened last, as far as it was told.
    pub last: Option<Moment>,
    /// How often it happened, as far as it was told.
    pub count: u32,
}

/// A Lease that may be a provisioner's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The provisioner it is for: from its annotation, or by its name.
    pub provisioner: String,
    /// Its holder.
    pub holder: Option<String>,
    /// When it was renewed last.
    pub renewed: Option<Moment>,
    /// For how many seconds a renewal counts.
    pub seconds: Option<u64>,
    /// What it tells of a restore of the API server's store.
    pub restored: Option<String>,
}

/// A Pod that uses the claim and has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// The node it is on, or is to be on.
    pub node: Option<String>,
    /// The scheduler that is to choose its node.
    pub scheduler: String,
    /// When it was made.
    pub created: Option<Moment>,
    /// Why it has no node, as its scheduler says.
    pub unscheduled: Option<Unscheduled>,
}

/// What a scheduler says of a Pod that it found no node for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unscheduled {
    /// In a word.
    pub reason: String,
    /// In its own words.
    pub message: String,
    /// Since when.
    pub since: Option<Moment>,
}

/// What is the same for a claim and a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Surroundings {
    /// The time.
    pub now: Moment,
    /// The provisioner names that the asker gave; otherwise the object says who is meant.
    pub asked: Vec<String>,
    /// The events about the object.
    pub events: Read<Vec<Event>>,
    /// The Leases that were found, of any provisioner.
    pub leases: Vec<Lease>,
    /// Why there may be others.
    pub leases_not_read: Option<NotRead>,
    /// Provisioner names that CSI drivers and volumes tell of.
    pub names: Vec<String>,
    /// The Pods that use the claim.
    pub pods: Read<Vec<Pod>>,
    /// Other parts that could not be read.
    pub not_read: Vec<NotRead>,
}

impl Surroundings {
    /// Nothing is known but the time.
    #[must_use]
    pub const fn empty(now: Moment) -> Self {
        Self {
            now,
            asked: Vec::new(),
            events: Ok(Vec::new()),
            leases: Vec::new(),
            leases_not_read: None,
            names: Vec::new(),
            pods: Ok(Vec::new()),
            not_read: Vec::new(),
        }
    }
}

/// A claim and what matters for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimFacts {
    /// The claim.
    pub claim: Claim,
    /// Its phase, as kube-controller-manager writes it.
    pub phase: String,
    /// It asks for no class: `storageClassName` is there and empty.
    pub static_only: bool,
    /// When it was marked for deletion.
    pub deleted: Option<Moment>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its class.
    pub class: Read<Option<Class>>,
    /// The names of all classes, as far as they could be read.
    pub classes: Vec<String>,
    /// The volume that it names, or that is named after it.
    pub volume: Read<Option<Volume>>,
    /// The rest.
    pub around: Surroundings,
}

/// A volume and what matters for it.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeFacts {
    /// The volume.
    pub volume: Volume,
    /// Since when it is in its phase.
    pub phase_since: Option<Moment>,
    /// When it was marked for deletion.
    pub deleted: Option<Moment>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// The claim that it names, as it is now, if it still is the same claim.
    pub claim: Read<Option<Claim>>,
    /// The rest.
    pub around: Surroundings,
}
