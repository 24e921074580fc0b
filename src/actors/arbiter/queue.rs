//! The work queue: which key waits in which lane, and how many run. No key is in it twice.
//!
//! Lanes are separate, so that deletions never hold up provisioning. Within a lane classes take turns,
//! and where there are several no class can take all the slots.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::world::Key;

/// A kind of work with a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Claims getting their volumes.
    Provision,
    /// Volumes going away, or being let go.
    Remove,
    /// Volumes whose finalizer is put on or taken off: in the background, few at once.
    Tend,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Self; 3] = [Self::Provision, Self::Remove, Self::Tend];
}

/// A place in the queue. A key that was taken out and put in again has another one.
pub(super) type Ticket = u64;

/// One lane.
#[derive(Debug)]
pub(super) struct Line {
    limit: usize,
    running: usize,
    running_of: HashMap<Arc<str>, usize>,
    waiting: HashMap<Arc<str>, VecDeque<(Ticket, Key)>>,
    /// The classes with something waiting, the next one first.
    turns: VecDeque<Arc<str>>,
}

impl Line {
    /// A lane in which at most `limit` keys run at once.
    #[must_use]
    pub(super) fn new(limit: usize) -> Self {
        let (running_of, waiting, turns) = (HashMap::new(), HashMap::new(), VecDeque::new());
        Self { limit: limit.max(1), running: 0, running_of, waiting, turns }
    }

    /// How many run.
    #[must_use]
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Puts a key at the end of its class's line.
    pub(super) fn push(&mut self, class: &Arc<str>, ticket: Ticket, key: Key) {
        let line = self.waiting.entry(class.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(class.clone());
        }
        line.push_back((ticket, key));
    }

    /// Takes the next key that may run, of which `is_current` says whether its place is still good.
    /// `classes` is the number of classes that there are.
    pub(super) fn next(
        &mut self,
        classes: usize,
        mut is_current: impl FnMut(Ticket, &Key) -> bool,
    ) -> Option<(Key, Arc<str>)> {
        if self.running >= self.limit {
            return None;
        }
        let cap = self.class_cap(classes);
        for _ in 0..self.turns.len() {
            let class = self.turns.pop_front()?;
            let full = self.running_of.get(&class).is_some_and(|running| *running >= cap);
            let found = if full { None } else { self.pop(&class, &mut is_current) };
            if self.waiting.get(&class).is_some_and(|line| !line.is_empty()) {
                self.turns.push_back(class.clone());
            } else {
                self.waiting.remove(&class);
            }
            if let Some(key) = found {
                self.running += 1;
                *self.running_of.entry(class.clone()).or_default() += 1;
                return Some((key, class));
            }
        }
        None
    }

    fn pop(&mut self, class: &Arc<str>, is_current: &mut impl FnMut(Ticket, &Key) -> bool) -> Option<Key> {
        let line = self.waiting.get_mut(class)?;
        while let Some((ticket, key)) = line.pop_front() {
            if is_current(ticket, &key) {
                return Some(key);
            }
        }
        None
    }

    /// Three quarters of the slots, at least one: the rest is for the other classes.
    fn class_cap(&self, classes: usize) -> usize {
        if classes < 2 { self.limit } else { (self.limit - self.limit.div_ceil(4)).max(1) }
    }

    /// A key of this class has ended.
    pub(super) fn ended(&mut self, class: &Arc<str>) {
        self.running = self.running.saturating_sub(1);
        if let Some(running) = self.running_of.get_mut(class) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                self.running_of.remove(class);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(limit: usize, waiting: &[(&str, usize)]) -> Line {
        let mut line = Line::new(limit);
        for (class, count) in waiting {
            for n in 0..*count {
                line.push(&(*class).into(), 0, format!("{class}-{n}").into());
            }
        }
        line
    }

    fn drain(line: &mut Line, classes: usize) -> Vec<String> {
        std::iter::from_fn(|| line.next(classes, |_, _| true)).map(|(key, _)| key.to_string()).collect()
    }

    #[test]
    fn classes_take_turns() {
        let mut line = line(4, &[("a", 9), ("b", 9)]);
        assert_eq!(drain(&mut line, 2), ["a-0", "b-0", "a-1", "b-1"]);
    }

    #[test]
    fn one_class_of_several_leaves_slots_for_the_others() {
        let mut line = line(8, &[("hanging", 50)]);
        assert_eq!(drain(&mut line, 2).len(), 6);
        line.push(&"quick".into(), 0, "quick-0".into());
        assert_eq!(drain(&mut line, 2), ["quick-0"]);
    }

    #[test]
    fn the_only_class_may_use_every_slot_and_no_more() {
        let mut line = line(2, &[("a", 50)]);
        assert_eq!(drain(&mut line, 1).len(), 2);
        line.ended(&"a".into());
        assert_eq!(drain(&mut line, 1), ["a-2"]);
        assert_eq!(line.running(), 2);
    }

    #[test]
    fn places_that_were_given_up_are_skipped() {
        let mut line = line(9, &[("a", 3)]);
        let (key, _) = line.next(1, |_, key| &**key == "a-2").unwrap();
        assert_eq!(&*key, "a-2");
        assert!(line.next(1, |_, _| true).is_none());
    }

    #[test]
    fn a_single_slot_serves_every_class_in_turn() {
        let mut line = line(1, &[("a", 2), ("b", 1)]);
        let mut order = Vec::new();
        while let Some((key, class)) = line.next(2, |_, _| true) {
            order.push(key.to_string());
            line.ended(&class);
        }
        assert_eq!(order, ["a-0", "b-0", "a-1"]);
    }
}
