//! The one clock of the program: instants on `CLOCK_BOOTTIME`, and who may ask for them.
//!
//! Wall-clock time lives elsewhere (it is data, never a basis for a decision about leadership).

use std::{
    fmt::Debug,
    ops::{Add, Sub},
    sync::Arc,
    time::Duration,
};

use nix::time::ClockId;

/// An instant on `CLOCK_BOOTTIME`, as the time since the machine was started.
///
/// [`std::time::Instant`] stands still while a machine is suspended, so a lease that ran out during a
/// suspend would look valid afterwards. This clock goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(Duration);

impl BootTime {
    /// The instant `since_boot` after the machine was started.
    #[must_use]
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// How long after the start of the machine this instant lies.
    #[must_use]
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this instant, zero if `earlier` lies after it.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Sub<Duration> for BootTime {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}

/// Where the time comes from. Injected, so that every rule about time is tested without waiting.
pub trait Clock: Send + Sync + Debug + 'static {
    /// The present instant. Never goes back.
    fn now(&self) -> BootTime;
}

/// The machine's own `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The clock behind the pointer that is handed around.
    #[must_use]
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> BootTime {
        // Asked of the C library, not of the kernel itself: there a test can put it wrong.
        let time = nix::time::clock_gettime(ClockId::CLOCK_BOOTTIME);
        // No kernel refuses this. If one did, every guard would have ended.
        BootTime(time.map_or(Duration::MAX, Duration::from))
    }
}

/// A number in 0..1 that differs between callers and calls, to spread what would happen at once.
#[must_use]
pub fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    // Each RandomState has keys of its own; hashing nothing shows them. 53 bits fill an f64.
    let bits = RandomState::new().hash_one(()) >> 11;
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let fraction = bits as f64 / (1_u64 << 53) as f64;
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_in_bounds_and_varies() {
        let values: Vec<f64> = (0..100).map(|_| jitter()).collect();
        assert!(values.iter().all(|value| (0.0..1.0).contains(value)));
        assert!(values.iter().any(|value| value != &values[0]));
    }

    #[test]
    fn the_system_clock_goes_forward_and_counts_from_boot() {
        let first = SystemClock.now();
        let second = SystemClock.now();
        assert!(second >= first);
        assert!(first.since_boot() > Duration::ZERO);
    }

    #[test]
    fn spans_saturate_instead_of_overflowing() {
        let early = BootTime::from_boot(Duration::from_secs(1));
        let late = early + Duration::from_secs(2);
        assert_eq!(late.saturating_since(early), Duration::from_secs(2));
        assert_eq!(early.saturating_since(late), Duration::ZERO);
        assert_eq!(early - Duration::from_secs(5), BootTime::default());
        assert_eq!((late + Duration::MAX).since_boot(), Duration::MAX);
    }
}
