//! What is reported of a series of measured times.

use std::time::Duration;

use serde::Serialize;

/// A series, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Series {
    /// The median.
    pub(super) p50: f64,
    /// 99 of 100 are at most this; with fewer than 100 the longest.
    pub(super) p99: f64,
    /// The longest.
    pub(super) max: f64,
    /// All, in the order in which they were measured.
    pub(super) seconds: Vec<f64>,
}

impl Series {
    /// Of these times; of none, zeros.
    #[must_use]
    pub(super) fn new(times: &[Duration]) -> Self {
        let seconds: Vec<f64> = times.iter().map(|time| to_millis(*time)).collect();
        let mut sorted = seconds.clone();
        sorted.sort_by(f64::total_cmp);
        Self { p50: rank(&sorted, 50), p99: rank(&sorted, 99), max: rank(&sorted, 100), seconds }
    }
}

fn to_millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000.0).round() / 1_000.0
}

/// The nearest rank: a time that was measured, never one between two.
fn rank(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len() * percent).div_ceil(100);
    sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

/// To hundredths: more says nothing of a machine.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_times() {
        let times: Vec<Duration> = (1..=20).rev().map(Duration::from_secs).collect();
        let series = Series::new(&times);
        assert_eq!((series.p50, series.p99, series.max), (10.0, 20.0, 20.0));
        assert_eq!(series.seconds.first(), Some(&20.0), "the order of measurement stays");
    }

    #[test]
    fn nothing_measured_is_zero() {
        assert_eq!(Series::new(&[]).max, 0.0);
    }
}
