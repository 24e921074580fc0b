//! The campaign as a whole: standbys, takeovers, outages, step-downs, what is published.

use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use serde_json::json;

use super::{super::Resigned, server::Fault, *};

fn is_not_ready(status: &LeaseStatus) -> bool {
    matches!(status.state, LeaseState::NotReady { .. })
}

#[tokio::test(start_paused = true)]
async fn a_leader_goes_on_renewing_under_one_epoch() {
    let server = Server::new();
    let mut replica = Replica::start(&server, "a");
    let guard = replica.until_leading().await;
    pass(120.0).await;
    assert!(guard.is_valid());
    assert_eq!(server.transitions(), 1);
    assert!(server.requests(&Method::PATCH).len() >= 59, "every two seconds");
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_one_lease_after_the_last_renewal_and_does_not_poll() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    a.until_leading().await;
    let mut b = Replica::start(&server, "b");
    b.until_standby().await;
    pass(60.0).await;
    a.kill();
    let reads = server.requests(&Method::GET).len();
    let guard = b.until_leading().await;
    assert!(server.requests(&Method::GET).len() - reads <= 3);
    let took = b.status.borrow().takeover.unwrap();
    assert!(took.since_last_sign >= Duration::from_secs(15));
    assert!(took.since_last_sign <= Duration::from_millis(15_100), "{took:?}");
    assert_eq!(guard.epoch().number, server.version());
}

#[tokio::test(start_paused = true)]
async fn a_release_is_acted_upon_at_once() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    let old = a.until_leading().await;
    let mut b = Replica::start(&server, "b");
    b.until_standby().await;
    pass(30.0).await;
    let begun = Instant::now();
    assert_eq!(a.resignation.resign(Duration::from_secs(1)).await, Resigned::Released);
    assert!(!old.is_valid());
    let new = b.until_leading().await;
    assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
    assert!(new.epoch().number > old.epoch().number);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_in_time_and_contests_again() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    let guard = a.until_leading().await;
    pass(10.0).await;
    server.always(Some((None, Fault::Swallowed)));
    pass(10.1).await;
    assert!(!guard.is_valid() && !a.leads());
    assert!(a.reason().unwrap().contains("does not answer in time"));
    server.always(None);
    let again = a.until_leading().await;
    assert!(again.epoch().number > guard.epoch().number);
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_is_survived_by_another_attempt() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    let guard = a.until_leading().await;
    server.always(Some((None, Fault::Status(503))));
    pass(6.0).await;
    server.always(None);
    pass(60.0).await;
    assert!(guard.is_valid(), "the same epoch");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_holder_ends_the_leadership_at_once() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    let guard = a.until_leading().await;
    pass(0.5).await;
    server.edit(&json!({ "spec": { "holderIdentity": "stranger" } }));
    pass(0.01).await;
    assert!(!guard.is_valid(), "by the watch, long before the next renewal");
    a.until_standby().await;
}

#[tokio::test(start_paused = true)]
async fn an_emptied_or_deleted_lease_ends_the_leadership_and_is_waited_for() {
    for deleted in [false, true] {
        let server = Server::new();
        let mut a = Replica::start(&server, "a");
        let guard = a.until_leading().await;
        pass(0.5).await;
        let begun = Instant::now();
        if deleted {
            server.delete();
        } else {
            server.edit(&json!({ "spec": { "holderIdentity": null, "renewTime": null } }));
        }
        pass(0.01).await;
        assert!(!guard.is_valid());
        let again = a.until_leading().await;
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_secs(15) && waited < Duration::from_secs(16), "{waited:?}");
        assert!(again.epoch().number > guard.epoch().number);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_told_by_its_verb_and_recovered_from() {
    let verbs = [(Method::GET, "get"), (Method::POST, "create"), (Method::PATCH, "patch")];
    for (method, verb) in verbs {
        let server = Server::new();
        server.always(Some((Some(method), Fault::Status(403))));
        let mut a = Replica::start(&server, "a");
        let wanted = format!("grant the verb {verb:?}");
        a.until(|status| status.problem.as_deref().is_some_and(|problem| problem.contains(&wanted))).await;
        assert!(!a.leads());
        server.always(None);
        a.until_leading().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_may_no_longer_patch_is_not_ready_and_stops() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    let guard = a.until_leading().await;
    server.always(Some((Some(Method::PATCH), Fault::Status(403))));
    let status = a.until(is_not_ready).await;
    assert!(status.problem.unwrap().contains("grant the verb \"patch\""));
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_provisioner_is_left_alone() {
    let server = Server::new();
    server.put(json!({ "holderIdentity": "other" }));
    server.edit(
        &json!({ "metadata": { "annotations": { "kube-provisioner.dev/provisioner": "example.com-nfs" } } }),
    );
    let mut a = Replica::start(&server, "a");
    a.until(|status| status.problem.as_deref().is_some_and(|problem| problem.contains("--lease-name"))).await;
    pass(60.0).await;
    assert!(!a.leads() && server.requests(&Method::PATCH).is_empty());
    server.edit(&json!({ "metadata": { "annotations": { "kube-provisioner.dev/provisioner": null } } }));
    a.until_leading().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_actors_are_dead_neither_renews_nor_contests() {
    let server = Server::new();
    let alive = Arc::new(AtomicBool::new(true));
    let hook = alive.clone();
    let mut a = Replica::start_with(&server, options("a"), move || hook.load(Ordering::SeqCst));
    let guard = a.until_leading().await;
    alive.store(false, Ordering::SeqCst);
    a.until(is_not_ready).await;
    assert!(!guard.is_valid());
    let writes = server.requests(&Method::PATCH).len();
    pass(60.0).await;
    assert_eq!(server.requests(&Method::PATCH).len(), writes);
    alive.store(true, Ordering::SeqCst);
    a.until_leading().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_down_whose_answer_is_lost_is_settled_within_its_budget() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    a.until_leading().await;
    server.once(Method::PATCH, Fault::DoneBut(504));
    a.resignation.resign(Duration::from_secs(1)).await;
    assert_eq!(server.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn a_step_down_without_an_api_server_ends_in_time() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    let guard = a.until_leading().await;
    server.always(Some((None, Fault::Swallowed)));
    let begun = Instant::now();
    assert_eq!(a.resignation.resign(Duration::from_millis(100)).await, Resigned::Unconfirmed);
    assert!(begun.elapsed() <= Duration::from_millis(110));
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_resigns_leaves_the_lease_alone() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    a.until_leading().await;
    let mut b = Replica::start(&server, "b");
    b.until_standby().await;
    assert_eq!(b.resignation.resign(Duration::from_secs(1)).await, Resigned::NotHeld);
    pass(60.0).await;
    assert!(a.leads());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_ends_its_leadership() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    let guard = a.until_leading().await;
    a.kill();
    pass(0.01).await;
    assert!(!guard.is_valid());
    assert_ne!(server.holder(), "", "it is not released: nobody has said that the work has stopped");
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_a_takeover_is_later_but_still_comes() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    a.until_leading().await;
    let deaf = Server::new();
    let mut b = Replica::start_watching(&server, &deaf, options("b"));
    b.until_standby().await;
    pass(60.0).await;
    a.kill();
    let begun = Instant::now();
    b.until_leading().await;
    assert!(begun.elapsed() <= Duration::from_secs(31), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hundred_changes_of_leadership_are_a_hundred_epochs() {
    let server = Server::new();
    let mut last = 0;
    let mut waiting = Replica::start(&server, "r0");
    for round in 1..=100 {
        let mut leader = waiting;
        let epoch = leader.until_leading().await.epoch().number;
        assert!(epoch > last);
        last = epoch;
        waiting = Replica::start(&server, &format!("r{round}"));
        waiting.until_standby().await;
        assert_eq!(leader.resignation.resign(Duration::from_secs(1)).await, Resigned::Released);
    }
    assert_eq!(server.transitions(), 100);
}
