//! The store went back in time: who found that out, whether the Lease tells it yet, and who must forget what they know.

use super::{Ending, Machine, Name, Stored};
use crate::clock::BootTime;

/// What showed that the store went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relapse {
    /// The Lease has a version older than one that was seen.
    Lease,
    /// An asset was made for a claim at this version, which the claims have not reached.
    Mark(u64),
}

/// What a Lease says of restores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Restored {
    /// Who found one out, when and how. While this stands, orphans are only reported.
    pub(crate) told: Option<Name>,
    /// The newest version that a mark carried from before one. It stays, so that such marks are not taken for
    /// another restore.
    pub(crate) from: u64,
}

impl Machine {
    /// The store went back in time: nothing that was known about the Lease holds any more.
    pub(super) fn go_back(&mut self) {
        self.own = None;
        self.doubtful.clear();
        self.relapsed(Relapse::Lease);
    }

    /// Takes in that the store went back. Where the Lease tells of it already, only the version is news.
    pub(crate) fn relapsed(&mut self, relapse: Relapse) {
        let told = self.stored().is_some_and(|stored| stored.restored.told.is_some());
        if relapse == Relapse::Lease || !told {
            self.forgets = true;
            self.end(Ending::Restored);
        }
        self.untold = Some(match (self.untold, relapse) {
            (Some(Relapse::Mark(known)), Relapse::Mark(new)) => Relapse::Mark(known.max(new)),
            (Some(mark @ Relapse::Mark(_)), Relapse::Lease) => mark,
            (_, relapse) => relapse,
        });
    }

    /// Reads what this version of the Lease, which is being absorbed, tells of restores. News of one concerns everybody
    /// who has seen the time before it.
    pub(super) fn hear_of_restores(&mut self, stored: &Stored) {
        let first_sight = self.newest == 0;
        let news = stored.restored.told.is_some() && stored.restored.told != self.heard;
        if news && !first_sight {
            self.forgets = true;
            self.end(Ending::Restored);
        }
        self.heard.clone_from(&stored.restored.told);
        let tells = |relapse: &mut Relapse| match relapse {
            Relapse::Lease => stored.restored.told.is_some(),
            Relapse::Mark(version) => stored.restored.told.is_some() && stored.restored.from >= *version,
        };
        self.untold.take_if(tells);
    }

    /// What the Lease is to tell and does not, and the Lease as it is.
    pub(crate) fn untold(&self) -> Option<(Relapse, &Stored)> {
        self.untold.zip(self.stored())
    }

    /// This replica wrote what was untold into the Lease, which is now so.
    pub(crate) fn told(&mut self, now: BootTime, stored: Stored) {
        self.heard.clone_from(&stored.restored.told);
        self.watched(now, stored);
    }

    /// Whether what is known of the store is to be forgotten, told once.
    pub(crate) fn take_forgets(&mut self) -> bool {
        std::mem::take(&mut self.forgets)
    }

    /// What is known of a restore that nobody has dealt with yet.
    pub(crate) fn restored(&self) -> Restored {
        let written = self.stored().map(|stored| stored.restored.clone()).unwrap_or_default();
        let unwritten = self.untold.map(|_| Name::from("found out just now"));
        Restored { told: written.told.or(unwritten), ..written }
    }
}
