//! The clock of all histories: the same for every process of the machine, and never faked or set.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on `CLOCK_MONOTONIC_RAW`.
#[must_use]
pub fn raw_nanos() -> u64 {
    let now = clock_gettime(ClockId::MonotonicRaw);
    let nanos = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    nanos.try_into().unwrap_or_default()
}
