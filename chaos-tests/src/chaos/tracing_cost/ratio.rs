//! What rounds say about a ratio: the median, and how far it may be from the truth. Pure.

use serde::Serialize;

/// Whether a ratio keeps a promise. The worse, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// It does.
    Holds,
    /// The rounds differ too much to tell.
    Undecided,
    /// It does not.
    Missed,
}

/// With fewer rounds not even the smallest and the largest enclose the median in 19 of 20 series.
const ENOUGH: usize = 6;

/// The ratios of a series of rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    rounds: usize,
    median: f64,
    /// The true median lies from `low` to `high`, in 19 of 20 such series.
    low: f64,
    high: f64,
    smallest: f64,
    largest: f64,
}

impl Ratio {
    pub(super) fn of(rounds: impl Iterator<Item = f64>) -> Self {
        let sorted = sorted(rounds);
        let rank =
            |rank: usize| sorted.get(rank.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default();
        // How many of n rounds fall below the median is binomial: n/2 with a deviation of sqrt(n)/2.
        let (n, margin) = (sorted.len() as f64, 0.98 * (sorted.len() as f64).sqrt());
        let (low, high) = ((n / 2.0 - margin).floor().max(0.0), (n / 2.0 + margin).ceil());
        Self {
            rounds: sorted.len(),
            median: middle(&sorted),
            low: rank(low as usize),
            high: rank(high as usize),
            smallest: rank(0),
            largest: rank(usize::MAX),
        }
    }

    /// Whether it is at most `promise`.
    pub(super) fn verdict(&self, promise: f64) -> Verdict {
        match self {
            Self { rounds: ..ENOUGH, .. } => Verdict::Undecided,
            Self { high, .. } if *high <= promise => Verdict::Holds,
            Self { low, .. } if *low > promise => Verdict::Missed,
            _ => Verdict::Undecided,
        }
    }
}

pub(super) fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    middle(&sorted(numbers))
}

fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// One of the numbers: of two in the middle the greater.
fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_numbers() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn many_rounds_tell_more_than_few() {
        let rounds = |count: usize| (0..count).map(|n| 1.0 + 0.2 * (n % 10) as f64 / 9.0);
        let (few, many) = (Ratio::of(rounds(10)), Ratio::of(rounds(1_000)));
        assert!(few.low < many.low && many.high < few.high, "{few:?} {many:?}");
        assert!(many.low > 1.05 && many.high < 1.15, "{many:?}");
        assert_eq!((many.smallest, many.largest), (1.0, 1.2));
    }

    #[test]
    fn a_promise_within_the_spread_is_undecided() {
        let ratio = Ratio::of((0..20).map(|n| 1.0 + f64::from(n) / 100.0));
        assert_eq!(ratio.verdict(1.20), Verdict::Holds);
        assert_eq!(ratio.verdict(1.10), Verdict::Undecided);
        assert_eq!(ratio.verdict(1.01), Verdict::Missed);
    }

    #[test]
    fn few_rounds_never_decide_by_themselves() {
        let ratio = |rounds: usize| Ratio::of(std::iter::repeat_n(1.0, rounds));
        assert_eq!(ratio(5).verdict(1.1), Verdict::Undecided);
        assert_eq!(ratio(6).verdict(1.1), Verdict::Holds);
    }
}
