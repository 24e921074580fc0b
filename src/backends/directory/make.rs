//! Making a volume's directory so that it is whole from its first moment, whatever instruction it is
//! stopped at. Blocking.
//!
//! The order: a marker and a directory with its final owner and mode are made under names of their own
//! epoch; the marker is moved into place, then the directory. So there is never a volume without a
//! marker, never one with half its permissions, and a failure before the moves leaves nothing.

use std::io;

use cap_std::fs::Dir;
use rustix::fs::{Gid, Mode, Uid};

use super::{
    config::Access,
    job::Wanted,
    marker::{self, Marker},
    name::VolumeName,
    tree::{Base, Entry, entry, make_private, open_child, or_missing, rename_new, sync},
};

/// How often a volume that an earlier leader's call removes meanwhile is made again.
const ROUNDS: usize = 3;

/// What to make.
pub(super) struct Plan {
    pub(super) name: VolumeName,
    pub(super) epoch: u64,
    pub(super) access: Access,
    pub(super) marker: Marker,
}

/// Why there is no volume, and what is known.
#[derive(Debug, thiserror::Error)]
pub(super) enum MakeError {
    #[error("{0}")]
    Nothing(#[from] NothingMade),
    /// Something may have been made.
    #[error("volume {name}: moving its directory into place failed, it is tried again: {source}")]
    Unknown { name: VolumeName, source: io::Error },
}

/// Why nothing was made.
#[derive(Debug, thiserror::Error)]
pub(super) enum NothingMade {
    #[error("volume {0}: something that is not a directory has its name in the base; move it away")]
    NotADirectory(VolumeName),
    #[error(transparent)]
    Foreign(#[from] marker::Foreign),
    #[error("volume {name}: {step} failed: {source}")]
    Io { name: VolumeName, step: &'static str, source: io::Error },
}

impl Plan {
    /// Makes the volume, or finds it made.
    pub(super) fn carry_out(&self, base: &Base, wanted: &Wanted) -> Result<(), MakeError> {
        for _ in 0..ROUNDS {
            let found = self.look(base)?;
            self.stage(base, found, wanted).map_err(|error| self.undo(base, error))?;
            self.publish(base, wanted).map_err(|source| self.unknown(source))?;
            if self.stands(base).map_err(|source| self.unknown(source))? {
                return Ok(());
            }
        }
        Err(self.unknown(io::Error::other("another call removes it at the same time")))
    }

    /// What has the volume's name now; an error if it is nothing of ours.
    fn look(&self, base: &Base) -> Result<Entry, NothingMade> {
        let failed = |source| self.failed("looking for it", source);
        if let Some(foreign) = marker::foreign(base, &self.name, &self.marker.installation).map_err(failed)? {
            return Err(foreign.into());
        }
        match entry(&base.root, self.name.as_str()).map_err(failed)? {
            Entry::Other => Err(NothingMade::NotADirectory(self.name.clone())),
            found => Ok(found),
        }
    }

    /// Everything that can fail for a reason of its own, where nobody sees it.
    pub(super) fn stage(&self, base: &Base, found: Entry, wanted: &Wanted) -> Result<(), NothingMade> {
        let at = |step| move |source| self.failed(step, source);
        wanted.check().map_err(at("starting"))?;
        marker::stage(base, &self.staged("mark"), &self.marker).map_err(at("writing its marker"))?;
        // What exists is adopted as it is: its owner and mode may be a pod's choice by now.
        if found == Entry::Missing {
            let name = self.staged("dir");
            make_private(&base.staging, &name).map_err(at("making its directory"))?;
            let dir = open_child(&base.staging, name.as_str()).map_err(at("opening its directory"))?;
            give(&dir, &base.root, self.access).map_err(|(step, source)| self.failed(step, source))?;
        }
        Ok(())
    }

    fn publish(&self, base: &Base, wanted: &Wanted) -> io::Result<()> {
        wanted.check()?;
        marker::publish(base, &self.staged("mark"), &self.name)?;
        let staged = self.staged("dir");
        match rename_new(&base.staging, &staged, &base.root, self.name.as_str()) {
            // There was one to adopt, or another call was faster; `stands` looks at what there is.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                or_missing(base.staging.remove_dir(&staged))?;
            }
            other => other?,
        }
        sync(&base.root)
    }

    /// Whether marker and directory are both there: a deletion beside this call takes the directory,
    /// then the marker, then looks for the directory again, so one of the two calls notices.
    fn stands(&self, base: &Base) -> io::Result<bool> {
        let there = entry(&base.root, self.name.as_str())? == Entry::Directory;
        Ok(there && marker::read(base, &self.name)?.is_some())
    }

    /// Takes back what [`Plan::stage`] made. If that fails as well, something is left.
    pub(super) fn undo(&self, base: &Base, error: NothingMade) -> MakeError {
        let mark = or_missing(base.staging.remove_file(self.staged("mark")));
        let dir = or_missing(base.staging.remove_dir(self.staged("dir")));
        match mark.and(dir) {
            Ok(()) => error.into(),
            Err(source) => {
                self.unknown(io::Error::new(source.kind(), format!("{error}; cleaning up: {source}")))
            }
        }
    }

    /// A name of this volume's and epoch's own, below `staging`.
    fn staged(&self, kind: &str) -> String {
        format!("{kind}.{}.{}", self.epoch, self.name)
    }

    pub(super) fn failed(&self, step: &'static str, source: io::Error) -> NothingMade {
        NothingMade::Io { name: self.name.clone(), step, source }
    }

    fn unknown(&self, source: io::Error) -> MakeError {
        MakeError::Unknown { name: self.name.clone(), source }
    }
}

/// Owner first: changing it may clear permission bits. Then the mode, past any umask. Then a look, because
/// a file system may say yes and do nothing. A base with the setgid bit passes on that and its group, as
/// it does to what is made in it directly.
pub(super) fn give(dir: &Dir, base: &Dir, access: Access) -> Result<(), (&'static str, io::Error)> {
    let owner = |error: rustix::io::Errno| ("setting its owner", error.into());
    let above = rustix::fs::fstat(base).map_err(owner)?;
    let setgid = above.st_mode & Mode::SGID.bits();
    let gid = access.gid.or((setgid != 0).then_some(above.st_gid));
    rustix::fs::fchown(dir, access.uid.map(Uid::from_raw), gid.map(Gid::from_raw)).map_err(owner)?;
    let mode = |error: rustix::io::Errno| ("setting its mode", error.into());
    let bits = Mode::from_raw_mode(access.mode | setgid);
    rustix::fs::fchmod(dir, bits).map_err(mode)?;
    let now = rustix::fs::fstat(dir).map_err(mode)?;
    let as_wanted = Mode::from_raw_mode(now.st_mode) == bits
        && access.uid.is_none_or(|uid| uid == now.st_uid)
        && gid.is_none_or(|gid| gid == now.st_gid);
    if as_wanted {
        return Ok(());
    }
    let got = format!("the file system made it {:04o}, {}:{}", now.st_mode & 0o7777, now.st_uid, now.st_gid);
    Err(("setting its owner and mode", io::Error::other(got)))
}
