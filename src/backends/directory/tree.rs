//! The few file system calls that everything else here is made of, and the tree below the base.
//!
//! Every one takes an open directory and the name of one entry in it, and never follows a symbolic link
//! in that name. No path is ever resolved beyond opening the base itself.

use std::{collections::BTreeSet, io};

use cap_std::{ambient_authority, fs::Dir};
use rustix::{
    fs::{Mode, OFlags, RenameFlags, ResolveFlags},
    io::Errno,
    path::Arg,
};

use super::name::VolumeName;

/// Where our own records live, below the base. No volume can have this name.
const STATE: &str = ".kube-provisioner";

/// The base and the directories of our records, open.
///
/// | below the base | holds |
/// |---|---|
/// | `<volume>/` | the volume, as pods see it; whole and with its final permissions from its first moment |
/// | `.kube-provisioner/markers/<volume>` | whose it is |
/// | `.kube-provisioner/kept/<volume>` | there if people chose to keep it |
/// | `.kube-provisioner/staging/mark.<epoch>.<volume>`, `dir.<epoch>.<volume>` | half-made |
/// | `.kube-provisioner/deleting/<volume>` | a volume that is being removed |
///
/// The records lie beside the volumes and not in them: a pod can't forge or lose them, and programs that
/// want their data directory empty find it so.
pub(super) struct Base {
    pub(super) root: Dir,
    pub(super) markers: Dir,
    pub(super) kept: Dir,
    pub(super) staging: Dir,
    pub(super) deleting: Dir,
}

impl Base {
    /// Opens the base anew for each call: what is mounted there may have changed since the last one.
    pub(super) fn open(path: &str) -> io::Result<Self> {
        // Once more by its own name: the first handle is for looking things up only, this one can be synced.
        let root = open_child(&Dir::open_ambient_dir(path, ambient_authority())?, ".")?;
        let state = made_child(&root, STATE)?;
        Ok(Self {
            markers: made_child(&state, "markers")?,
            kept: made_child(&state, "kept")?,
            staging: made_child(&state, "staging")?,
            deleting: made_child(&state, "deleting")?,
            root,
        })
    }
}

fn made_child(parent: &Dir, name: &str) -> io::Result<Dir> {
    let made = make_private(parent, name)?;
    let child = open_child(parent, name)?;
    if made {
        // Without the setgid bit of the base: what is made in here must not depend on what the base was then.
        rustix::fs::fchmod(&child, Mode::RWXU)?;
    }
    Ok(child)
}

/// Makes a directory that only its owner can enter, or leaves the entry of that name as it is; whether it
/// was made.
pub(super) fn make_private(parent: &Dir, name: &str) -> io::Result<bool> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory that is an entry of `parent` itself: no symbolic link, and nothing that is mounted
/// on it (a volume's removal must not go on into another file system).
pub(super) fn open_child<P: Arg + Copy>(parent: &Dir, name: P) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let opened = match rustix::fs::openat2(parent, name, flags, Mode::empty(), inside) {
        // Kernels before 5.6 and some sandboxes; a single component with NOFOLLOW is as safe but for mounts.
        Err(Errno::NOSYS) => rustix::fs::openat(parent, name, flags, Mode::empty()),
        other => other,
    };
    Ok(Dir::from(opened?))
}

/// What an entry is. A symbolic link is `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Missing,
    Directory,
    Other,
}

pub(super) fn entry(parent: &Dir, name: &str) -> io::Result<Entry> {
    match parent.symlink_metadata(name) {
        Ok(found) if found.is_dir() => Ok(Entry::Directory),
        Ok(_) => Ok(Entry::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entry::Missing),
        Err(error) => Err(error),
    }
}

/// Moves a directory to a name that nothing has, or says `AlreadyExists`.
pub(super) fn rename_new(from: &Dir, name: &str, to: &Dir, new: &str) -> io::Result<()> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // NFS knows no such flag. A plain rename replaces at most an empty directory, and only one that
        // an earlier leader's call for the same volume made since the look before.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match entry(to, new)? {
            Entry::Missing => Ok(rustix::fs::renameat(from, name, to, new)?),
            _ => Err(io::ErrorKind::AlreadyExists.into()),
        },
        other => Ok(other?),
    }
}

/// Makes the names in a directory outlast a power cut. File systems that can't are taken as they are.
pub(super) fn sync(dir: &Dir) -> io::Result<()> {
    match rustix::fs::fsync(dir) {
        Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Success also when there was nothing to find.
pub(super) fn or_missing(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The entries of a directory that a volume could have as its name.
pub(super) fn names(dir: &Dir) -> io::Result<BTreeSet<VolumeName>> {
    let mut names = BTreeSet::new();
    for entry in dir.entries()? {
        names.extend(entry?.file_name().to_str().and_then(|name| VolumeName::parse(name).ok()));
    }
    Ok(names)
}

/// Whether nothing is in the directory of that name, or there is none.
pub(super) fn is_empty(parent: &Dir, name: &str) -> io::Result<bool> {
    match entry(parent, name)? {
        Entry::Missing => Ok(true),
        Entry::Directory => Ok(open_child(parent, name)?.entries()?.next().is_none()),
        Entry::Other => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> (tempfile::TempDir, Dir) {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(place.path(), ambient_authority()).unwrap();
        (place, dir)
    }

    #[test]
    fn a_link_is_never_opened_as_a_directory() {
        let (place, dir) = base();
        std::fs::create_dir(place.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", place.path().join("link")).unwrap();
        open_child(&dir, "real").unwrap();
        open_child(&dir, "link").unwrap_err();
        open_child(&dir, "..").unwrap_err();
        assert_eq!(entry(&dir, "link").unwrap(), Entry::Other);
    }

    #[test]
    fn a_rename_never_replaces_what_is_there() {
        let (place, dir) = base();
        std::fs::create_dir(place.path().join("new")).unwrap();
        std::fs::create_dir(place.path().join("old")).unwrap();
        let refused = rename_new(&dir, "new", &dir, "old").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        rename_new(&dir, "new", &dir, "other").unwrap();
    }

    #[test]
    fn a_state_directory_that_is_a_link_is_refused() {
        let (place, _) = base();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), place.path().join(STATE)).unwrap();
        assert!(Base::open(place.path().to_str().unwrap()).is_err());
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
