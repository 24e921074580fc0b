//! When replicas believed to lead, by their own records, on `CLOCK_MONOTONIC_RAW`.

use std::collections::BTreeMap;

use chaos_tests::{chaos::history, replica::Replica};
use serde::Deserialize;

/// A line of a replica's record.
#[derive(Debug, Deserialize)]
struct Line {
    at: u64,
    left: u64,
    epoch: u64,
}

/// One leadership as its leader saw it.
#[derive(Debug)]
pub(crate) struct Belief {
    pub(crate) epoch: u64,
    /// In nanoseconds.
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// The leaderships of a replica whose clock runs at `rate`, in their order.
pub(crate) fn of(replica: &Replica, rate: f64) -> Vec<Belief> {
    let mut lines: BTreeMap<u64, Vec<Line>> = BTreeMap::new();
    for text in replica.log_text().unwrap().lines() {
        if text.contains("kube_provisioner::history") && text.contains("\"believes\"") {
            let line: Line = serde_json::from_str(text).unwrap();
            lines.entry(line.epoch).or_default().push(line);
        }
    }
    lines.into_values().map(|lines| belief(&lines, rate)).collect()
}

fn belief(lines: &[Line], rate: f64) -> Belief {
    let last = lines.iter().rfind(|line| line.left > 0).unwrap();
    let by_itself = last.at + (last.left as f64 / rate) as u64;
    let ended = lines.iter().find(|line| line.left == 0);
    Belief {
        epoch: last.epoch,
        from: lines[0].at,
        until: ended.map_or(by_itself, |line| line.at.min(by_itself)),
    }
}

/// Checks that no two believed to lead at a time; how many leaderships there were.
pub(crate) fn check_apart(mut all: Vec<Belief>) -> usize {
    all.sort_by_key(|belief| belief.from);
    for pair in all.windows(2) {
        assert!(
            pair[0].until <= pair[1].from && pair[0].epoch < pair[1].epoch,
            "two led at a time: {pair:?}"
        );
    }
    all.len()
}

/// At which rate the clock runs by which a replica's guard expires: from what was left of it at two things that the
/// replica began, one soon after the other.
pub(crate) fn rate(replica: &Replica) -> f64 {
    let begun = history::read(&replica.log_text().unwrap());
    // If the guard was extended in between, more is left.
    let mut rates: Vec<f64> = begun
        .windows(2)
        .filter(|pair| pair[1].left < pair[0].left && pair[1].at > pair[0].at + 2_000_000)
        .map(|pair| (pair[0].left - pair[1].left) as f64 / (pair[1].at - pair[0].at) as f64)
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
