//! What is told to people as events: which notes become a new event, which raise a count, which are
//! dropped. Plain logic; `actor.rs` writes.

mod actor;
mod event;

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

pub use self::actor::{Record, RecorderActor, Writer};
use crate::{
    clock::BootTime,
    lifecycle::tell::{About, Note},
    telemetry::metrics::EventDropped,
};

/// Writes that wait. An event is about 1 KB, so a full queue is about 1 MB.
const QUEUE: usize = 1024;
/// Events remembered so that repeats raise a count instead of making another one.
const REMEMBERED: usize = 4096;
/// Events about one object that may come at once, and how long until there may be one more: the numbers
/// of client-go's spam filter.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);
/// How often the count of a repeated event is written at most.
const SERIES_PERIOD: Duration = Duration::from_secs(60);

/// A write that the Recorder wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A new event.
    Create {
        /// Its number, from which its name is made.
        number: u64,
        /// What it tells.
        note: Note,
    },
    /// A higher count on an event that exists.
    Count {
        /// Its number.
        number: u64,
        /// What it tells, to make it anew if it has expired.
        note: Note,
        /// How often it happened.
        count: u32,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub struct Recorder {
    written: HashMap<Note, Written>,
    /// The remembered notes, the oldest first.
    order: VecDeque<Note>,
    allowance: HashMap<About, Allowance>,
    queue: VecDeque<Write>,
    numbers: u64,
    dropped: Vec<EventDropped>,
}

#[derive(Debug)]
struct Written {
    number: u64,
    count: u32,
    counted_at: BootTime,
}

/// A token bucket.
#[derive(Debug)]
struct Allowance {
    tokens: f64,
    at: BootTime,
}

impl Allowance {
    fn take(&mut self, now: BootTime) -> bool {
        let earned = now.saturating_since(self.at).as_secs_f64() / REFILL.as_secs_f64();
        self.tokens = (self.tokens + earned).min(BURST);
        self.at = now;
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }
}

impl Recorder {
    /// Takes a note. Queues a write for it, unless it is a repeat that was just counted, or too much.
    pub fn record(&mut self, note: Note, now: BootTime) {
        let Some(write) = self.write_for(note, now) else { return };
        if self.queue.len() >= QUEUE {
            self.dropped.push(EventDropped::QueueFull);
        } else {
            self.queue.push_back(write);
        }
    }

    fn write_for(&mut self, note: Note, now: BootTime) -> Option<Write> {
        if let Some(written) = self.written.get_mut(&note) {
            written.count = written.count.saturating_add(1);
            if now.saturating_since(written.counted_at) < SERIES_PERIOD {
                return None;
            }
            written.counted_at = now;
            return Some(Write::Count { number: written.number, count: written.count, note });
        }
        let allowance = self.allowance.entry(note.about.clone());
        if !allowance.or_insert(Allowance { tokens: BURST, at: now }).take(now) {
            self.dropped.push(EventDropped::RateLimited);
            return None;
        }
        self.numbers += 1;
        self.remember(note.clone(), self.numbers, now);
        Some(Write::Create { number: self.numbers, note })
    }

    fn remember(&mut self, note: Note, number: u64, now: BootTime) {
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.written.remove(&oldest);
            self.allowance.remove(&oldest.about);
        }
        self.written.insert(note.clone(), Written { number, count: 1, counted_at: now });
        self.order.push_back(note);
    }

    /// The next write to carry out.
    pub fn next_write(&mut self) -> Option<Write> {
        self.queue.pop_front()
    }

    /// Counts a write that failed for good.
    pub fn lost(&mut self) {
        self.dropped.push(EventDropped::Refused);
    }

    /// Why notes were dropped since the last time, one entry each.
    pub fn take_dropped(&mut self) -> Vec<EventDropped> {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::tell::{Kind, Reason};

    fn note(object: &str, message: &str) -> Note {
        let about =
            About { kind: Kind::Claim, namespace: "ns".into(), name: object.into(), uid: object.into() };
        Note { about, reason: Reason::ProvisioningFailed, message: message.to_owned() }
    }

    fn at(seconds: u64) -> BootTime {
        BootTime::from_boot(Duration::from_secs(seconds))
    }

    fn writes(recorder: &mut Recorder) -> Vec<Write> {
        std::iter::from_fn(|| recorder.next_write()).collect()
    }

    #[test]
    fn a_distinct_reason_is_one_event_and_repeats_are_a_count() {
        let mut recorder = Recorder::default();
        for second in 0..=60 {
            recorder.record(note("a", "no space"), at(second));
        }
        recorder.record(note("a", "no disk"), at(61));
        let kinds: Vec<_> = writes(&mut recorder)
            .iter()
            .map(|write| match write {
                Write::Create { number, .. } => (*number, 1),
                Write::Count { number, count, .. } => (*number, *count),
            })
            .collect();
        assert_eq!(kinds, [(1, 1), (1, 61), (2, 1)]);
        assert!(recorder.take_dropped().is_empty());
    }

    #[test]
    fn an_object_that_has_too_much_to_tell_is_cut_short_and_others_are_not() {
        let mut recorder = Recorder::default();
        for n in 0..100 {
            recorder.record(note("noisy", &format!("failure {n}")), at(0));
        }
        recorder.record(note("quiet", "no space"), at(0));
        assert_eq!(writes(&mut recorder).len(), 26);
        assert_eq!(recorder.take_dropped(), [EventDropped::RateLimited; 75]);
        recorder.record(note("noisy", "later"), at(300));
        assert_eq!(writes(&mut recorder).len(), 1);
    }

    #[test]
    fn the_queue_and_the_memory_are_bounded_and_what_is_dropped_is_counted() {
        let mut recorder = Recorder::default();
        for n in 0..10_000 {
            recorder.record(note(&format!("claim-{n}"), "x"), at(0));
        }
        assert_eq!(writes(&mut recorder).len(), QUEUE);
        assert_eq!(recorder.take_dropped().len(), 10_000 - QUEUE);
        assert!(recorder.written.len() <= REMEMBERED && recorder.allowance.len() <= REMEMBERED);
    }
}
