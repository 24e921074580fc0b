//! What replicas of ours began, and under which epoch, as the history lines of their logs tell it: on
//! `CLOCK_MONOTONIC_RAW`, which is one clock for all of them and which nothing here fakes.

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::cast::Candidate;

/// The variable that asks a replica for the lines.
pub const ASKED: (&str, &str) = ("KUBE_PROVISIONER_LOG_LEVEL", "info,kube_provisioner::history=debug");

/// Something that a leader began.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Begun {
    /// When, in nanoseconds.
    pub at: u64,
    /// How long its guard still held, in nanoseconds.
    pub left: u64,
    /// The epoch of its guard.
    pub epoch: u64,
    /// A request, or a call of the backend.
    pub what: String,
}

/// The history in a log of JSON lines.
#[must_use]
pub fn read(log: &str) -> Vec<Begun> {
    log.lines()
        .filter(|line| line.contains("kube_provisioner::history") && line.contains("\"begins\""))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Checks over all `candidates` that nothing was begun under an epoch once another one had begun something
/// under a later epoch, and nothing without time left. Returns how much was begun.
///
/// # Errors
/// What was begun too late, or a log that can't be read.
pub fn check(candidates: &[&Candidate]) -> Result<usize> {
    let mut all = Vec::new();
    for candidate in candidates {
        all.extend(read(&candidate.replica.log_text()?));
    }
    in_order(all)
}

fn in_order(mut all: Vec<Begun>) -> Result<usize> {
    all.sort_by_key(|begun| begun.at);
    let mut latest = 0;
    for begun in &all {
        ensure!(begun.epoch >= latest, "begun after epoch {latest} had begun something: {begun:?}");
        ensure!(begun.left > 0, "begun without time left: {begun:?}");
        latest = begun.epoch;
    }
    Ok(all.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(at: u64, epoch: u64) -> Begun {
        Begun { at, left: 1, epoch, what: "POST /api/v1/persistentvolumes".to_owned() }
    }

    #[test]
    fn an_earlier_epoch_never_begins_anything_after_a_later_one() {
        assert_eq!(in_order(vec![begun(3, 9), begun(1, 5), begun(2, 5)]).unwrap(), 3);
        let late = in_order(vec![begun(1, 5), begun(2, 9), begun(3, 5)]).unwrap_err();
        assert!(late.to_string().contains("after epoch 9"), "{late}");
        assert!(in_order(vec![Begun { left: 0, ..begun(1, 5) }]).is_err());
    }

    #[test]
    fn a_line_of_a_replica_is_read() {
        let line = r#"{"at":7,"epoch":5,"left":3,"level":"DEBUG","message":"begins","target":"kube_provisioner::history","timestamp":"2026-01-01T00:00:00Z","what":"provision pvc-1"}"#;
        let expected = Begun { at: 7, left: 3, epoch: 5, what: "provision pvc-1".to_owned() };
        assert_eq!(read(&format!("{{}}\n{line}\nnoise")), [expected]);
    }
}
