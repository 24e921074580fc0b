//! The record beside each volume that says whose it is, for the audit of orphans, and whether people
//! chose to keep it.
//!
//! A marker is written whole under a temporary name and renamed into place. It never changes afterwards:
//! "kept" is a file of its own, so that no late call of an earlier leader can write it away.

use std::io::{self, Write};

use cap_std::fs::{Dir, OpenOptions};
use serde::{Deserialize, Serialize};

use super::{
    name::VolumeName,
    tree::{self, Base, Entry, or_missing, sync},
};
use crate::provisioner::VolumeOptions;

/// Whose volume it is, as known when it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Marker {
    /// The cluster and provisioner ([`crate::provisioner::Call::installation`]).
    pub(super) installation: String,
    /// The claim that it was made for.
    pub(super) claim: MarkedClaim,
    /// The reclaim policy of the class at that time.
    pub(super) reclaim_policy: String,
}

/// The claim as it was when its volume was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MarkedClaim {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

impl Marker {
    pub(super) fn of(options: &VolumeOptions) -> Self {
        let metadata = options.pvc.metadata.clone();
        Self {
            installation: options.call.installation.to_string(),
            claim: MarkedClaim {
                namespace: metadata.namespace.unwrap_or_default(),
                name: metadata.name.unwrap_or_default(),
                uid: metadata.uid.unwrap_or_default(),
                resource_version: metadata.resource_version.unwrap_or_default(),
            },
            reclaim_policy: options.persistent_volume_reclaim_policy.to_string(),
        }
    }
}

/// The marker of a volume. One that can't be read counts as none: a power cut can leave such, and the
/// next provision writes it anew.
pub(super) fn read(base: &Base, name: &VolumeName) -> io::Result<Option<Marker>> {
    match base.markers.read(name.as_str()) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The installation that made the volume, if it is not `own`.
pub(super) fn foreign(base: &Base, name: &VolumeName, own: &str) -> io::Result<Option<Foreign>> {
    let marker = read(base, name)?.filter(|marker| marker.installation != own);
    Ok(marker.map(|marker| Foreign { name: name.clone(), other: marker.installation }))
}

/// Two installations share the base, or the cluster was rebuilt.
#[derive(Debug, thiserror::Error)]
#[error(
    "volume {name}: its directory was made by another installation, {other:?}, and is not touched; to take it \
     over, remove the file .kube-provisioner/markers/{name} in the base"
)]
pub(super) struct Foreign {
    name: VolumeName,
    other: String,
}

/// Writes a marker under its temporary name, so that it outlasts a power cut.
pub(super) fn stage(base: &Base, temporary: &str, marker: &Marker) -> io::Result<()> {
    // A leftover of an earlier crash is replaced, whatever it is.
    or_missing(base.staging.remove_file(temporary))?;
    let mut file = base.staging.open_with(temporary, OpenOptions::new().write(true).create_new(true))?;
    file.write_all(&serde_json::to_vec(marker)?)?;
    file.sync_all()
}

/// Moves a staged marker into its place, or drops it if the volume has one.
pub(super) fn publish(base: &Base, temporary: &str, name: &VolumeName) -> io::Result<()> {
    if read(base, name)?.is_some() {
        return or_missing(base.staging.remove_file(temporary));
    }
    base.staging.rename(temporary, &base.markers, name.as_str())?;
    sync(&base.markers)
}

/// Records that people chose to keep the volume.
pub(super) fn keep(base: &Base, name: &VolumeName) -> io::Result<()> {
    base.kept.open_with(name.as_str(), OpenOptions::new().write(true).create(true))?;
    sync(&base.kept)
}

/// Whether people chose to keep the volume.
pub(super) fn is_kept(base: &Base, name: &VolumeName) -> io::Result<bool> {
    Ok(tree::entry(&base.kept, name.as_str())? != Entry::Missing)
}

/// Forgets the volume. The marker goes last: while anything else is left, it says whose that is.
pub(super) fn forget(base: &Base, name: &VolumeName) -> io::Result<()> {
    or_missing(base.kept.remove_file(name.as_str()))?;
    or_missing(base.markers.remove_file(name.as_str()))
}

/// The entries of `staging` that belong to a volume, whichever epoch left them there.
pub(super) fn leftovers(staging: &Dir, name: &VolumeName) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in staging.entries()? {
        let entry = entry?.file_name();
        let Some(text) = entry.to_str() else { continue };
        // `<kind>.<epoch>.<volume>`; the volume's own name may have dots.
        if text.splitn(3, '.').nth(2) == Some(name.as_str()) {
            found.push(text.to_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> (tempfile::TempDir, Base, VolumeName) {
        let place = tempfile::tempdir().unwrap();
        let base = Base::open(place.path().to_str().unwrap()).unwrap();
        (place, base, VolumeName::parse("pvc-1").unwrap())
    }

    fn marker(installation: &str) -> Marker {
        let claim = MarkedClaim { name: "data".into(), uid: "1".into(), ..Default::default() };
        Marker { installation: installation.into(), claim, reclaim_policy: "Delete".into() }
    }

    #[test]
    fn a_marker_reads_back_and_is_not_replaced_by_a_later_one() {
        let (_place, base, name) = fixture();
        for (temporary, installation) in [("mark.1.pvc-1", "first"), ("mark.2.pvc-1", "second")] {
            stage(&base, temporary, &marker(installation)).unwrap();
            publish(&base, temporary, &name).unwrap();
        }
        assert_eq!(read(&base, &name).unwrap(), Some(marker("first")));
        assert_eq!(leftovers(&base.staging, &name).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_marker_that_a_power_cut_emptied_is_written_anew() {
        let (place, base, name) = fixture();
        std::fs::write(place.path().join(".kube-provisioner/markers/pvc-1"), "").unwrap();
        assert_eq!(read(&base, &name).unwrap(), None);
        stage(&base, "mark.3.pvc-1", &marker("third")).unwrap();
        publish(&base, "mark.3.pvc-1", &name).unwrap();
        assert_eq!(read(&base, &name).unwrap(), Some(marker("third")));
    }

    #[test]
    fn a_crash_while_staging_leaves_what_the_next_call_replaces() {
        let (place, base, name) = fixture();
        std::fs::write(place.path().join(".kube-provisioner/staging/mark.1.pvc-1"), "{\"insta").unwrap();
        stage(&base, "mark.1.pvc-1", &marker("whole")).unwrap();
        publish(&base, "mark.1.pvc-1", &name).unwrap();
        assert_eq!(read(&base, &name).unwrap(), Some(marker("whole")));
    }

    #[test]
    fn leftovers_are_those_of_this_volume_alone() {
        let (place, base, _) = fixture();
        for entry in ["mark.1.a", "dir.22.a", "mark.1.a.b", "dir.1.b.a", "a"] {
            std::fs::write(place.path().join(".kube-provisioner/staging").join(entry), "").unwrap();
        }
        let mut found = leftovers(&base.staging, &VolumeName::parse("a").unwrap()).unwrap();
        found.sort();
        assert_eq!(found, ["dir.22.a", "mark.1.a"]);
    }

    #[test]
    fn keeping_is_remembered_twice_over_and_forgotten_with_the_volume() {
        let (place, base, name) = fixture();
        keep(&base, &name).unwrap();
        keep(&base, &name).unwrap();
        assert!(place.path().join(".kube-provisioner/kept/pvc-1").exists());
        forget(&base, &name).unwrap();
        forget(&base, &name).unwrap();
        assert!(!place.path().join(".kube-provisioner/kept/pvc-1").exists());
    }
}
