//! The durations of a lease, the two profiles, and the relations that must hold between them.

use std::time::Duration;

/// How long a lease lasts, how long its holder relies on it, and how often it is renewed.
///
/// `renew < hold < lease`, with room for failed attempts between the first two and for clocks that run at
/// different rates between the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    lease: Duration,
    hold: Duration,
    renew: Duration,
}

/// The longest lease that is accepted. A stored duration above it is nobody's lease but a mistake.
pub(super) const LONGEST_LEASE: Duration = Duration::from_secs(300);

/// At least so many attempts to renew must fit into one hold.
const ATTEMPTS_PER_HOLD: u32 = 3;

/// A refused [`LeaseTiming`]: which value, and which rule it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The Lease object stores whole seconds.
    #[error("lease duration {0:?} is not a whole number of seconds: a Lease stores nothing finer")]
    NotWholeSeconds(Duration),
    /// Too short or too long.
    #[error("lease duration {0:?} is out of range: it must be from 1s to {LONGEST_LEASE:?}")]
    OutOfRange(Duration),
    /// No room for clocks that run at different rates.
    #[error("hold {hold:?} is too long for a lease of {lease:?}: 1.1 x hold must not exceed it")]
    HoldTooLong {
        /// The refused hold.
        hold: Duration,
        /// The lease that it must fit into.
        lease: Duration,
    },
    /// No room for failed attempts.
    #[error(
        "renew period {renew:?} does not fit a hold of {hold:?}: it must be above 0, at most a third of it"
    )]
    RenewTooSlow {
        /// The refused period.
        renew: Duration,
        /// The hold that it must fit into several times.
        hold: Duration,
    },
}

impl LeaseTiming {
    /// 15 s lease, 10 s hold, a renewal every 2 s: the numbers of the Go library.
    pub const DEFAULT: Self =
        Self { lease: Duration::from_secs(15), hold: Duration::from_secs(10), renew: Duration::from_secs(2) };

    /// 3 s lease, 2.25 s hold, a renewal every 0.75 s, for an API server that is near and well.
    pub const FAST: Self = Self {
        lease: Duration::from_secs(3),
        hold: Duration::from_millis(2_250),
        renew: Duration::from_millis(750),
    };

    /// Durations of one's own.
    ///
    /// # Errors
    /// [`TimingError`] names the value that breaks a rule, and the rule.
    pub fn new(lease: Duration, hold: Duration, renew: Duration) -> Result<Self, TimingError> {
        if lease.subsec_nanos() != 0 {
            return Err(TimingError::NotWholeSeconds(lease));
        }
        if lease.is_zero() || lease > LONGEST_LEASE {
            return Err(TimingError::OutOfRange(lease));
        }
        if hold.saturating_mul(11) > lease.saturating_mul(10) {
            return Err(TimingError::HoldTooLong { hold, lease });
        }
        if renew.is_zero() || renew.saturating_mul(ATTEMPTS_PER_HOLD) > hold {
            return Err(TimingError::RenewTooSlow { renew, hold });
        }
        Ok(Self { lease, hold, renew })
    }

    /// For how long others must see no change of the Lease before they may take it.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// For how long the holder relies on a write of its own, counted from when it was sent.
    #[must_use]
    pub const fn hold(&self) -> Duration {
        self.hold
    }

    /// The time between two renewals.
    #[must_use]
    pub const fn renew(&self) -> Duration {
        self.renew
    }

    /// The longest that one attempt (a read and a write, connecting included) may take.
    #[must_use]
    pub fn attempt(&self) -> Duration {
        self.hold / 4
    }

    /// The pause after an attempt that failed: short, so that several attempts fit into what is left.
    #[must_use]
    pub fn retry(&self) -> Duration {
        self.renew / 4
    }
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    fn timing(lease: u64, hold: u64, renew: u64) -> Result<LeaseTiming, TimingError> {
        LeaseTiming::new(millis(lease), millis(hold), millis(renew))
    }

    #[test]
    fn both_profiles_hold_to_the_rules() {
        for profile in [LeaseTiming::DEFAULT, LeaseTiming::FAST] {
            assert_eq!(LeaseTiming::new(profile.lease, profile.hold, profile.renew), Ok(profile));
        }
    }

    #[test]
    fn every_broken_rule_names_its_value() {
        assert_eq!(timing(2_500, 2_000, 500), Err(TimingError::NotWholeSeconds(millis(2_500))));
        assert_eq!(timing(0, 0, 0), Err(TimingError::OutOfRange(millis(0))));
        assert_eq!(timing(301_000, 100_000, 10_000), Err(TimingError::OutOfRange(millis(301_000))));
        assert!(matches!(timing(10_000, 9_200, 1_000), Err(TimingError::HoldTooLong { .. })));
        assert!(matches!(timing(15_000, 10_000, 4_000), Err(TimingError::RenewTooSlow { .. })));
        assert!(matches!(timing(15_000, 10_000, 0), Err(TimingError::RenewTooSlow { .. })));
        assert!(timing(1_000, 900, 300).is_ok(), "the shortest lease that a Lease can store");
    }

    #[test]
    fn several_attempts_fit_into_what_is_left_after_a_renewal_was_due() {
        for profile in [LeaseTiming::DEFAULT, LeaseTiming::FAST] {
            let left = profile.hold - profile.renew;
            assert!((profile.attempt() + profile.retry()) * 2 <= left, "{profile:?}");
        }
    }
}
