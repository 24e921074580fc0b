//! For the tests of the rules: entries in a few words. Times are in nanoseconds, as in histories.

use serde_json::json;

use super::{Bounds, Invariant, check};
use crate::{
    history::{Entry, Object, What},
    ledger::{Call, Phase},
    proxy::{Record, Request},
};

/// A second.
pub(super) const S: u64 = 1_000_000_000;
/// A millisecond.
pub(super) const MS: u64 = 1_000_000;

/// The violations of one invariant, in words, and how many facts there were.
pub(super) fn judged(history: &[Entry], invariant: Invariant) -> (usize, Vec<String>) {
    let verdict = check(history, &Bounds::default());
    let words = verdict.against(invariant).map(|violation| violation.words.clone()).collect();
    (verdict.facts(invariant), words)
}

/// Asserts that there is nothing against an invariant, and that something was looked at.
#[track_caller]
pub(super) fn good(history: &[Entry], invariant: Invariant) {
    let (facts, words) = judged(history, invariant);
    assert!(words.is_empty(), "{words:?}");
    assert!(facts > 0, "nothing was looked at");
}

/// Asserts that there is exactly one violation of an invariant, which has all these words in it.
#[track_caller]
pub(super) fn bad(history: &[Entry], invariant: Invariant, parts: &[&str]) {
    let (_, words) = judged(history, invariant);
    assert_eq!(words.len(), 1, "{words:?}");
    for part in parts {
        assert!(words.concat().contains(part), "{part:?} is not in {words:?}");
    }
}

pub(super) fn entry(at: u64, party: &str, what: What) -> Entry {
    Entry { at, party: party.to_owned(), what }
}

pub(super) fn harness(at: u64, what: What) -> Entry {
    entry(at, "harness", what)
}

pub(super) fn believes(at: u64, party: &str, epoch: u64, left: u64) -> Entry {
    entry(at, party, What::Believes { epoch, left })
}

pub(super) fn begins(at: u64, party: &str, epoch: u64, effect: &str) -> Entry {
    entry(at, party, What::Begins { epoch, left: 1, effect: effect.to_owned() })
}

pub(super) fn fault(at: u64, kind: &str, target: &str) -> Entry {
    let what = What::Fault { number: 1, kind: kind.to_owned(), target: target.to_owned(), over: false };
    entry(at, "nemesis", what)
}

/// A call that has changed the asset at its end; without an end it was killed. Volume `pvc-X` is for claim UID `X`.
pub(super) fn call(at: u64, end: Option<u64>, operation: &str, volume: &str, epoch: u64) -> Vec<Entry> {
    let uid = volume.trim_start_matches("pvc-");
    let claim = json!({ "metadata": { "uid": uid, "name": "data", "resourceVersion": "10" } });
    let request = match operation {
        "provision" => json!({ "claim": claim, "reclaimPolicy": "Delete" }),
        _ => json!({ "volume": { "metadata": { "name": volume } } }),
    };
    call_with(at, end, operation, volume, epoch, request)
}

/// A call with this request.
pub(super) fn call_with(
    at: u64,
    end: Option<u64>,
    operation: &str,
    volume: &str,
    epoch: u64,
    request: serde_json::Value,
) -> Vec<Entry> {
    let begin = Call {
        at,
        operation: operation.to_owned(),
        volume: volume.to_owned(),
        claim: "data".to_owned(),
        epoch,
        number: 1,
        pid: u32::try_from((at + epoch) % 1_000_000_007).unwrap(),
        phase: Phase::Begin,
        outcome: String::new(),
        changed: false,
        request,
    };
    let ended = end.map(|end| Call {
        at: end,
        phase: Phase::End,
        outcome: "\"Done\"".to_owned(),
        changed: true,
        request: serde_json::Value::Null,
        ..begin.clone()
    });
    [Some(begin), ended].into_iter().flatten().map(|it| entry(it.at, "ledger", What::Call(it))).collect()
}

/// A call that the backend answered with a failure.
pub(super) fn failed_call(at: u64, end: u64, operation: &str, volume: &str, epoch: u64) -> Vec<Entry> {
    let mut entries = call(at, Some(end), operation, volume, epoch);
    for entry in &mut entries {
        if let What::Call(call) = &mut entry.what {
            call.changed = false;
            call.outcome = r#"{"Outcome":["failed","no"]}"#.to_owned();
        }
    }
    entries
}

/// A request that a proxy saw.
pub(super) fn request(came: u64, party: &str, verb: &str, resource: &str, name: &str, fate: &str) -> Entry {
    let request = Request {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Request::default()
    };
    entry(came, party, What::Request(Record { came, sealed: came + 1, n: 1, request, fate: fate.to_owned() }))
}

pub(super) fn audited(at: u64, party: &str, verb: &str, resource: &str, name: &str, status: u64) -> Entry {
    let what =
        What::Audited { verb: verb.to_owned(), resource: resource.to_owned(), name: name.to_owned(), status };
    entry(at, party, what)
}

pub(super) fn seen(at: u64, object: Object) -> Entry {
    entry(at, "cluster", What::Object(object))
}

/// A claim with UID `X`.
pub(super) fn claim(uid: &str, version: u64, phase: &str) -> Object {
    let other = if phase == "Bound" { format!("pvc-{uid}") } else { String::new() };
    Object {
        kind: "claim".to_owned(),
        name: format!("data-{uid}"),
        uid: uid.to_owned(),
        version,
        phase: phase.to_owned(),
        other,
        ..Object::default()
    }
}

/// The volume `pvc-X` of claim UID `X`.
pub(super) fn volume(uid: &str, version: u64, phase: &str, policy: &str) -> Object {
    Object {
        kind: "volume".to_owned(),
        name: format!("pvc-{uid}"),
        uid: format!("volume-{uid}"),
        version,
        phase: phase.to_owned(),
        policy: policy.to_owned(),
        other: uid.to_owned(),
        ..Object::default()
    }
}

pub(super) fn gone(object: Object) -> Object {
    Object { gone: true, version: object.version + 1, ..object }
}
