//! What is told beside the finding; the fixtures of all tests. The findings are in `claim` and `volume`.

mod claim;
#[path = "../../../../tests/support/json_schema.rs"]
mod json_schema;
mod volume;

use super::{
    claim as explain_claim,
    facts::{ClaimFacts, Event, Lease, Moment, NotRead, Pod, Surroundings, Unscheduled, VolumeFacts},
    volume as explain_volume, *,
};
use crate::{
    lifecycle::{
        claim::PendingReason,
        names,
        objects::{Claim, ClaimRef, Class, Phase, Volume},
    },
    provisioner::ReclaimPolicy,
};

const PAGE: &str = include_str!("../../../../docs/reference/explain.md");
const FORM: &str = include_str!("../../../../docs/reference/explain.schema.json");

/// Fails unless `found`, as JSON, is as the documented schema has it.
fn fits_the_schema(found: &Explanation) {
    let flaws =
        json_schema::flaws(&serde_json::from_str(FORM).unwrap(), &serde_json::to_value(found).unwrap());
    assert!(flaws.is_empty(), "{flaws:?}: {found:?}");
}

fn at(second: i64) -> Moment {
    Moment::from_second(1_800_000_000 + second)
}

fn lease() -> Lease {
    Lease {
        namespace: "infra".into(),
        name: "ours.dev-disk".into(),
        provisioner: "ours.dev/disk".into(),
        holder: Some("pod-0_uid_nonce".into()),
        renewed: Some(at(-2)),
        seconds: Some(15),
        restored: None,
    }
}

fn around() -> Surroundings {
    Surroundings { leases: vec![lease()], ..Surroundings::empty(at(0)) }
}

fn class() -> Class {
    Class { name: "fast".into(), provisioner: "ours.dev/disk".into(), ..Class::default() }
}

fn claim_facts() -> ClaimFacts {
    ClaimFacts {
        claim: Claim {
            namespace: "team".into(),
            name: "data".into(),
            uid: "claim-uid".into(),
            created: at(-100).as_second(),
            class: Some("fast".into()),
            provisioner: Some("ours.dev/disk".into()),
            ..Claim::default()
        },
        phase: "Pending".into(),
        static_only: false,
        deleted: None,
        finalizers: vec!["kubernetes.io/pvc-protection".into()],
        class: Ok(Some(class())),
        classes: Vec::new(),
        volume: Ok(None),
        around: around(),
    }
}

fn failure(note: &str) -> Event {
    Event {
        reason: "ProvisioningFailed".into(),
        note: note.into(),
        controller: "ours.dev/disk".into(),
        instance: "pod-0".into(),
        first: Some(at(-10)),
        last: Some(at(-10)),
        count: 1,
    }
}

fn events(facts: &mut ClaimFacts, events: impl IntoIterator<Item = Event>) {
    facts.around.events = Ok(events.into_iter().collect());
}

fn waiting(facts: &mut ClaimFacts, pods: impl IntoIterator<Item = Pod>) {
    facts.class = Ok(Some(Class { wait_for_consumer: true, ..class() }));
    facts.around.pods = Ok(pods.into_iter().collect());
}

fn pod() -> Pod {
    Pod {
        name: "web-0".into(),
        scheduler: "default-scheduler".into(),
        created: Some(at(-50)),
        ..Pod::default()
    }
}

fn unscheduled(reason: &str, message: &str) -> Pod {
    let why = Unscheduled { reason: reason.into(), message: message.into(), since: Some(at(-40)) };
    Pod { unscheduled: Some(why), ..pod() }
}

/// One row: what is changed in a claim that is the leader's turn, and what has to be found: the state, since
/// when, and words that must be there (in `what | waited for | advice`).
struct Row<F> {
    what: &'static str,
    change: fn(&mut F),
    state: State,
    since: Option<i64>,
    says: &'static [&'static str],
}

fn check<F: Clone>(facts: &F, explain: fn(&F) -> Explanation, rows: &[Row<F>]) {
    for Row { what, change, state, since, says } in rows {
        let mut changed = facts.clone();
        change(&mut changed);
        let found = explain(&changed);
        assert_eq!(found.state, *state, "{what}: {found}");
        assert_eq!(found.since, since.map(at), "{what}: since when: {found}");
        assert!(PAGE.contains(&format!("| `{state:?}` |")), "{state:?} is not documented");
        fits_the_schema(&found);
        let waiting_for = found.waiting_for.clone().unwrap_or_default();
        let words = format!("{} | {waiting_for} | {}", found.summary, found.advice.join(" "));
        for word in *says {
            assert!(words.contains(word), "{what}: {word:?} is missing in {words:?}");
        }
    }
}

fn volume_of(claim: &str) -> Volume {
    let claim = ClaimRef { namespace: "team".into(), name: "data".into(), uid: claim.into() };
    Volume { claim: Some(claim), ..volume_facts().volume }
}

fn volume_facts() -> VolumeFacts {
    VolumeFacts {
        volume: Volume {
            name: "pvc-1".into(),
            uid: "volume-uid".into(),
            phase: Phase::Released,
            finalizer: true,
            claim: Some(ClaimRef { namespace: "team".into(), name: "data".into(), uid: "claim-uid".into() }),
            provisioned_by: Some("ours.dev/disk".into()),
            ..Volume::default()
        },
        phase_since: Some(at(-60)),
        deleted: None,
        finalizers: vec![names::FINALIZER.into()],
        claim: Ok(None),
        around: around(),
    }
}

#[test]
fn the_next_try_is_estimated_by_the_default_waits() {
    let next = |count, told_seconds_ago: i64| {
        let mut facts = claim_facts();
        let last = Some(at(-told_seconds_ago));
        events(&mut facts, [Event { count, first: Some(at(-5000)), last, ..failure("no") }]);
        let next = explain_claim(&facts).next_try.unwrap();
        (next.at.as_second() - at(0).as_second(), next.overdue)
    };
    assert_eq!(next(1, 10), (5, false), "15 s after the first failure");
    assert_eq!(next(1, 40), (5, false), "the second failure, 25 s ago, was not told: its wait is 30 s");
    assert_eq!(next(4, 10), (110, false), "120 s after the fourth");
    assert_eq!(next(20, 0), (1000, false));
    assert_eq!(next(4, 150), (-30, false), "an attempt may take a while");
    assert_eq!(next(4, 300), (-180, true));
}

#[test]
fn failures_of_another_replica_do_not_count_and_other_words_of_this_one_do() {
    let mut facts = claim_facts();
    let before = Event { instance: "pod-1".into(), count: 7, last: Some(at(-600)), ..failure("no") };
    let other_words = Event { last: Some(at(-30)), first: Some(at(-30)), ..failure("no disk") };
    events(&mut facts, [before, other_words, failure("no")]);
    let attempt = explain_claim(&facts).last_attempt.unwrap();
    assert_eq!((attempt.count, attempt.first_at, attempt.at), (2, at(-30), at(-10)));
}

#[test]
fn nothing_is_tried_again_that_nobody_tries_or_that_was_not_an_attempt() {
    let mut facts = claim_facts();
    events(&mut facts, [failure("no")]);
    facts.around.leases.clear();
    let found = explain_claim(&facts);
    assert!(found.next_try.is_none() && found.last_attempt.is_some());
    let mut refused = claim_facts();
    refused.claim.block = true;
    events(&mut refused, [failure(&PendingReason::BlockUnsupported.to_string())]);
    let found = explain_claim(&refused);
    assert!(found.next_try.is_none() && found.last_attempt.is_none());
}

#[test]
fn a_leader_under_another_name_that_tried_is_the_leader() {
    let mut facts = claim_facts();
    facts.claim.provisioner = Some("old.dev".into());
    facts.class = Ok(Some(Class { provisioner: "old.dev".into(), ..class() }));
    events(&mut facts, [failure("no")]);
    let found = explain_claim(&facts);
    assert_eq!((found.state, found.leader.leadership), (State::BackingOff, Leadership::Held));
}

#[test]
fn a_lease_that_is_renewed_is_preferred_to_one_that_is_not() {
    let mut facts = claim_facts();
    let old = Lease { namespace: "old".into(), renewed: Some(at(-500)), ..lease() };
    facts.around.leases.insert(0, old);
    let leader = explain_claim(&facts).leader;
    assert_eq!(leader.lease.as_deref(), Some("infra/ours.dev-disk"));
    assert_eq!((leader.renew_age_seconds, leader.duration_seconds), (Some(2), Some(15)));
}

#[test]
fn what_could_not_be_read_is_told_and_the_rest_is_still_answered() {
    let mut facts = claim_facts();
    let forbidden = |what: &str| NotRead { what: what.into(), why: "forbidden".into() };
    facts.around.events = Err(forbidden("events"));
    facts.around.leases.clear();
    facts.around.leases_not_read = Some(forbidden("leases"));
    facts.volume = Err(forbidden("volume"));
    let found = explain_claim(&facts);
    assert_eq!(found.state, State::InProgress);
    assert_eq!(found.leader.leadership, Leadership::Unknown, "not read is not absent");
    let missing: Vec<&str> = found.not_read.iter().map(|part| part.what.as_str()).collect();
    assert_eq!(missing, ["volume", "events", "leases"]);
    fits_the_schema(&found);
}

#[test]
fn the_text_has_every_part() {
    let mut facts = claim_facts();
    events(&mut facts, [Event { count: 3, first: Some(at(-100)), ..failure("no disk") }]);
    facts.around.pods = Err(NotRead { what: "pods".into(), why: "forbidden".into() });
    let text = explain_claim(&facts).to_string();
    let parts = [
        "PersistentVolumeClaim team/data: BackingOff\n",
        "  waiting for   the next attempt to provision a volume\n",
        "  since         2027-01-15T07:58:20Z (1 min 40 s ago)\n",
        "  last attempt  2027-01-15T07:59:50Z (10 s ago), ProvisioningFailed, 3 times since 2027-01-15T07:58:20Z: no disk\n",
        "  next try      about 2027-01-15T08:00:50Z (an estimate by the default waits)\n",
        "  provisioner   ours.dev/disk\n",
        "  leader        pod-0_uid_nonce leads (Lease infra/ours.dev-disk, renewed 2 s ago)\n",
        "\nWhat to do:\n  - Mend what the error says",
        "\nWhat could not be read, so that it is left out above:\n  - pods: forbidden\n",
    ];
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn the_json_has_the_documented_fields() {
    let mut facts = claim_facts();
    events(&mut facts, [failure("no disk")]);
    let json = serde_json::to_value(explain_claim(&facts)).unwrap();
    let fields =
        |value: &serde_json::Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let nested = ["object", "lastAttempt", "nextTry", "leader"];
    let all = fields(&json).into_iter().chain(
        nested
            .iter()
            .flat_map(|name| fields(&json[name]).into_iter().map(move |field| format!("{name}.{field}"))),
    );
    for field in all {
        assert!(PAGE.contains(&format!("| `{field}` |")), "{field} is not documented");
    }
    fits_the_schema(&explain_claim(&facts));
    assert_eq!(json["state"], "BackingOff");
    assert_eq!(json["lastAttempt"]["cause"], "Other");
    assert_eq!(json["since"], "2027-01-15T07:59:50Z");
}
