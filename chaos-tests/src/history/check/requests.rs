//! What a volume costs: judged by the writes that proxies saw, or, of a replica without one, by the API server's audit
//! log; the reasons for them by the ledger's calls.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Bounds,
    Invariant::Budget,
    Reading, Verdict,
    reading::{Belief, Sight},
};
use crate::history::What;

/// Writes that have done something, for each backend call about a volume: the fence, and the finalizer.
const PER_CALL: usize = 2;
/// For each leadership that wrote about it: what it can't know to be done already.
const PER_LEADER: usize = 2;
/// Once: the volume is created, and may get a finalizer, or lose it.
const ONCE: usize = 2;
/// Saving is repeated after 0.2 s, 0.4 s … 10 s, each up to a tenth less: so often until the longest wait.
const SAVES: usize = 7;
/// The shortest of the longest waits, in nanoseconds.
const SAVE_EVERY: u64 = 9_000_000_000;

/// A write about a volume.
struct Write<'a> {
    at: u64,
    party: &'a str,
    verb: &'a str,
    volume: &'a str,
    /// Whether it was done and its sender knows.
    done: bool,
}

/// Each volume is created once in its life, what is done is not done again without a reason, and what fails is
/// repeated at the pace of the backoff.
pub(super) fn stay_in_budget(reading: &Reading<'_>, _: &Bounds, verdict: &mut Verdict) {
    let mut by_volume: BTreeMap<&str, Vec<Write<'_>>> = BTreeMap::new();
    for write in writes(reading) {
        by_volume.entry(write.volume).or_default().push(write);
    }
    for (volume, writes) in by_volume {
        verdict.saw(Budget, 1);
        let at = writes.last().map_or(0, |write| write.at);
        let flaws = [creations(reading, volume, &writes), total(reading, volume, &writes)];
        let saves = failed_creations(reading, volume, &writes);
        for flaw in flaws.into_iter().flatten().chain(saves) {
            verdict.found(Budget, at, format!("volume {volume} {flaw}"));
        }
    }
}

/// Of each replica what its proxy saw, else what the API server did. A creation that came on two ways counts once.
fn writes<'a>(reading: &Reading<'a>) -> Vec<Write<'a>> {
    let proxied: BTreeSet<&str> = reading.requests.iter().map(|(party, _)| *party).collect();
    let of_one = |entry: &&'a crate::history::Entry| {
        let party = &*entry.party;
        let (at, verb, resource, volume, done) = match &entry.what {
            What::Request(record) => {
                let request = &record.request;
                let done = record.fate.starts_with("answered 2");
                (record.came, &request.verb, &request.resource, &request.name, done)
            }
            What::Audited { verb, resource, name, status } if !proxied.contains(party) => {
                (entry.at, verb, resource, name, (200..300).contains(status))
            }
            _ => return None,
        };
        let counts =
            resource == "persistentvolumes" && ["create", "patch", "update", "delete"].contains(&&**verb);
        (counts && !volume.is_empty()).then_some(Write { at, party, verb, volume, done })
    };
    reading.entries.iter().filter_map(of_one).collect()
}

fn creations(reading: &Reading<'_>, volume: &str, writes: &[Write<'_>]) -> Option<String> {
    let created = writes.iter().filter(|write| write.verb == "create" && write.done).count();
    let sights = reading.of_kind("volume").filter(|(name, ..)| *name == volume);
    let ended = |sights: &[Sight<'_>]| sights.iter().any(|(_, it)| it.gone);
    let gone = sights.filter(|(_, _, sights)| ended(sights)).count();
    let allowed = 1 + gone + reading.restored.len();
    (created > allowed).then(|| format!("was created {created} times, and was gone {gone} times"))
}

fn total(reading: &Reading<'_>, volume: &str, writes: &[Write<'_>]) -> Option<String> {
    let done = writes.iter().filter(|write| write.done).count();
    let calls = calls(reading, volume);
    let leaders: BTreeSet<(&str, u64)> = writes
        .iter()
        .map(|write| (write.party, leadership(reading, write).map_or(0, |it| it.epoch)))
        .collect();
    let allowed = (ONCE + PER_CALL * calls + PER_LEADER * leaders.len()) * (1 + reading.restored.len());
    (done > allowed).then(|| {
        format!(
            "took {done} writes for {calls} backend calls in {} leaderships: more than {allowed}",
            leaders.len()
        )
    })
}

/// How often the backend was called: as the ledger has it, or, where its program could not even be started, as the
/// replicas have it.
fn calls(reading: &Reading<'_>, volume: &str) -> usize {
    let answered = reading.calls.iter().filter(|call| call.begin.volume == volume).count();
    let asked = |does: &str| does.split_once(' ').is_some_and(|(_, name)| name == volume);
    let begun = reading.begun.iter().filter(|begun| asked(&begun.does)).count();
    answered.max(begun)
}

fn failed_creations(reading: &Reading<'_>, volume: &str, writes: &[Write<'_>]) -> Vec<String> {
    let mut by_leader: BTreeMap<(&str, u64), Vec<u64>> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.verb == "create" && !write.done) {
        let epoch = leadership(reading, write).map_or(0, |belief| belief.epoch);
        by_leader.entry((write.party, epoch)).or_default().push(write.at);
    }
    let flaw = |((party, epoch), times): ((&str, u64), Vec<u64>)| {
        let took = times.last().zip(times.first()).map_or(0, |(last, first)| last - first);
        let provisions = reading.calls.iter().filter(|call| {
            call.begin.operation == "provision" && call.begin.volume == volume && call.begin.epoch == epoch
        });
        let every = usize::try_from(took / SAVE_EVERY).unwrap_or(usize::MAX);
        let allowed = SAVES * (1 + provisions.count()) + every;
        let tries = times.len();
        (tries > allowed).then(|| {
            format!(
                "was saved by {party} in epoch {epoch} {tries} times without success within {:.1} s: more than {allowed}",
                took as f64 / 1e9
            )
        })
    };
    by_leader.into_iter().filter_map(flaw).collect()
}

/// The leadership of a write: the last one of its replica that had begun.
fn leadership<'r, 'a>(reading: &'r Reading<'a>, write: &Write<'_>) -> Option<&'r Belief<'a>> {
    reading.beliefs_of(write.party).take_while(|belief| belief.from <= write.at).last()
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;
    use crate::history::Entry;

    fn write(at: u64, verb: &str, status: u64) -> Entry {
        audited(at, "r0", verb, "persistentvolumes", "pvc-1", status)
    }

    fn life() -> Vec<Entry> {
        let mut history = vec![believes(0, "r0", 5, 900 * S), write(2, "create", 201)];
        history.extend(call(1, Some(2), "provision", "pvc-1", 5));
        history.extend(call(6, Some(7), "delete", "pvc-1", 5));
        history.extend([write(5, "delete", 200), write(8, "patch", 200)]);
        history
    }

    #[test]
    fn a_life_is_within_the_budget() {
        good(&life(), Budget);
    }

    #[test]
    fn a_volume_that_is_created_twice_is_found_unless_it_was_gone_in_between() {
        let mut history = life();
        history.push(write(3, "create", 201));
        bad(&history, Budget, &["pvc-1", "created 2 times"]);
        history.push(seen(3, gone(volume("1", 2, "Pending", "Delete"))));
        good(&history, Budget);
    }

    #[test]
    fn writes_without_a_reason_are_found() {
        let mut history = life();
        history.extend((10..15).map(|at| write(at, "patch", 200)));
        good(&history, Budget);
        history.push(write(15, "patch", 200));
        bad(&history, Budget, &["pvc-1", "9 writes", "2 backend calls", "1 leaderships"]);
    }

    #[test]
    fn a_call_whose_program_could_not_be_started_is_a_reason_too() {
        let mut history = life();
        history.extend((10..19).map(|at| write(at, "delete", 200)));
        bad(&history, Budget, &["2 backend calls"]);
        let begun = |at| begins(at, "r0", 5, "delete pvc-1");
        history.extend((10..13).map(begun));
        bad(&history, Budget, &["3 backend calls"]);
        history.extend((13..19).map(begun));
        good(&history, Budget);
    }

    #[test]
    fn saves_that_do_not_wait_are_found() {
        let saves = |every: u64| {
            let mut history = life();
            history.extend((1..=20).map(|n| write(n * every, "create", 500)));
            history
        };
        bad(&saves(100 * MS), Budget, &["pvc-1", "r0", "epoch 5", "20 times", "1.9 s"]);
        good(&saves(9 * S), Budget);
    }

    #[test]
    fn what_a_proxy_saw_is_not_counted_again() {
        let mut history = life();
        let twins = [(2, "create"), (5, "delete"), (8, "patch")];
        history.extend(
            twins.map(|(at, verb)| request(at, "r0", verb, "persistentvolumes", "pvc-1", "answered 200")),
        );
        good(&history, Budget);
        history.push(request(9, "r0", "create", "persistentvolumes", "pvc-1", "answered 201"));
        bad(&history, Budget, &["created 2 times"]);
    }
}
