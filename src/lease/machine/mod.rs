//! The lease protocol as a pure state machine: reads, write answers and watch events go in with the time,
//! what kube-leader-election may be shown and how long this replica leads comes out.
//!
//! No IO, no clock, no encoding: the layer (production) and the model (tests) drive the same code.

mod judge;
#[cfg(test)]
pub(super) mod mistakes;
mod relapse;
mod stored;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use crate::clock::BootTime;

pub(crate) use relapse::{Relapse, Restored};
pub(crate) use stored::{Name, Release, Stamp, Stored};

/// Whether a test has switched this mistake on. Never, in any other build.
macro_rules! slips {
    ($machine:expr, $mistake:ident) => {{
        #[cfg(test)]
        let slips = $machine.who().mistakes.contain(crate::lease::machine::mistakes::Mistake::$mistake);
        #[cfg(not(test))]
        let slips = false;
        slips
    }};
}
pub(crate) use slips;

/// Who contests, and for how long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) me: Name,
    pub(crate) provisioner: Name,
    /// Without a change for so long, a Lease is free.
    pub(crate) lease: Duration,
    /// For so long after it was sent, a write of ours makes us leader.
    pub(crate) hold: Duration,
    #[cfg(test)]
    pub(crate) mistakes: mistakes::Mistakes,
    /// By how much the wall clock is ahead, in microseconds, for the mistake of looking at it.
    #[cfg(test)]
    pub(crate) wall_ahead: i64,
}

/// What kube-leader-election is shown in place of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shown {
    /// Its own: it renews, or steps down.
    Mine,
    /// A foreign holder whose time is over: it acquires, a new transition.
    Free,
    /// A foreign holder whose time is not over: it waits.
    Held,
    /// There is no Lease. A vacant one is to be made, which it is then shown as [`Held`](Self::Held).
    Absent,
}

/// What a write does to the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    StepDown,
}

/// Identifies a write until its fate is known: the `renewTime` it carries, which no two writes share.
pub(crate) type WriteId = Stamp;

/// How a write ended, as far as one can tell.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// Written; this is what is stored now.
    Written(Stored),
    /// Surely not written.
    Refused,
    /// It may have been written, or may still be: no answer, a 5xx, a 409.
    Unknown,
}

/// One leadership: what a guard is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    /// The resourceVersion of the write that acquired the Lease.
    pub(crate) number: u64,
    pub(crate) lease_uid: Name,
    pub(crate) valid_until: BootTime,
}

/// Why a leadership ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    /// Its time ran out without a renewal.
    Lapsed,
    /// Somebody else wrote into the Lease: this holder stands in it now.
    Overwritten(Option<Name>),
    /// The Lease is gone.
    Deleted,
    /// The Lease has a version older than one seen before: the API server's store was restored.
    Restored,
    /// The Lease says that it belongs to another provisioner.
    OtherProvisioner(Name),
    /// This replica gave it up.
    GivenUp,
}

/// A PATCH was about to be sent that no read allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAllowed;

/// The newest version known when a read was sent. An answer below it means that the store went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(u64);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sighting {
    lease: Stored,
    first_seen: BootTime,
    free_at: BootTime,
}

/// The newest write of ours that surely was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Own {
    version: u64,
    stamp: Stamp,
}

/// A write whose fate is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Write {
    kind: Kind,
    stamp: Stamp,
    sent_at: BootTime,
}

/// The protocol's state in one replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Machine {
    who: Arc<Candidate>,
    /// The newest version of the Lease that anything has told of.
    newest: u64,
    sighting: Option<Sighting>,
    /// The Lease is not free before this instant, whatever has replaced the version that said so.
    carried: BootTime,
    /// What the last read was shown as, and its version: the one write it allows builds on it.
    base: Option<(u64, Shown)>,
    own: Option<Own>,
    doubtful: Vec<Write>,
    term: Option<Term>,
    stepping_down: bool,
    ending: Option<Ending>,
    /// That the store went back, as long as the Lease does not tell it.
    untold: Option<Relapse>,
    /// What the Lease last told of a restore.
    heard: Option<Name>,
    /// The store went back, and nobody has been told to forget what it was yet.
    forgets: bool,
}

impl std::hash::Hash for Candidate {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.me.hash(state);
    }
}

impl Machine {
    pub(crate) fn new(who: Arc<Candidate>) -> Self {
        Self {
            who,
            newest: 0,
            sighting: None,
            carried: BootTime::default(),
            base: None,
            own: None,
            doubtful: Vec::new(),
            term: None,
            stepping_down: false,
            ending: None,
            untold: None,
            heard: None,
            forgets: false,
        }
    }

    pub(crate) fn who(&self) -> &Candidate {
        &self.who
    }

    /// A GET is about to be sent.
    pub(crate) fn begin_read(&mut self) -> Ticket {
        self.base = None;
        Ticket(self.newest)
    }

    /// The GET of `ticket` was answered: with this Lease, or with none. Decides what it is shown as.
    pub(crate) fn end_read(&mut self, now: BootTime, ticket: Ticket, found: Option<Stored>) -> Shown {
        self.lapse(now);
        let outrun = self.newest > ticket.0;
        let Some(stored) = found else {
            // A watch event that came while the answer was under way knows better.
            return if outrun { Shown::Held } else { self.vanish(now) };
        };
        if stored.version < ticket.0 {
            self.go_back();
        } else if stored.version < self.newest {
            return Shown::Held;
        }
        let version = stored.version;
        self.absorb(now, stored);
        let shown = self.shown(now);
        self.base = Some((version, shown));
        shown
    }

    /// A watch told of a version of the Lease. Nothing that is not newer than all that is known counts:
    /// watches lag behind our own writes.
    pub(crate) fn watched(&mut self, now: BootTime, stored: Stored) {
        self.lapse(now);
        if stored.version > self.newest {
            self.absorb(now, stored);
        }
    }

    /// A watch told that the Lease was deleted, at this version.
    pub(crate) fn watched_deletion(&mut self, now: BootTime, version: u64) {
        self.lapse(now);
        if version > self.newest {
            self.newest = version;
            self.vanish(now);
        }
    }

    /// A write is about to be sent. Answers the version that it must find, if the last read allows it.
    pub(crate) fn begin_write(&mut self, now: BootTime, kind: Kind, stamp: Stamp) -> Result<u64, NotAllowed> {
        self.lapse(now);
        let (version, shown) = self.base.take().ok_or(NotAllowed)?;
        if !self.allows(kind, shown) {
            return Err(NotAllowed);
        }
        let hold = self.who.hold;
        self.doubtful.retain(|write| write.sent_at + hold > now);
        self.doubtful.push(Write { kind, stamp, sent_at: now });
        Ok(version)
    }

    fn allows(&self, kind: Kind, shown: Shown) -> bool {
        let contesting = !self.stepping_down || slips!(self, RenewalBesideStepDown);
        match kind {
            Kind::Acquire => shown == Shown::Free && self.term.is_none() && contesting,
            Kind::Renew => shown == Shown::Mine && self.term.is_some() && contesting,
            Kind::StepDown => shown == Shown::Mine && self.stepping_down,
        }
    }

    /// A `renewTime` for a write at the wall-clock instant `wall`, unlike that of any other write of ours
    /// whose `renewTime` may still be found in the Lease.
    pub(crate) fn fresh_stamp(&self, wall: Stamp) -> Stamp {
        let used = |stamp| {
            self.doubtful.iter().any(|write| write.stamp == stamp)
                || self.own.is_some_and(|own| own.stamp == stamp)
        };
        let mut stamp = wall;
        while used(stamp) {
            stamp.0 = stamp.0.wrapping_add(1);
        }
        stamp
    }

    /// The write `id` ended so.
    pub(crate) fn end_write(&mut self, now: BootTime, id: WriteId, fate: Fate) {
        self.lapse(now);
        match fate {
            Fate::Written(stored) => self.written(now, id, stored),
            Fate::Refused => self.doubtful.retain(|write| write.stamp != id),
            Fate::Unknown => {}
        }
    }

    /// Time passed: a leadership that ran out ends.
    pub(crate) fn lapse(&mut self, now: BootTime) {
        if self.carried <= now {
            self.carried = BootTime::default();
        }
        if self.term.as_ref().is_some_and(|term| term.valid_until <= now) {
            self.end(Ending::Lapsed);
        }
    }

    /// Ends the leadership by our own will. From here on nothing is renewed or acquired, only released.
    pub(crate) fn step_down(&mut self) {
        self.stepping_down = true;
        if !slips!(self, RenewalBesideStepDown) {
            self.end(Ending::GivenUp);
        }
    }

    /// Ends the leadership without giving the Lease back: it runs its time.
    pub(crate) fn abandon(&mut self) {
        self.end(Ending::GivenUp);
    }

    /// Whether the Lease may be ours: it is, or a write is under way that would make it so.
    pub(crate) fn may_hold(&self) -> bool {
        let own = self.stored().is_some_and(|stored| self.is_own(stored));
        own || !self.doubtful.is_empty()
    }

    /// The present leadership, if there is one. It still has to be compared with the time.
    pub(crate) fn term(&self) -> Option<&Term> {
        self.term.as_ref()
    }

    /// Why the last leadership ended, told once.
    pub(crate) fn take_ending(&mut self) -> Option<Ending> {
        self.ending.take()
    }

    /// Who stands in the Lease, as far as is known.
    pub(crate) fn holder(&self) -> Option<&Name> {
        self.sighting.as_ref()?.lease.holder.as_ref()
    }

    /// The newest version of the Lease that was seen, `None` when there is no Lease.
    pub(crate) fn stored(&self) -> Option<&Stored> {
        self.sighting.as_ref().map(|sighting| &sighting.lease)
    }

    /// The other provisioner that the Lease says it belongs to, if it does.
    pub(crate) fn other_provisioner(&self) -> Option<&Name> {
        let named = self.sighting.as_ref()?.lease.provisioner.as_ref()?;
        (*named != self.who.provisioner).then_some(named)
    }

    /// How long the Lease says that it lasts, when that is longer than any lease may be.
    pub(crate) fn absurd_duration(&self) -> Option<Duration> {
        let duration = self.sighting.as_ref()?.lease.duration;
        (self.term.is_none() && duration > super::timing::LONGEST_LEASE).then_some(duration)
    }

    /// When the Lease was last seen to change, and from when on it may be taken unless it changes again.
    pub(crate) fn free_from(&self) -> Option<(BootTime, BootTime)> {
        let sighting = self.sighting.as_ref()?;
        let free_at = if self.is_own(&sighting.lease) { sighting.first_seen } else { sighting.free_at };
        Some((sighting.first_seen, free_at))
    }
}
