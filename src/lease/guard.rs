//! Leadership as a value: the guard that is checked before every side effect, and its epoch.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::{BootTime, Clock},
    known_bugs::{self, Bug},
};

/// One uninterrupted leadership. A lease that lapsed and was taken again is a new epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// The resourceVersion of the write that acquired the Lease. Grows with every leadership.
    pub number: u64,
    /// The UID of the Lease object, so that epochs of a Lease that was made anew don't compare.
    pub lease_uid: Arc<str>,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// This replica does not lead (any more): nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not leading: the guard of epoch {epoch} has ended")]
pub struct NotLeading {
    /// The epoch that has ended.
    pub epoch: Epoch,
}

/// The permission to act, for as long as the Lease surely is ours. Clones share one end.
///
/// Whoever is about to change something outside this process asks [`remaining`](Self::remaining) first
/// and bounds its work by the answer. Renewal moves the end forward; an end that was reached is final.
#[derive(Clone)]
pub struct LeaderGuard(Arc<Inner>);

struct Inner {
    epoch: Epoch,
    /// Nanoseconds on `CLOCK_BOOTTIME` from which on the guard is void; zero once it was ended.
    valid_until: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl LeaderGuard {
    /// A guard of `epoch` that holds until `valid_until` unless it is extended.
    #[must_use]
    pub fn new(epoch: Epoch, valid_until: BootTime, clock: Arc<dyn Clock>) -> Self {
        let valid_until = AtomicU64::new(nanos(valid_until));
        Self(Arc::new(Inner { epoch, valid_until, clock }))
    }

    /// The leadership that this guard belongs to.
    #[must_use]
    pub fn epoch(&self) -> &Epoch {
        &self.0.epoch
    }

    /// How long the guard still holds.
    ///
    /// # Errors
    /// [`NotLeading`] when it has ended.
    pub fn remaining(&self) -> Result<Duration, NotLeading> {
        match self.left() {
            Some(left) => Ok(left),
            None if known_bugs::is(Bug::NoGuard) => Ok(Duration::from_secs(10)),
            None => Err(NotLeading { epoch: self.0.epoch.clone() }),
        }
    }

    /// How long the guard still holds, if it does.
    pub(super) fn left(&self) -> Option<Duration> {
        let now = nanos(self.0.clock.now());
        let left = self.0.valid_until.load(Ordering::Acquire).checked_sub(now)?;
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Whether the guard still holds.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.remaining().is_ok()
    }

    /// Moves the end of the guard to `valid_until` after a successful renewal. An earlier end than the
    /// present one is no change.
    ///
    /// # Errors
    /// [`NotLeading`] when it has ended already: what lapsed is never brought back to life.
    pub fn extend(&self, valid_until: BootTime) -> Result<(), NotLeading> {
        let now = nanos(self.0.clock.now());
        let until = nanos(valid_until);
        self.0
            .valid_until
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |end| (end > now).then_some(end.max(until)))
            .map(drop)
            .map_err(|_| NotLeading { epoch: self.0.epoch.clone() })
    }

    /// Ends the guard for all its clones, at once and for good.
    pub fn end(&self) {
        self.0.valid_until.store(0, Ordering::Release);
    }
}

impl fmt::Debug for LeaderGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderGuard")
            .field("epoch", &self.0.epoch.number)
            .field("remaining", &self.remaining().ok())
            .finish()
    }
}

fn nanos(time: BootTime) -> u64 {
    // 584 years of uptime fit.
    u64::try_from(time.since_boot().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct HandClock(AtomicU64);

    impl HandClock {
        fn set(&self, seconds: u64) {
            self.0.store(seconds, Ordering::SeqCst);
        }
    }

    impl Clock for HandClock {
        fn now(&self) -> BootTime {
            at(self.0.load(Ordering::SeqCst))
        }
    }

    fn at(seconds: u64) -> BootTime {
        BootTime::from_boot(Duration::from_secs(seconds))
    }

    fn guard_until(seconds: u64) -> (LeaderGuard, Arc<HandClock>) {
        let clock = Arc::new(HandClock::default());
        let epoch = Epoch { number: 7, lease_uid: "uid".into() };
        (LeaderGuard::new(epoch, at(seconds), clock.clone()), clock)
    }

    #[test]
    fn a_guard_holds_until_its_end_and_not_at_it() {
        let (guard, clock) = guard_until(10);
        clock.set(9);
        assert_eq!(guard.remaining(), Ok(Duration::from_secs(1)));
        clock.set(10);
        assert!(!guard.is_valid());
    }

    #[test]
    fn a_renewal_extends_every_clone() {
        let (guard, clock) = guard_until(10);
        let clone = guard.clone();
        guard.extend(at(20)).unwrap();
        clock.set(15);
        assert!(clone.is_valid());
        guard.extend(at(18)).unwrap();
        assert_eq!(clone.remaining(), Ok(Duration::from_secs(5)), "an end never moves back");
    }

    #[test]
    fn with_the_bug_of_no_guard_an_end_stops_nothing_and_is_not_hidden() {
        let (guard, clock) = guard_until(10);
        clock.set(11);
        known_bugs::testing::with(Bug::NoGuard, || assert!(guard.begin("provision").is_ok()));
        assert!(guard.begin("provision").is_err());
        assert_eq!(guard.left(), None);
    }

    #[test]
    fn what_lapsed_or_was_ended_stays_so() {
        let (guard, clock) = guard_until(10);
        clock.set(11);
        assert!(guard.extend(at(30)).is_err());
        let (guard, _) = guard_until(10);
        guard.end();
        assert!(guard.extend(at(30)).is_err());
        assert!(!guard.is_valid());
    }
}
