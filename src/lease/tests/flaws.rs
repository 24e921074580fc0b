//! The flaws of the bare crate: each shown on the crate itself, and each seen to come back when the rule
//! against it is switched off. Those that need interleavings are in the model's table.

use http::Method;
use serde_json::json;

use super::{super::machine::mistakes::Mistake, server::Fault, *};

const EXPIRED: &str = "2020-01-01T00:00:00.000000Z";

fn expired(server: &Server) {
    server.put(json!({
        "holderIdentity": "gone", "renewTime": EXPIRED, "acquireTime": EXPIRED,
        "leaseDurationSeconds": 15, "leaseTransitions": 1,
    }));
}

async fn acquires(lock: &LeaseLock) -> bool {
    use kube_leader_election::LeaseLockResult::Acquired;
    matches!(lock.try_acquire_or_renew().await, Ok(Acquired(_)))
}

/// A bench that leads, with mistakes.
async fn leader_with(server: &Server, name: &str, mistakes: &[Mistake]) -> Bench {
    let bench = Bench::with_mistakes(server, name, mistakes);
    bench.attempt().await;
    pass(15.1).await;
    assert!(bench.attempt().await && bench.leads());
    bench
}

/// Two that see one lease free, the first of which is slow to write it.
async fn race(server: &Server, mistakes: &[Mistake]) -> (bool, bool) {
    let (a, b) = (Bench::with_mistakes(server, "a", mistakes), Bench::with_mistakes(server, "b", mistakes));
    a.attempt().await;
    b.attempt().await;
    pass(15.1).await;
    server.once(Method::PATCH, Fault::Late(Duration::from_secs(1)));
    tokio::join!(a.attempt(), b.attempt());
    (a.leads(), b.leads())
}

#[tokio::test(start_paused = true)]
async fn f1_two_bare_candidates_both_acquire_an_expired_lease() {
    let server = Server::new();
    expired(&server);
    let (a, b) = (bare(&server, "a"), bare(&server, "b"));
    server.once(Method::PATCH, Fault::Late(Duration::from_secs(1)));
    let (first, second) = tokio::join!(acquires(&a), acquires(&b));
    assert!(first && second, "the bare crate tells both");
}

#[tokio::test(start_paused = true)]
async fn f1_comes_back_without_compare_and_swap() {
    assert_eq!(race(&Server::new(), &[]).await, (false, true));
    // Without a watch nobody hears of the other's write before its own hold is over.
    assert_eq!(race(&Server::new(), &[Mistake::NoCompareAndSwap]).await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn f2_a_bare_leader_renews_the_lease_of_its_successor() {
    let server = Server::new();
    expired(&server);
    let a = bare(&server, "a");
    assert!(acquires(&a).await);
    server.once(Method::PATCH, Fault::Late(Duration::from_secs(1)));
    let stalled = tokio::spawn(async move { acquires(&a).await });
    pass(0.1).await;
    server.edit(&json!({ "spec": { "holderIdentity": "b" } }));
    assert!(stalled.await.unwrap() && server.holder() == "b", "told Acquired while b holds it");
}

#[tokio::test(start_paused = true)]
async fn f2_comes_back_when_the_holder_in_the_answer_is_not_looked_at() {
    for (mistakes, leads) in [
        (&[][..], false),
        (&[Mistake::NoCompareAndSwap][..], false),
        (&[Mistake::NoCompareAndSwap, Mistake::HolderUnchecked][..], true),
    ] {
        let server = Server::new();
        let a = leader_with(&server, "a", mistakes).await;
        pass(2.0).await;
        server.once(Method::PATCH, Fault::Late(Duration::from_secs(1)));
        tokio::join!(a.attempt(), async {
            pass(0.5).await;
            server.edit(&json!({ "spec": { "holderIdentity": "b" } }));
        });
        pass(7.5).await;
        a.desk.with(|machine, now| machine.lapse(now));
        assert_eq!(a.leads(), leads, "{mistakes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn f3_comes_back_when_the_stored_time_decides() {
    let server = Server::new();
    let fresh = json!({ "holderIdentity": "b", "renewTime": "1970-01-01T00:00:01.000000Z", "leaseDurationSeconds": 15 });
    server.put(fresh);
    let careful = Bench::new(&server, "a");
    careful.attempt().await;
    assert!(!careful.leads(), "a clock that differs from ours says nothing");
    let trusting = Bench::with_mistakes(&server, "a", &[Mistake::ForeignClock]);
    trusting.attempt().await;
    assert!(trusting.leads());
}

#[tokio::test(start_paused = true)]
async fn f4_a_missing_field_locks_the_bare_crate_out() {
    let server = Server::new();
    server.put(json!({ "leaseDurationSeconds": 15 }));
    let a = bare(&server, "a");
    let error = a.try_acquire_or_renew().await.unwrap_err();
    assert!(matches!(error, kube_leader_election::Error::TraverseLease { .. }));
}

#[tokio::test(start_paused = true)]
async fn f4_comes_back_when_missing_fields_are_not_filled() {
    for (mistakes, acquires) in [(&[][..], true), (&[Mistake::MissingFieldsKept][..], false)] {
        let server = Server::new();
        server.put(json!({ "leaseDurationSeconds": 15 }));
        let bench = Bench::with_mistakes(&server, "a", mistakes);
        bench.attempt().await;
        pass(15.1).await;
        assert_eq!(bench.attempt().await, acquires, "{mistakes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn f5_comes_back_with_an_unconditional_step_down() {
    for (mistakes, holder) in [(&[][..], "b"), (&[Mistake::UnconditionalStepDown][..], "")] {
        let server = Server::new();
        let a = leader_with(&server, "a", mistakes).await;
        a.desk.with(|machine, _| machine.step_down());
        server.once(Method::PATCH, Fault::Late(Duration::from_secs(1)));
        let _ = tokio::join!(a.contest.lock.step_down(), async {
            pass(0.5).await;
            server.edit(&json!({ "spec": { "holderIdentity": "b" } }));
        });
        assert_eq!(server.holder(), holder, "{mistakes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn f6_a_bare_step_down_beside_a_renewal_leaves_a_leader_of_an_empty_lease() {
    let server = Server::new();
    expired(&server);
    let a = Arc::new(bare(&server, "a"));
    assert!(acquires(&a).await);
    server.once(Method::PATCH, Fault::Late(Duration::from_secs(1)));
    let renewal = tokio::spawn({
        let a = a.clone();
        async move { acquires(&a).await }
    });
    pass(0.1).await;
    a.step_down().await.unwrap();
    assert!(renewal.await.unwrap() && server.holder().is_empty());
}

#[tokio::test(start_paused = true)]
async fn f6_comes_back_when_renewals_go_on_beside_a_step_down() {
    let careless = [Mistake::RenewalBesideStepDown, Mistake::NoCompareAndSwap, Mistake::HolderUnchecked];
    for (mistakes, leads) in [(&[][..], false), (&careless[..], true)] {
        let server = Server::new();
        let a = leader_with(&server, "a", mistakes).await;
        server.once(Method::PATCH, Fault::Late(Duration::from_secs(1)));
        tokio::join!(a.attempt(), async {
            pass(0.5).await;
            a.desk.with(|machine, _| machine.step_down());
            server.edit(&json!({ "spec": { "holderIdentity": "" } }));
        });
        assert!(server.holder().is_empty());
        assert_eq!(a.leads(), leads, "{mistakes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn f8_comes_back_when_the_hold_counts_from_the_answer() {
    for (mistakes, left) in [(&[][..], 8_000), (&[Mistake::DeadlineFromAnswer][..], 10_000)] {
        let server = Server::new();
        let a = leader_with(&server, "a", mistakes).await;
        server.once(Method::PATCH, Fault::Late(Duration::from_secs(2)));
        assert!(a.attempt().await);
        let remaining = a.guard().unwrap().remaining().unwrap();
        assert_eq!(remaining, Duration::from_millis(left), "{mistakes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn f10_a_lost_create_race_is_an_error_of_the_bare_crate_and_none_of_ours() {
    let server = Server::new();
    server.once(Method::POST, Fault::Status(409));
    let error = bare(&server, "a").try_acquire_or_renew().await.unwrap_err();
    assert!(matches!(error, kube_leader_election::Error::CreateLease(_)));
    let ours = Bench::new(&server, "a");
    server.once(Method::POST, Fault::Status(409));
    ours.attempt().await;
    assert!(ours.contest.troubles.take().is_none());
}

#[tokio::test(start_paused = true)]
async fn f14_comes_back_when_a_leadership_never_lapses() {
    for (mistakes, leads) in [(&[][..], false), (&[Mistake::NoDeadline][..], true)] {
        let server = Server::new();
        let a = leader_with(&server, "a", mistakes).await;
        server.always(Some((None, Fault::Status(500))));
        pass(10.1).await;
        a.attempt().await;
        assert_eq!(a.leads(), leads, "{mistakes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn holder_is_me_taken_as_proof_extends_what_was_never_written() {
    for (mistakes, left) in [(&[][..], 5_500), (&[Mistake::HolderIsProof][..], 7_500)] {
        let server = Server::new();
        let a = leader_with(&server, "a", mistakes).await;
        pass(2.0).await;
        server.once(Method::PATCH, Fault::Swallowed);
        a.attempt().await;
        server.once(Method::PATCH, Fault::Status(500));
        a.attempt().await;
        assert_eq!(a.guard().unwrap().remaining().unwrap(), Duration::from_millis(left), "{mistakes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn any_emptying_taken_as_free_makes_a_second_leader() {
    for (mistakes, leads) in [(&[][..], false), (&[Mistake::AnyEmptyingIsFree][..], true)] {
        let server = Server::new();
        let a = leader_with(&server, "a", &[]).await;
        server.edit(&json!({ "spec": { "holderIdentity": "" } }));
        let b = Bench::with_mistakes(&server, "b", mistakes);
        b.attempt().await;
        assert!(a.leads(), "it has no watch here, and its next renewal is not due");
        assert_eq!(b.leads(), leads, "{mistakes:?}");
    }
}
