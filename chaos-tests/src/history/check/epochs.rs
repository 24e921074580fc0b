//! What a leader does it does inside its epoch. The word of the replicas themselves is the strict rule: the guard is
//! asked right before each effect, and that moment is on record. What proxies and the ledger see comes later, by as
//! long as a process may stand still; each such sight has to have its own beginning on record.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Bounds,
    Invariant::InsideItsEpoch,
    Reading, Verdict, nanos,
    reading::{does, is_for_leaders},
};

/// The calls of the backend that need a leader.
const GUARDED: [&str; 3] = ["provision", "delete", "keep"];

/// Nothing is begun without time left, outside of the belief of its epoch, or after a later epoch has begun.
pub(super) fn effects_have_a_guard(reading: &Reading<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let lag = nanos(bounds.lag);
    let mut latest = ((0, 0), "");
    verdict.saw(InsideItsEpoch, reading.begun.len());
    for begun in &reading.begun {
        let who = format!("{} began \"{}\" in epoch {}", begun.party, begun.does, begun.epoch);
        if begun.left == 0 {
            verdict.found(InsideItsEpoch, begun.at, format!("{who} without time left"));
        }
        let mut own = reading.beliefs_of(begun.party).filter(|belief| belief.epoch == begun.epoch);
        // The end is on record a moment before the last of what was begun before it.
        let Some(belief) = own.find(|belief| belief.from <= begun.at && begun.at <= belief.to + lag) else {
            verdict.found(InsideItsEpoch, begun.at, format!("{who}, in which it did not believe to lead"));
            continue;
        };
        // After a restore of etcd, epochs count from an earlier number.
        let epoch = (reading.age(belief.from), begun.epoch);
        if epoch < latest.0 {
            let words = format!("{who} after {} had begun something in epoch {}", latest.1, latest.0.1);
            verdict.found(InsideItsEpoch, begun.at, words);
        } else {
            latest = (epoch, begun.party);
        }
    }
}

/// Each write that a proxy saw was begun by its replica.
pub(super) fn requests_are_begun(reading: &Reading<'_>, _: &Bounds, verdict: &mut Verdict) {
    let mut beginnings =
        Beginnings::new(reading.begun.iter().map(|begun| (begun.party.to_owned(), &*begun.does, begun.at)));
    let told: BTreeSet<&str> = reading.begun.iter().map(|begun| begun.party).collect();
    for (party, record) in &reading.requests {
        let request = &record.request;
        // Of a replica that tells nothing, only its beliefs are known: see the rule about standbys.
        if !is_for_leaders(&request.verb, &request.resource) || !told.contains(party) {
            continue;
        }
        verdict.saw(InsideItsEpoch, 1);
        if !beginnings.take(party, does(&request.verb, &request.resource, &request.name), record.came) {
            let words = format!(
                "{party} sent {} {} {} without asking its guard",
                request.verb, request.resource, request.name
            );
            verdict.found(InsideItsEpoch, record.came, words);
        }
    }
}

/// Each call of the backend was begun by the replica of its epoch.
pub(super) fn calls_are_begun(reading: &Reading<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let told: BTreeSet<u64> = reading.begun.iter().map(|begun| begun.epoch).collect();
    let by_epoch = reading.begun.iter().map(|begun| (begun.epoch.to_string(), &*begun.does, begun.at));
    let mut beginnings = Beginnings::new(by_epoch);
    for call in reading.calls.iter().map(|call| call.begin) {
        if !GUARDED.contains(&&*call.operation) {
            continue;
        }
        verdict.saw(InsideItsEpoch, 1);
        let does = format!("{} {}", call.operation, call.volume);
        let flaw = if told.contains(&call.epoch) {
            let begun = beginnings.take(&call.epoch.to_string(), does.clone(), call.at);
            (!begun).then_some("no replica asked its guard for it")
        } else {
            let belief = reading.belief_in(call.epoch, call.at);
            let inside = belief.is_some_and(|it| it.from <= call.at && call.at <= it.to + nanos(bounds.lag));
            (!inside).then_some("nobody believed in that epoch then")
        };
        if let Some(flaw) = flaw {
            let words = format!("the backend was called to {does} in epoch {}, and {flaw}", call.epoch);
            verdict.found(InsideItsEpoch, call.at, words);
        }
    }
}

/// Beginnings that are still to be seen by somebody else, by who began and what.
struct Beginnings(BTreeMap<(String, String), VecDeque<u64>>);

impl Beginnings {
    /// Of beginnings in the order of time.
    fn new<'a>(all: impl Iterator<Item = (String, &'a str, u64)>) -> Self {
        let mut by_kind: BTreeMap<_, VecDeque<u64>> = BTreeMap::new();
        for (who, does, at) in all {
            by_kind.entry((who, does.to_owned())).or_default().push_back(at);
        }
        Self(by_kind)
    }

    /// Takes the earliest one before `at`, if there is one.
    fn take(&mut self, who: &str, does: String, at: u64) -> bool {
        let Some(beginnings) = self.0.get_mut(&(who.to_owned(), does)) else { return false };
        let found = beginnings.front().is_some_and(|first| *first <= at);
        if found {
            beginnings.pop_front();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;
    use crate::history::{Entry, What};

    const POST: &str = "POST /api/v1/persistentvolumes";

    fn with(mut history: Vec<Entry>, more: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
        history.extend(more);
        history
    }

    fn lives() -> Vec<Entry> {
        vec![believes(0, "r0", 5, 10 * S), begins(S, "r0", 5, POST), begins(S, "r0", 5, "provision pvc-1")]
    }

    #[test]
    fn what_is_begun_in_ones_epoch_and_seen_once_is_fine() {
        let saw = request(2 * S, "r0", "create", "persistentvolumes", "pvc-1", "answered 201");
        let called = call(2 * S, None, "provision", "pvc-1", 5);
        good(&with(with(lives(), [saw]), called), InsideItsEpoch);
    }

    #[test]
    fn what_is_begun_without_time_left_is_found() {
        let what = What::Begins { epoch: 5, left: 0, effect: POST.to_owned() };
        bad(&with(lives(), [entry(S, "r0", what)]), InsideItsEpoch, &["r0", "epoch 5", "without time left"]);
    }

    #[test]
    fn what_is_begun_outside_of_the_belief_is_found() {
        let parts = ["r0", "did not believe"];
        bad(&with(lives(), [begins(12 * S, "r0", 5, POST)]), InsideItsEpoch, &parts);
        bad(&with(lives(), [begins(3 * S, "r0", 6, POST)]), InsideItsEpoch, &parts);
        bad(&with(lives(), [begins(3 * S, "r1", 5, POST)]), InsideItsEpoch, &["r1", "did not believe"]);
    }

    #[test]
    fn what_is_begun_after_a_later_epoch_is_found_unless_etcd_was_put_back() {
        let later = [believes(10 * S, "r1", 9, 10 * S), begins(10 * S, "r1", 9, POST)];
        let late = begins(10 * S + MS, "r0", 5, POST);
        bad(&with(with(lives(), later), [late]), InsideItsEpoch, &["r0", "after r1", "epoch 9"]);
        let smaller = [believes(10 * S, "r1", 3, 10 * S), begins(10 * S, "r1", 3, POST)];
        bad(&with(lives(), smaller.clone()), InsideItsEpoch, &["r1", "epoch 3", "after r0", "epoch 5"]);
        good(&with(with(lives(), smaller), [harness(9 * S, What::Restored)]), InsideItsEpoch);
    }

    #[test]
    fn a_request_that_was_not_begun_or_came_twice_is_found() {
        let saw = |n| request(n * S, "r0", "create", "persistentvolumes", "pvc-1", "answered 201");
        bad(&with(lives(), [saw(2), saw(3)]), InsideItsEpoch, &["r0 sent create persistentvolumes pvc-1"]);
        let patch = request(2 * S, "r0", "patch", "persistentvolumes", "pvc-1", "answered 200");
        bad(&with(lives(), [patch.clone()]), InsideItsEpoch, &["r0 sent patch"]);
        let begun = begins(S, "r0", 5, "PATCH /api/v1/persistentvolumes/pvc-1");
        good(&with(lives(), [patch, begun]), InsideItsEpoch);
        good(&with(lives(), [request(2 * S, "r0", "patch", "leases", "l", "answered 200")]), InsideItsEpoch);
    }

    #[test]
    fn a_call_that_was_not_begun_is_found() {
        let again = with(lives(), call(2 * S, None, "provision", "pvc-1", 5));
        let again = with(again, call(3 * S, None, "provision", "pvc-1", 5));
        bad(&again, InsideItsEpoch, &["provision pvc-1", "epoch 5", "asked its guard"]);
    }

    #[test]
    fn without_word_of_beginnings_a_call_belongs_into_the_belief_of_its_epoch() {
        let history = |at| with(vec![believes(0, "r0", 5, S)], call(at, None, "delete", "pvc-1", 5));
        good(&history(S), InsideItsEpoch);
        bad(&history(3 * S), InsideItsEpoch, &["delete pvc-1", "nobody believed"]);
        let other = with(vec![believes(0, "r0", 5, S)], call(1, None, "keep", "pvc-1", 4));
        bad(&other, InsideItsEpoch, &["epoch 4", "nobody believed"]);
    }
}
