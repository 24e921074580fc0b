//! Which failures are worth a log line: each distinct one of a key at once, then once a minute with a count.

use std::{collections::HashMap, time::Duration};

use super::world::Key;
use crate::clock::BootTime;

/// How often the same failure of one key has a line at most.
const PERIOD: Duration = Duration::from_secs(60);
/// Keys remembered. Beyond that all are forgotten, which costs a line each.
const REMEMBERED: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<Key, Last>);

#[derive(Debug)]
struct Last {
    message: String,
    told: BootTime,
    untold: u64,
}

impl Repeats {
    /// A failure. How often it was not told since the last line; `None` if it is not to be told now either.
    pub(super) fn failed(&mut self, key: &Key, message: &str, now: BootTime) -> Option<u64> {
        if let Some(last) = self.0.get_mut(key).filter(|last| last.message == message) {
            if now.saturating_since(last.told) < PERIOD {
                last.untold += 1;
                return None;
            }
            last.told = now;
            return Some(std::mem::take(&mut last.untold));
        }
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(key.clone(), Last { message: message.to_owned(), told: now, untold: 0 });
        Some(0)
    }

    /// The key is well.
    pub(super) fn healed(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn a_distinct_failure_has_a_line_at_once_and_a_repeated_one_a_line_a_minute_with_its_count() {
        let (mut repeats, key) = (Repeats::default(), Key::from("a"));
        let mut told = |message: &str, second| repeats.failed(&key, message, at(second));
        assert_eq!(told("no space", 0), Some(0));
        let silent: Vec<_> = (1..60).filter_map(|second| told("no space", second)).collect();
        assert!(silent.is_empty());
        assert_eq!(told("no space", 60), Some(59));
        assert_eq!(told("no disk", 61), Some(0));
        assert_eq!(repeats.failed(&Key::from("b"), "no disk", at(61)), Some(0), "another object");
        repeats.healed(&key);
        assert_eq!(repeats.failed(&key, "no disk", at(62)), Some(0));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut repeats = Repeats::default();
        for n in 0..10_000 {
            repeats.failed(&Key::from(format!("{n}")), "x", at(0));
        }
        assert!(repeats.0.len() <= REMEMBERED);
    }
}
