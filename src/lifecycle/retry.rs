//! When to try again: exponential backoff with jitter, the only one in the program.

use std::time::Duration;

/// How long to wait after the n-th failure in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
    /// Each wait is twice the one before. Otherwise all are `initial`.
    pub exponential: bool,
}

impl Backoff {
    /// 15 s, 30 s, 60 s … 1000 s: the Go library's numbers.
    pub const GO_LIBRARY: Self =
        Self { initial: Duration::from_secs(15), max: Duration::from_secs(1000), exponential: true };
    /// For writes that must get through as soon as the API server is well again.
    pub const API_WRITE: Self =
        Self { initial: Duration::from_millis(200), max: Duration::from_secs(10), exponential: true };
    /// For watches: the shortest wait is long enough that failing lists don't hammer the server, the
    /// longest short enough that an object is seen soon after the server is back.
    pub const WATCH: Self =
        Self { initial: Duration::from_millis(500), max: Duration::from_secs(2), exponential: true };

    /// The wait after `failures` failures in a row, at least one. `jitter` in 0..=1 takes up to a tenth
    /// off, so that keys that failed together don't come back together.
    #[must_use]
    pub fn wait(&self, failures: u32, jitter: f64) -> Duration {
        let doublings = if self.exponential { failures.saturating_sub(1).min(31) } else { 0 };
        let full = self.initial.saturating_mul(1_u32 << doublings).min(self.max);
        full.mul_f64(1.0 - 0.1 * jitter.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let seconds: Vec<u64> = (1..=9).map(|n| Backoff::GO_LIBRARY.wait(n, 0.0).as_secs()).collect();
        assert_eq!(seconds, [15, 30, 60, 120, 240, 480, 960, 1000, 1000]);
        let fixed = Backoff { exponential: false, ..Backoff::GO_LIBRARY };
        assert_eq!(fixed.wait(7, 0.0), Duration::from_secs(15));
    }

    proptest! {
        #[test]
        fn a_wait_never_leaves_its_bounds(failures in 0_u32.., jitter in -1.0..2.0_f64) {
            let wait = Backoff::GO_LIBRARY.wait(failures, jitter);
            prop_assert!(wait >= Duration::from_millis(13_500) && wait <= Duration::from_secs(1000));
        }
    }
}
