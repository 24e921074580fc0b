//! When replicas led, as their logs tell it. The clocks of the replicas must be right: all run on this machine.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::{interval, timeout};

use super::cast::{Candidate, DEADLINE, LOOK_EVERY};

/// One leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Its epoch.
    pub epoch: u64,
    /// When its leader knew of it.
    pub begun: Timestamp,
    /// When its leader knew that it was over; `None` while it lasts, or if the leader was killed.
    pub ended: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Line {
    message: String,
    timestamp: Timestamp,
    epoch: Option<String>,
}

/// The leaderships in a log of JSON lines.
#[must_use]
pub fn read(log: &str) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for line in log.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
        let epoch = line.epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or_default();
        match &*line.message {
            "leader" => terms.push(Term { epoch, begun: line.timestamp, ended: None }),
            "no longer leader" => {
                if let Some(term) = terms.last_mut().filter(|term| term.epoch == epoch) {
                    term.ended = Some(line.timestamp);
                }
            }
            _ => {}
        }
    }
    terms
}

/// The leaderships of all `candidates`, by their beginning.
///
/// # Errors
/// If a log cannot be read.
pub fn of(candidates: &[&Candidate]) -> Result<Vec<Term>> {
    let mut all = Vec::new();
    for candidate in candidates {
        all.extend(read(&candidate.replica.log_text()?));
    }
    all.sort_by_key(|term| term.begun);
    Ok(all)
}

/// Waits until `candidates` have led so many times, and returns the last term.
///
/// # Errors
/// If they do not in time.
pub async fn wait_for(candidates: &[&Candidate], count: usize) -> Result<Term> {
    let look = async {
        let mut ticks = interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            let mut terms = of(candidates)?;
            if terms.len() >= count {
                return terms.pop().context("no term was asked for");
            }
        }
    };
    timeout(DEADLINE, look).await.with_context(|| format!("there was no leadership number {count}"))?
}

/// Waits until nobody leads, however often somebody has.
///
/// # Errors
/// If somebody still does after the deadline.
pub async fn wait_for_none(candidates: &[&Candidate]) -> Result<()> {
    let look = async {
        let mut ticks = interval(LOOK_EVERY);
        while of(candidates)?.iter().any(|term| term.ended.is_none()) {
            ticks.tick().await;
        }
        Ok(())
    };
    timeout(DEADLINE, look).await.context("somebody leads who must not")?
}

/// Checks that each term ends before the next one begins, and that each has an epoch above the one before.
///
/// # Errors
/// If two overlap, or epochs do not grow.
pub fn check_sequence(terms: &[Term]) -> Result<()> {
    for pair in terms.windows(2) {
        let [earlier, later] = pair else { continue };
        ensure!(earlier.epoch < later.epoch, "epochs do not grow: {earlier:?}, {later:?}");
        ensure!(
            earlier.ended.is_some_and(|ended| ended <= later.begun),
            "two led at a time: {earlier:?}, {later:?}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(epoch: u64, begun: i64, ended: Option<i64>) -> Term {
        let at = |second| Timestamp::from_second(second).unwrap();
        Term { epoch, begun: at(begun), ended: ended.map(at) }
    }

    #[test]
    fn a_log_tells_when_its_replica_led() {
        let log = concat!(
            r#"{"message":"leader","epoch":"5","timestamp":"1970-01-01T00:00:01Z"}"#,
            "\nno JSON\n",
            r#"{"message":"no longer leader","epoch":"5","timestamp":"1970-01-01T00:00:02Z"}"#,
            "\n",
            r#"{"message":"leader","epoch":"9","timestamp":"1970-01-01T00:00:03Z"}"#,
        );
        assert_eq!(read(log), [term(5, 1, Some(2)), term(9, 3, None)]);
    }

    #[test]
    fn overlaps_and_epochs_that_repeat_are_found() {
        assert!(check_sequence(&[term(5, 1, Some(2)), term(9, 2, None)]).is_ok());
        assert!(check_sequence(&[term(5, 1, Some(3)), term(9, 2, None)]).is_err());
        assert!(check_sequence(&[term(5, 1, None), term(9, 2, None)]).is_err());
        assert!(check_sequence(&[term(5, 1, Some(2)), term(5, 2, None)]).is_err());
    }
}
