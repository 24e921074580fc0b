//! Leadership on a real control plane: beside the Go library, under hands that edit the Lease, through stalls,
//! pauses, many changes and wrong clocks. How long takeovers take is measured by `cargo chaos run failover`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::{Duration, Instant};

use chaos_tests::{
    chaos::{
        audit,
        cast::{Candidate, Cast, DEADLINE, Kind, Programs, Timing},
        churn, clocks, history,
        load::{Load, Sightings},
        stall, terms,
    },
    cluster::{self, Scope},
    nemesis::clock,
    product::Profile,
};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::{Value, json};

const CLAIM_EVERY: Duration = Duration::from_millis(100);

async fn scope() -> Scope<'static> {
    Scope::new(cluster::shared().await.unwrap()).await.unwrap()
}

async fn programs() -> Programs {
    Programs::build(Profile::Dev).await.unwrap()
}

async fn cast() -> Cast<'static> {
    Cast::new(scope().await, programs().await).await.unwrap()
}

/// Waits for a volume that `maker` makes from now on.
async fn works(sightings: &Sightings, maker: &Candidate) -> Instant {
    sightings.first_of(maker.name(), Instant::now(), DEADLINE).await.unwrap().at
}

/// Ends a leader, and checks that the successor is no earlier than `lease` after the last renewal it can have seen.
async fn hand_over(sightings: &Sightings, leader: &Candidate, signal: Signal, successor: &Candidate) {
    works(sightings, leader).await;
    let signalled = Instant::now();
    leader.end(signal).await.unwrap();
    let taken = sightings.first_of(successor.name(), signalled, DEADLINE).await.unwrap().at - signalled;
    eprintln!("{} took over from {} after {taken:?} ({signal:?})", successor.name(), leader.name());
    let released = signal == Signal::TERM && leader.name() == "ours";
    let earliest = Timing::FAST.lease - Timing::FAST.renew.mul_f64(1.5);
    assert!(released || taken >= earliest, "{} took over too early, after {taken:?}", successor.name());
}

#[tokio::test]
async fn our_replica_and_the_go_library_hand_the_lease_over_both_ways_and_never_lead_side_by_side() {
    let cast = cast().await;
    let sightings = Sightings::follow(&cast);
    let _load = Load::start(&cast, CLAIM_EVERY);
    let mut peer = cast.start("peer", Kind::GoPeer, Timing::FAST, &[]).await.unwrap();
    works(&sightings, &peer).await;
    let mut ours = cast.start("ours", Kind::Ours, Timing::FAST, &[]).await.unwrap();
    ours.wait_contesting().await.unwrap();
    // What ours did, in the times of its log, has to fit between these instants.
    let mut freed = Vec::new();
    for signal in [Signal::KILL, Signal::TERM] {
        freed.push(Timestamp::now());
        hand_over(&sightings, &peer, signal, &ours).await;
        peer.restart().await.unwrap();
        hand_over(&sightings, &ours, signal, &peer).await;
        ours.restart().await.unwrap();
    }
    let terms = terms::of(&[&ours]).unwrap();
    assert_eq!(terms.len(), 2, "{terms:?}");
    for (term, freed) in terms.iter().zip(freed) {
        assert!(term.begun > freed, "ours led beside the Go library: {term:?}, which ended at {freed}");
    }
    assert!(terms[1].ended.is_some(), "asked to stop, ours ends its leadership before it releases the Lease");
    assert_eq!(sightings.turns(), ["peer", "ours", "peer", "ours", "peer"]);
}

/// What somebody does to the Lease under a live leader, and whether that ends the leadership.
#[derive(Clone, Debug)]
enum Meddling {
    Deletes,
    Writes(Value),
}

async fn meddle(cast: &Cast<'_>, meddling: &Meddling) {
    match meddling {
        Meddling::Deletes => cluster::delete(&cast.leases(), &cast.lease()).await.unwrap(),
        Meddling::Writes(spec) => {
            let patch = Patch::Merge(json!({ "spec": spec }));
            cast.leases().patch(&cast.lease(), &PatchParams::default(), &patch).await.unwrap();
        }
    }
}

#[tokio::test]
async fn whatever_is_done_to_the_lease_of_a_live_leader_nobody_leads_too_early_and_somebody_soon_does() {
    let cast = cast().await;
    let sightings = Sightings::follow(&cast);
    let _load = Load::start(&cast, CLAIM_EVERY);
    let first = cast.start("first", Kind::Ours, Timing::FAST, &[]).await.unwrap();
    let second = cast.start("second", Kind::Ours, Timing::FAST, &[]).await.unwrap();
    let both = [&first, &second];
    terms::wait_for(&both, 1).await.unwrap();
    second.wait_contesting().await.unwrap();
    let writes = |spec| Meddling::Writes(spec);
    for meddling in [
        Meddling::Deletes,
        writes(json!({ "holderIdentity": null })),
        writes(json!({ "holderIdentity": "" })),
        writes(json!({ "holderIdentity": "somebody" })),
        writes(json!({ "holderIdentity": "somebody", "leaseDurationSeconds": null })),
        writes(json!({ "holderIdentity": "somebody", "leaseDurationSeconds": 1 })),
        writes(
            json!({ "holderIdentity": null, "leaseDurationSeconds": null, "renewTime": null, "acquireTime": null, "leaseTransitions": null }),
        ),
    ] {
        let so_far = terms::of(&both).unwrap().len();
        let before = Timestamp::now();
        meddle(&cast, &meddling).await;
        let term = terms::wait_for(&both, so_far + 1).await.unwrap();
        let waited = term.begun.duration_since(before);
        let lease = Timing::FAST.lease.try_into().unwrap();
        assert!(waited >= lease, "{meddling:?}: somebody led again after {waited:?}");
        sightings.first(Instant::now(), DEADLINE, |_| true).await.unwrap();
    }
    terms::check_sequence(&terms::of(&both).unwrap()).unwrap();
    assert!(both.iter().all(|candidate| candidate.replica.exit_status().is_none()));
}

#[tokio::test]
async fn a_duration_that_was_edited_costs_no_leadership_while_the_holder_stays() {
    let cast = cast().await;
    let sightings = Sightings::follow(&cast);
    let _load = Load::start(&cast, CLAIM_EVERY);
    let leader = cast.start("leader", Kind::Ours, Timing::FAST, &[]).await.unwrap();
    works(&sightings, &leader).await;
    for duration in [json!(1_000_000), json!(null), json!(1)] {
        meddle(&cast, &Meddling::Writes(json!({ "leaseDurationSeconds": duration }))).await;
        for _ in 0..3 {
            cast.wait_renewed().await.unwrap();
        }
        works(&sightings, &leader).await;
    }
    assert_eq!(terms::of(&[&leader]).unwrap().len(), 1);
}

#[tokio::test]
async fn a_huge_duration_keeps_the_lease_from_all_until_it_is_put_right() {
    let cast = cast().await;
    let leader = cast.start("leader", Kind::Ours, Timing::FAST, &[]).await.unwrap();
    terms::wait_for(&[&leader], 1).await.unwrap();
    let huge = json!({ "holderIdentity": "somebody", "leaseDurationSeconds": 1_000_000 });
    meddle(&cast, &Meddling::Writes(huge)).await;
    terms::wait_for_none(&[&leader]).await.unwrap();
    leader.wait_told("put its leaseDurationSeconds right").await.unwrap();
    // As long as it would otherwise have taken, and once more.
    tokio::time::sleep(Timing::FAST.lease * 2).await;
    assert_eq!(terms::of(&[&leader]).unwrap().len(), 1, "it led against the stored duration");
    let before = Timestamp::now();
    meddle(&cast, &Meddling::Writes(json!({ "leaseDurationSeconds": 3 }))).await;
    let term = terms::wait_for(&[&leader], 2).await.unwrap();
    assert!(term.begun.duration_since(before) >= Timing::FAST.lease.try_into().unwrap());
}

/// Must not be confused with a leader that was killed: it still has requests to send when it wakes up.
#[tokio::test]
async fn what_a_paused_leader_still_does_when_it_goes_on_has_no_effect_and_it_can_lead_again() {
    let cast = cast().await;
    let sightings = Sightings::follow(&cast);
    let _load = Load::start(&cast, Duration::from_millis(25));
    let asked = [(history::ASKED.0.to_owned(), history::ASKED.1.to_owned())];
    let paused = cast.start("paused", Kind::Ours, Timing::FAST, &asked).await.unwrap();
    works(&sightings, &paused).await;
    let other = cast.start("other", Kind::Ours, Timing::FAST, &asked).await.unwrap();
    other.wait_contesting().await.unwrap();
    works(&sightings, &paused).await;
    let stopped = Instant::now();
    paused.replica.pause().unwrap();
    works(&sightings, &other).await;
    tokio::time::sleep_until((stopped + Timing::FAST.lease * 2).into()).await;
    paused.replica.resume().unwrap();
    paused.wait_logged("\"no longer leader\"", 1).await.unwrap();
    paused.wait_contesting().await.unwrap();
    works(&sightings, &other).await;
    other.end(Signal::TERM).await.unwrap();
    works(&sightings, &paused).await;
    assert_eq!(sightings.turns(), ["paused", "other", "paused"]);
    assert!(history::check(&[&paused, &other]).unwrap() > 0, "and it began nothing under its old epoch");
    let accounts = ["paused", "other"].map(|name| cast.account(name));
    let log = cast.scope.plane().audit_log().unwrap();
    assert!(audit::check_one_writer(log, &accounts).unwrap() > 0);
}

#[tokio::test]
async fn twenty_changes_of_leadership_leave_nothing_behind_and_have_an_epoch_each() {
    churn::check(scope().await, programs().await, 20).await.unwrap();
}

#[tokio::test]
async fn an_api_server_that_stands_still_or_is_killed_ends_no_replica_and_work_resumes() {
    stall::check(programs().await, &[Duration::from_secs(3)]).await.unwrap();
}

#[tokio::test]
async fn a_wall_clock_that_is_wrong_by_hours_and_days_changes_nothing() {
    if clock::library().is_none() {
        eprintln!("skipped: libfaketime is not installed (Debian: faketime)");
        return;
    }
    clocks::check(scope().await, programs().await, &clocks::OFFSETS).await.unwrap();
}
