//! The API server's part in the model: one Lease, writes with or without a version, a third party.

use std::time::Duration;

use crate::{
    clock::BootTime,
    lease::machine::{Kind, Name, Release, Restored, Stamp, Stored},
};

/// One unit of the model's time.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// For so long a Lease must be seen unchanged.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// For so long a write makes its sender leader.
pub(super) const HOLD: Duration = Duration::from_secs(1);

/// The instant of a tick.
pub(super) fn at(tick: u8) -> BootTime {
    BootTime::from_boot(TICK * u32::from(tick))
}

/// What a wall clock shows at a tick that is `ahead` by so many microseconds.
pub(super) fn wall(tick: u8, ahead: i64) -> Stamp {
    Stamp(i64::from(tick) * 1_000_000 + ahead)
}

/// A write on its way to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Patch {
    pub(super) kind: Kind,
    pub(super) sender: Name,
    pub(super) stamp: Stamp,
    /// The version it must find; `None` is written in any case.
    pub(super) version: Option<u64>,
}

/// What somebody does who is no replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Meddling {
    /// Removes the holder.
    Clear,
    /// Deletes the Lease.
    Delete,
    /// Shortens its duration to nothing.
    Shorten,
    /// Writes the name of this replica into it.
    Name(usize),
    /// Puts back what stood in it before the last write.
    Restore,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub(super) version: u64,
    pub(super) lease: Option<Stored>,
    /// What stood in the Lease before the last write, for as long as a third party may put it back.
    pub(super) before: Option<Stored>,
    pub(super) remembers: bool,
}

impl Store {
    /// A Lease whose holder died before the model begins.
    pub(super) fn left_behind(remembers: bool) -> Self {
        let lease = Stored {
            version: 1,
            uid: "uid".into(),
            holder: Some("dead".into()),
            renewed: Some(Stamp(0)),
            duration: LEASE,
            released_by: None,
            provisioner: None,
            restored: Restored::default(),
        };
        Self { version: 1, lease: Some(lease), before: None, remembers }
    }

    fn write(&mut self, change: impl FnOnce(&mut Stored)) -> Option<Stored> {
        let lease = self.lease.as_mut()?;
        self.before = self.remembers.then(|| lease.clone());
        self.version += 1;
        lease.version = self.version;
        change(lease);
        Some(lease.clone())
    }

    /// Carries a PATCH out as a merge patch would be. `None` is 404 or 409.
    pub(super) fn apply(&mut self, patch: &Patch) -> Option<Stored> {
        let found = self.lease.as_ref()?.version;
        if patch.version.is_some_and(|wanted| wanted != found) {
            return None;
        }
        self.write(|lease| {
            lease.renewed = Some(patch.stamp);
            lease.duration = LEASE;
            match patch.kind {
                Kind::Renew => {}
                Kind::Acquire => {
                    lease.holder = Some(patch.sender.clone());
                    lease.released_by = None;
                }
                Kind::StepDown => {
                    lease.holder = None;
                    lease.released_by = Some(Release { holder: patch.sender.clone(), renewed: patch.stamp });
                }
            }
        })
    }

    /// Makes a vacant Lease where there is none.
    pub(super) fn make_vacant(&mut self) -> Option<Stored> {
        if self.lease.is_some() {
            return None;
        }
        self.version += 1;
        let vacant = Stored {
            version: self.version,
            uid: format!("uid-{}", self.version).into(),
            holder: None,
            renewed: None,
            duration: LEASE,
            released_by: None,
            provisioner: None,
            restored: Restored::default(),
        };
        self.lease = Some(vacant.clone());
        Some(vacant)
    }

    /// Nobody will meddle any more.
    pub(super) fn forget(&mut self) {
        self.remembers = false;
        self.before = None;
    }

    pub(super) fn meddle(&mut self, meddling: Meddling, name: Option<Name>) {
        match meddling {
            Meddling::Clear => drop(self.write(|lease| lease.holder = None)),
            Meddling::Shorten => drop(self.write(|lease| lease.duration = Duration::ZERO)),
            Meddling::Name(_) => drop(self.write(|lease| lease.holder = name)),
            Meddling::Restore => {
                if let Some(before) = self.before.take() {
                    self.write(|lease| *lease = Stored { version: lease.version, ..before });
                }
            }
            Meddling::Delete => {
                if self.lease.take().is_some() {
                    self.version += 1;
                }
            }
        }
    }
}
