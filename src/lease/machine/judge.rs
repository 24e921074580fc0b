//! The judgements of the machine: what a version of the Lease proves, and what follows from it.

use super::{Ending, Fate, Kind, Machine, Own, Shown, Sighting, Stored, Term, Write, WriteId, slips};
use crate::{clock::BootTime, lease::timing::LONGEST_LEASE};

impl Machine {
    /// Takes in a version of the Lease that is at least as new as all that is known.
    pub(super) fn absorb(&mut self, now: BootTime, stored: Stored) {
        self.hear_of_restores(&stored);
        self.sight(now, &stored);
        if let Some(write) = self.proven_by(now, &stored) {
            self.adopt(now, write, &stored);
        } else if self.is_own_but_edited(&stored) {
            self.own = self.own.map(|own| Own { version: stored.version, ..own });
        } else if !self.is_own(&stored) {
            self.own = None;
            self.end(Ending::Overwritten(stored.holder.clone()));
        }
        if let Some(other) = self.other_provisioner().cloned() {
            self.end(Ending::OtherProvisioner(other));
        }
    }

    /// Our own observation: a Lease is free when its version has not changed for long enough, counted from
    /// when *we* first saw it, or at once when a replica of ours gave it up.
    fn sight(&mut self, now: BootTime, stored: &Stored) {
        self.newest = stored.version;
        if self.sighting.as_ref().is_some_and(|sighting| sighting.lease.version == stored.version) {
            return;
        }
        self.carry(now);
        let given_up = stored.is_released() || (stored.holder.is_none() && slips!(self, AnyEmptyingIsFree));
        let free_at = if given_up { now } else { self.runs_out(now, stored) };
        self.sighting = Some(Sighting { lease: stored.clone(), first_seen: now, free_at });
    }

    fn runs_out(&self, now: BootTime, stored: &Stored) -> BootTime {
        #[cfg(test)]
        if slips!(self, ForeignClock) {
            return self.runs_out_by_the_wall_clock(stored);
        }
        (now + stored.duration.max(self.who.lease)).max(self.carried)
    }

    /// Who shortens, empties or deletes a Lease does not shorten what its holder was promised. A duration
    /// that no candidate can have asked for was promised to nobody: it is forgotten once it is put right.
    fn carry(&mut self, now: BootTime) {
        let Some(sighting) = &self.sighting else { return };
        if sighting.lease.duration <= LONGEST_LEASE && sighting.free_at > now {
            self.carried = self.carried.max(sighting.free_at);
        }
    }

    /// The Lease is gone.
    pub(super) fn vanish(&mut self, now: BootTime) -> Shown {
        self.carry(now);
        self.sighting = None;
        self.own = None;
        self.end(Ending::Deleted);
        Shown::Absent
    }

    /// A write of ours without an answer that this version shows to have been written: it carries that very
    /// write's `renewTime`. That the holder is us proves nothing, a renewal never writes the holder. And
    /// after the hold it proves nothing either: others may have led since, and somebody put this back.
    fn proven_by(&mut self, now: BootTime, stored: &Stored) -> Option<Write> {
        let (me, hold) = (self.who.me.clone(), self.who.hold);
        let proven = |write: &Write| {
            write.kind != Kind::StepDown
                && write.sent_at + hold > now
                && stored.is_held_by(&me)
                && (stored.renewed == Some(write.stamp) || slips!(self, HolderIsProof))
        };
        let at = self.doubtful.iter().rposition(proven)?;
        Some(self.doubtful.remove(at))
    }

    pub(super) fn is_own(&self, stored: &Stored) -> bool {
        self.own.is_some_and(|own| own.version == stored.version && stored.renewed == Some(own.stamp))
    }

    /// Somebody has edited other fields of a Lease that surely is ours still: while our own deadline has
    /// not passed nobody else can have taken it, and with our last `renewTime` it is our last write.
    fn is_own_but_edited(&self, stored: &Stored) -> bool {
        self.term.is_some()
            && stored.is_held_by(&self.who.me)
            && self.own.is_some_and(|own| stored.renewed == Some(own.stamp))
    }

    /// A write that surely was written makes us leader until its hold, counted from when it was sent, is
    /// over. One that is found out about too late makes nobody leader.
    fn adopt(&mut self, now: BootTime, write: Write, stored: &Stored) {
        self.own = Some(Own { version: stored.version, stamp: write.stamp });
        if self.stepping_down && !slips!(self, RenewalBesideStepDown) {
            return;
        }
        let valid_until = self.holds_until(now, write);
        if valid_until <= now {
            return;
        }
        match &mut self.term {
            Some(term) => term.valid_until = term.valid_until.max(valid_until),
            None => {
                let (number, lease_uid) = (stored.version, stored.uid.clone());
                self.term = Some(Term { number, lease_uid, valid_until });
            }
        }
    }

    fn holds_until(&self, now: BootTime, write: Write) -> BootTime {
        if slips!(self, NoDeadline) {
            return now + std::time::Duration::MAX;
        }
        let since = if slips!(self, DeadlineFromAnswer) { now } else { write.sent_at };
        since + self.who.hold
    }

    /// A write was answered as written. What is known to have happened after it outweighs the answer.
    pub(super) fn written(&mut self, now: BootTime, id: WriteId, stored: Stored) {
        let sent = self.doubtful.iter().position(|write| write.stamp == id);
        let sent = sent.map(|at| self.doubtful.remove(at));
        let unchecked = slips!(self, HolderUnchecked);
        if stored.version < self.newest && !unchecked {
            return;
        }
        let ours = stored.is_held_by(&self.who.me) && stored.renewed == Some(id);
        match sent {
            Some(write) if ours || unchecked => {
                self.sight(now, &stored);
                self.adopt(now, write, &stored);
            }
            _ => self.absorb(now, stored),
        }
    }

    /// What kube-leader-election is shown of the version that was just absorbed.
    pub(super) fn shown(&self, now: BootTime) -> Shown {
        let Some(sighting) = &self.sighting else { return Shown::Absent };
        let own = self.is_own(&sighting.lease) && sighting.lease.is_held_by(&self.who.me);
        if self.other_provisioner().is_some() {
            Shown::Held
        } else if own && (self.term.is_some() || self.stepping_down) {
            Shown::Mine
        } else if own || now >= sighting.free_at {
            // Our own lapsed lease that nobody has touched: free at once, but a new transition and epoch.
            Shown::Free
        } else {
            Shown::Held
        }
    }

    pub(super) fn end(&mut self, ending: Ending) {
        if self.term.take().is_some() {
            self.ending = Some(ending);
        }
    }

    /// The same state with the time moved from `now` to `to` and with what no rule looks at forgotten, so
    /// that a model meets it again.
    #[cfg(test)]
    pub(crate) fn rebased(mut self, now: BootTime, to: BootTime) -> Self {
        let hold = self.who.hold;
        let shift = |time: BootTime| to + time.saturating_since(now) - now.saturating_since(time);
        self.carried = if self.carried > now { shift(self.carried) } else { BootTime::default() };
        self.doubtful.retain(|write| write.sent_at + hold > now);
        self.doubtful.iter_mut().for_each(|write| write.sent_at = shift(write.sent_at));
        if let Some(term) = &mut self.term
            && term.valid_until.since_boot() < std::time::Duration::MAX
        {
            term.valid_until = shift(term.valid_until);
        }
        let by_the_wall_clock = slips!(self, ForeignClock);
        if let Some(sighting) = &mut self.sighting {
            sighting.first_seen = BootTime::default();
            if sighting.free_at <= now {
                sighting.free_at = BootTime::default();
            } else if !by_the_wall_clock {
                sighting.free_at = shift(sighting.free_at);
            }
        }
        self
    }

    #[cfg(test)]
    fn runs_out_by_the_wall_clock(&self, stored: &Stored) -> BootTime {
        use std::time::Duration;
        let renewed = stored.renewed.map_or(0, |stamp| stamp.0) - self.who.wall_ahead;
        BootTime::from_boot(Duration::from_micros(u64::try_from(renewed).unwrap_or(0))) + stored.duration
    }
}

impl Fate {
    /// The fate of a write whose answer has this HTTP status, when the answer is not a Lease.
    pub(crate) const fn of_status(status: u16) -> Self {
        match status {
            // 409 also answers a write that was applied and then sent again by something in between.
            409 | 408 => Self::Unknown,
            400..=499 => Self::Refused,
            _ => Self::Unknown,
        }
    }
}
