//! The directory backend's settings: as they are written, and as they are once checked.

use std::{
    io,
    path::{Component, Path},
};

use serde::Deserialize;

use crate::backends::BackendError;

/// Settings of the directory backend.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DirectoryConfig {
    /// The base: an absolute path to a directory that exists, the same on every node and in the
    /// provisioner's own pod. It is never created: a base that is missing is, as a rule, a file system
    /// that is not mounted, and volumes made on the disk below it would vanish behind the mount.
    pub path: String,
    /// Permissions of a new volume's directory, in octal. Set by an explicit chmod, so no umask takes
    /// from it; a setgid bit on the base is passed on. The default lets a pod of any user write,
    /// because Kubernetes applies no `fsGroup` to hostPath volumes.
    #[serde(default = "default_mode")]
    pub mode: String,
    /// The user that owns a new volume's directory; the provisioner's own if absent.
    pub uid: Option<u32>,
    /// The group of a new volume's directory; the provisioner's own, or the base's if that has the
    /// setgid bit, if absent.
    pub gid: Option<u32>,
}

fn default_mode() -> String {
    "0777".to_owned()
}

/// The settings, checked.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Absolute, without `.`, `..`, doubled or trailing slashes; not the root.
    pub(super) base: String,
    pub(super) access: Access,
}

/// What a new volume's directory must end up with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) mode: u32,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

impl DirectoryConfig {
    pub(super) fn check(self) -> Result<Settings, BackendError> {
        let base = clean_base(&self.path)?;
        exists(&base)?;
        let uid = no_wildcard("directory.uid", self.uid)?;
        let gid = no_wildcard("directory.gid", self.gid)?;
        Ok(Settings { base, access: Access { mode: octal(&self.mode)?, uid, gid } })
    }
}

/// The base as every volume's path begins: a PV's path is compared with it byte by byte.
fn clean_base(path: &str) -> Result<String, BackendError> {
    let refuse = |why: &str| BackendError::new("directory.path", format!("{path:?} {why}"));
    if path.contains('\0') {
        return Err(refuse("contains a NUL byte"));
    }
    let mut clean = String::new();
    for component in Path::new(path).components() {
        match component {
            Component::RootDir => {}
            Component::Normal(part) => {
                clean.push('/');
                clean.push_str(&part.to_string_lossy());
            }
            _ => return Err(refuse("must be absolute and without \"..\"")),
        }
    }
    match (path.starts_with('/'), clean.is_empty()) {
        (true, false) => Ok(clean),
        (true, true) => Err(refuse("is the root of the file system; give a directory of its own")),
        (false, _) => Err(refuse("must be absolute")),
    }
}

fn exists(base: &str) -> Result<(), BackendError> {
    let problem = match std::fs::metadata(base) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => io::Error::from(io::ErrorKind::NotADirectory),
        Err(error) => error,
    };
    let reason = format!("{base:?} can't be used: {problem}; it must be a directory that exists");
    Err(BackendError::new("directory.path", reason))
}

fn octal(mode: &str) -> Result<u32, BackendError> {
    let digits = mode.bytes().all(|b| b.is_ascii_digit());
    u32::from_str_radix(mode, 8).ok().filter(|bits| digits && (1..=0o7777).contains(bits)).ok_or_else(|| {
        let reason = format!("{mode:?} must be octal permissions in quotes, from \"0001\" to \"7777\"");
        BackendError::new("directory.mode", reason)
    })
}

/// The kernel takes the highest id for "leave it as it is".
fn no_wildcard(key: &'static str, id: Option<u32>) -> Result<Option<u32>, BackendError> {
    match id {
        Some(u32::MAX) => Err(BackendError::new(key, "4294967295 is no id; the highest is 4294967294")),
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_absolute_clean_and_not_the_root() {
        assert_eq!(clean_base("/srv//volumes/./a/").unwrap(), "/srv/volumes/a");
        for bad in ["", "srv", "./srv", "/", "//", "/srv/../etc", "/srv\0x"] {
            assert_eq!(clean_base(bad).unwrap_err().key, "directory.path", "{bad:?}");
        }
    }

    #[test]
    fn a_base_must_be_there_already() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().to_str().unwrap();
        exists(base).unwrap();
        assert!(exists(&format!("{base}/missing")).unwrap_err().reason.contains("must be a directory"));
        std::fs::write(format!("{base}/file"), "").unwrap();
        assert!(exists(&format!("{base}/file")).is_err());
    }

    #[test]
    fn a_mode_is_octal_and_not_zero() {
        assert_eq!(octal("0777").unwrap(), 0o777);
        assert_eq!(octal("2770").unwrap(), 0o2770);
        for bad in ["", "0", "0o777", "+777", "rwx", "0888", "17777"] {
            assert_eq!(octal(bad).unwrap_err().key, "directory.mode", "{bad:?}");
        }
    }
}
