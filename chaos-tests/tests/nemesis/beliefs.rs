//! When replicas believed to lead, by their own records, on `CLOCK_MONOTONIC_RAW`.

use std::{collections::BTreeMap, time::Duration};

use chaos_tests::replica::Replica;
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
pub struct Belief {
    pub epoch: u64,
    /// In nanoseconds.
    pub from: u64,
    pub until: u64,
    /// When it was last extended, and how long it then had left by the leader's own clock.
    pub extended: (u64, u64),
}

impl Belief {
    /// How long it went on after it was last extended, and how long its leader's clock said that would be.
    pub fn tail(&self) -> (Duration, Duration) {
        let (at, left) = self.extended;
        (Duration::from_nanos(self.until - at), Duration::from_nanos(left))
    }
}

/// The leaderships of a replica whose clock runs at `rate`, in their order.
pub fn of(replica: &Replica, rate: f64) -> Vec<Belief> {
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
        extended: (last.at, last.left),
    }
}

/// Checks that no two believed to lead at a time; how many leaderships there were.
pub fn check_apart(mut all: Vec<Belief>) -> usize {
    all.sort_by_key(|belief| belief.from);
    for pair in all.windows(2) {
        assert!(
            pair[0].until <= pair[1].from && pair[0].epoch < pair[1].epoch,
            "two led at a time: {pair:?}"
        );
    }
    all.len()
}
