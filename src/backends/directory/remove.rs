//! Removing a volume so that it may stop at any instruction and be taken up again. Blocking.
//!
//! The order: the directory is renamed out of the volumes' sight, its tree is removed, leftovers of
//! unfinished provisions go, the marker goes last.

use std::{
    ffi::{OsStr, OsString},
    io,
};

use cap_std::fs::Dir;
use rustix::{
    fs::{AtFlags, Mode},
    io::Errno,
};

use super::{
    job::Wanted,
    marker,
    name::VolumeName,
    tree::{Base, Entry, entry, open_child, or_missing},
};

/// How often a volume that an earlier leader's call makes again meanwhile is removed again.
const ROUNDS: usize = 3;

/// Why a volume could not be removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoveError {
    #[error("volume {0}: something that is not a directory has its name in the base; nothing was removed")]
    NotADirectory(VolumeName),
    #[error("volume {name}: removing it failed: {source}")]
    Io { name: VolumeName, source: io::Error },
    #[error("volume {0}: another call makes it at the same time")]
    MadeAgain(VolumeName),
}

impl RemoveError {
    /// Whether a mount stands in the way, which ends by itself.
    pub(super) fn is_in_use(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices)
    }
}

/// Removes the volume, its tombstone of an earlier try, and our records of it.
pub(super) fn remove(base: &Base, name: &VolumeName, wanted: &Wanted) -> Result<(), RemoveError> {
    let failed = |source| RemoveError::Io { name: name.clone(), source };
    for _ in 0..ROUNDS {
        remove_tree(&base.deleting, name.as_str(), wanted).map_err(failed)?;
        if entry(&base.root, name.as_str()).map_err(failed)? == Entry::Other {
            return Err(RemoveError::NotADirectory(name.clone()));
        }
        or_missing(base.root.rename(name.as_str(), &base.deleting, name.as_str())).map_err(failed)?;
        remove_tree(&base.deleting, name.as_str(), wanted).map_err(failed)?;
        remove_staged(base, name, wanted).map_err(failed)?;
        marker::forget(base, name).map_err(failed)?;
        if entry(&base.root, name.as_str()).map_err(failed)? == Entry::Missing {
            return Ok(());
        }
    }
    Err(RemoveError::MadeAgain(name.clone()))
}

fn remove_staged(base: &Base, name: &VolumeName, wanted: &Wanted) -> io::Result<()> {
    for leftover in marker::leftovers(&base.staging, name)? {
        remove_tree(&base.staging, &leftover, wanted)?;
    }
    Ok(())
}

/// Removes an entry of `parent` and all below it, never following a link and never entering a mount.
///
/// Without recursion: the directories found one level down are emptied into the top, so neither a
/// thread's stack nor the number of open files depends on how deep a pod has nested its directories.
fn remove_tree(parent: &Dir, name: &str, wanted: &Wanted) -> io::Result<()> {
    if unlink(parent, name.as_ref())? {
        return Ok(());
    }
    let Some(top) = open_found(parent, name.as_ref())? else { return Ok(()) };
    // The rights to empty it, where they were taken away and can be taken back.
    let _ = rustix::fs::fchmod(&top, Mode::RWXU);
    let mut lifted = 0_u64;
    while empty_once(&top, &mut lifted, wanted)? {}
    or_missing(parent.remove_dir(name))
}

/// One pass over the entries of `top`; whether there were any.
fn empty_once(top: &Dir, lifted: &mut u64, wanted: &Wanted) -> io::Result<bool> {
    let mut any = false;
    for found in top.entries()? {
        wanted.check()?;
        any = true;
        let name = found?.file_name();
        if !unlink(top, &name)? {
            lift(top, &name, lifted, wanted)?;
        }
    }
    Ok(any)
}

/// Removes the directory `name` in `top`, after moving the directories within it up into `top`.
fn lift(top: &Dir, name: &OsStr, lifted: &mut u64, wanted: &Wanted) -> io::Result<()> {
    let Some(dir) = open_found(top, name)? else { return Ok(()) };
    let _ = rustix::fs::fchmod(&dir, Mode::RWXU);
    for found in dir.entries()? {
        wanted.check()?;
        let child = found?.file_name();
        if !unlink(&dir, &child)? {
            move_up(&dir, &child, top, lifted)?;
        }
    }
    match rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR) {
        // Something was written meanwhile: the next pass comes here again.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn move_up(dir: &Dir, child: &OsStr, top: &Dir, lifted: &mut u64) -> io::Result<()> {
    loop {
        let name = OsString::from(format!(".lifted-{lifted}"));
        *lifted += 1;
        match rustix::fs::renameat(dir, child, top, &name) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // A name from an interrupted try.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes anything but a directory; `false` if it is one.
fn unlink(parent: &Dir, name: &OsStr) -> io::Result<bool> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        // What POSIX wants for a directory; for a file it is a refusal.
        Err(Errno::PERM) if parent.symlink_metadata(name)?.is_dir() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory that was just seen; `None` if it is gone or no directory any more.
fn open_found(parent: &Dir, name: &OsStr) -> io::Result<Option<Dir>> {
    match open_child(parent, name) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_in_the_way_is_in_use_and_a_refusal_is_not() {
        let failed = |error: Errno| {
            let name = VolumeName::parse("pvc-1").unwrap();
            RemoveError::Io { name, source: error.into() }.is_in_use()
        };
        assert!(failed(Errno::BUSY) && failed(Errno::XDEV));
        assert!(!failed(Errno::ACCESS) && !failed(Errno::IO));
    }
}
