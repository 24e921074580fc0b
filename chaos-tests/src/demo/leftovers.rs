//! What a directory backend left in its base: volumes, and its own records of them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where the backend keeps its records, a directory per kind.
const RECORDS: &str = ".kube-provisioner";

/// All volumes below `base`, whole, half-made or half-removed, and all records of volumes.
pub(super) fn below(base: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in entries(base)? {
        if entry.file_name().is_some_and(|name| name == RECORDS) {
            for kind in entries(&entry)? {
                found.extend(entries(&kind)?);
            }
        } else {
            found.push(entry);
        }
    }
    Ok(found)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_records_are_nothing_and_what_lies_in_them_is_left_over() {
        let base = tempfile::tempdir().unwrap();
        let at = |path: &str| base.path().join(path);
        fs::create_dir_all(at(".kube-provisioner/markers")).unwrap();
        fs::create_dir_all(at(".kube-provisioner/staging")).unwrap();
        assert!(below(base.path()).unwrap().is_empty());
        fs::create_dir(at("pvc-1")).unwrap();
        fs::write(at(".kube-provisioner/markers/pvc-2"), "").unwrap();
        let mut found = below(base.path()).unwrap();
        found.sort();
        assert_eq!(found, [at(".kube-provisioner/markers/pvc-2"), at("pvc-1")]);
    }
}
