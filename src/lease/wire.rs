//! The Lease as JSON: what the machine reads out of it, what kube-leader-election is shown in its place,
//! and what is added to the writes that kube-leader-election makes.
//!
//! Works on untyped JSON, so that fields which this program does not know survive, and odd ones don't fail.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::machine::{Kind, Name, Relapse, Release, Restored, Shown, Stamp, Stored};

/// Annotation of a Lease that was given up: by whom, and the renewTime of that write.
pub const RELEASED_BY: &str = "kube-provisioner.dev/released-by";

/// Annotation with the full name of the provisioner, since two names can map to one Lease name.
pub const PROVISIONER: &str = "kube-provisioner.dev/provisioner";

/// Annotation of a Lease whose store was found to have been restored from a backup: when, by whom and how. While it
/// stands orphans are only reported; people take it off.
pub const RESTORED: &str = "kube-provisioner.dev/restored";

/// Annotation beside [`RESTORED`], which stays: the newest version of a claim that an asset's mark carried from before
/// a restore.
pub const RESTORED_FROM: &str = "kube-provisioner.dev/restored-from";

/// Shown to kube-leader-election as the holder of a Lease whose real holder it must not see.
const SOMEBODY: &str = "not-this-replica";

const LONG_AGO: &str = "2000-01-01T00:00:00.000000Z";
const FAR_AHEAD: &str = "9000-01-01T00:00:00.000000Z";

/// A Lease that lacks what every stored object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored Lease has no {0} that can be read")]
pub(crate) struct Unreadable(&'static str);

/// Reads what the machine wants to know.
pub(crate) fn read(lease: &Value) -> Result<Stored, Unreadable> {
    let version = text(lease, "/metadata/resourceVersion").and_then(|version| version.parse().ok());
    Ok(Stored {
        version: version.ok_or(Unreadable("metadata.resourceVersion"))?,
        uid: text(lease, "/metadata/uid").ok_or(Unreadable("metadata.uid"))?.into(),
        holder: text(lease, "/spec/holderIdentity").filter(|holder| !holder.is_empty()).map(Name::from),
        renewed: text(lease, "/spec/renewTime").and_then(stamp),
        duration: lease
            .pointer("/spec/leaseDurationSeconds")
            .and_then(Value::as_u64)
            .map_or(Duration::ZERO, Duration::from_secs),
        released_by: annotation(lease, RELEASED_BY).and_then(release),
        provisioner: annotation(lease, PROVISIONER).map(Name::from),
        restored: Restored {
            told: annotation(lease, RESTORED).map(Name::from),
            from: annotation(lease, RESTORED_FROM).and_then(|text| text.parse().ok()).unwrap_or_default(),
        },
    })
}

fn text<'a>(lease: &'a Value, pointer: &str) -> Option<&'a str> {
    lease.pointer(pointer).and_then(Value::as_str)
}

fn annotation<'a>(lease: &'a Value, name: &str) -> Option<&'a str> {
    lease.pointer("/metadata/annotations").and_then(|all| all.get(name)).and_then(Value::as_str)
}

fn stamp(text: &str) -> Option<Stamp> {
    text.parse::<Timestamp>().ok().map(|time| Stamp(time.as_microsecond()))
}

fn release(text: &str) -> Option<Release> {
    let (holder, renewed) = text.rsplit_once(' ')?;
    Some(Release { holder: holder.into(), renewed: stamp(renewed)? })
}

/// The `renewTime` that a Lease stores for `stamp`.
pub(crate) fn written_stamp(stamp: Stamp) -> String {
    let time = Timestamp::from_microsecond(stamp.0).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.6}")
}

/// The wall clock, as data.
pub(crate) fn wall_stamp() -> Stamp {
    Stamp(Timestamp::now().as_microsecond())
}

/// Rewrites a stored Lease into what `me` is shown. Every field that kube-leader-election looks at is set.
pub(crate) fn show(lease: &mut Value, me: &str, shown: Shown) {
    let (mine, renewed) = match shown {
        Shown::Mine => (true, LONG_AGO),
        Shown::Free => (false, LONG_AGO),
        Shown::Held | Shown::Absent => (false, FAR_AHEAD),
    };
    edit(lease, "spec", |spec| {
        let holder = spec.get("holderIdentity").and_then(Value::as_str).unwrap_or_default();
        let stranger = if holder.is_empty() || holder == me { SOMEBODY } else { holder };
        let holder = if mine { me } else { stranger }.to_owned();
        let transitions = spec.get("leaseTransitions").and_then(Value::as_i64).unwrap_or_default();
        // The crate adds one, in 32 bits.
        let transitions = transitions.clamp(0, i64::from(i32::MAX) - 1);
        spec.insert("holderIdentity".into(), holder.into());
        spec.insert("renewTime".into(), renewed.into());
        spec.insert("leaseDurationSeconds".into(), 1.into());
        spec.insert("leaseTransitions".into(), transitions.into());
    });
}

/// What `me` is shown while there is no Lease: one that somebody holds.
pub(crate) fn absent(name: &str, me: &str) -> Value {
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
    });
    show(&mut lease, me, Shown::Held);
    lease
}

/// Edits the object `name` of `parent`. What is no object (or missing) becomes one.
fn edit(parent: &mut Value, name: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    let Value::Object(parent) = parent else { return };
    let mut member = match parent.remove(name) {
        Some(Value::Object(member)) => member,
        _ => Map::new(),
    };
    change(&mut member);
    parent.insert(name.into(), Value::Object(member));
}

/// What a PATCH of kube-leader-election is for.
pub(crate) fn kind(patch: &Value) -> Kind {
    match text(patch, "/spec/holderIdentity") {
        None => Kind::Renew,
        Some("") => Kind::StepDown,
        Some(_) => Kind::Acquire,
    }
}

/// The marks that our writes put on the Lease.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    pub(crate) me: Name,
    pub(crate) provisioner: Name,
    pub(crate) labels: BTreeMap<String, String>,
}

impl Marks {
    /// Adds to a PATCH the version that it must find, the `renewTime` that tells it from all others, and
    /// our marks.
    pub(crate) fn complete(&self, patch: &mut Value, kind: Kind, version: Option<u64>, stamp: Stamp) {
        let renewed = written_stamp(stamp);
        edit(patch, "metadata", |metadata| {
            if let Some(version) = version {
                metadata.insert("resourceVersion".into(), version.to_string().into());
            }
            self.mark(metadata, kind, &renewed);
        });
        edit(patch, "spec", |spec| {
            spec.insert("renewTime".into(), renewed.into());
        });
    }

    fn mark(&self, metadata: &mut Map<String, Value>, kind: Kind, renewed: &str) {
        match kind {
            Kind::Renew => {}
            Kind::Acquire => {
                let annotations = json!({ PROVISIONER: &*self.provisioner, RELEASED_BY: null });
                metadata.insert("labels".into(), json!(self.labels));
                metadata.insert("annotations".into(), annotations);
            }
            Kind::StepDown => {
                let released_by = format!("{} {renewed}", self.me);
                metadata.insert("annotations".into(), json!({ RELEASED_BY: released_by }));
            }
        }
    }

    /// A PATCH that tells of a restore, for the Lease as it was found.
    pub(crate) fn restored(&self, found: &Stored, relapse: Relapse, now: Stamp) -> Value {
        let Restored { told, from } = &found.restored;
        let how = match relapse {
            Relapse::Lease => "the Lease had gone back to an older version".to_owned(),
            Relapse::Mark(version) => format!("an asset was made for a claim at version {version}"),
        };
        let by = format!("found out at {} by {}: {how}", written_stamp(now), self.me);
        let told = told.as_deref().unwrap_or(&by);
        let mut annotations = json!({ RESTORED: told });
        if let (Relapse::Mark(version), Some(annotations)) = (relapse, annotations.as_object_mut()) {
            annotations.insert(RESTORED_FROM.into(), version.max(*from).to_string().into());
        }
        json!({ "metadata": { "resourceVersion": found.version.to_string(), "annotations": annotations } })
    }

    /// A Lease that nobody holds: made where there was none, so that there is a version to observe.
    pub(crate) fn vacant(&self, name: &str, lease: Duration) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "labels": self.labels,
                "annotations": { PROVISIONER: &*self.provisioner },
            },
            "spec": { "leaseDurationSeconds": lease.as_secs(), "leaseTransitions": 0 },
        })
    }
}
