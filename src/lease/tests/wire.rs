//! What goes over the wire, and what each answer means.

use http::Method;
use serde_json::json;

use super::{super::Resigned, server::Fault, *};

/// A leader by a vacant Lease whose time was waited out.
async fn leader(server: &Server, name: &str) -> Bench {
    let bench = Bench::new(server, name);
    bench.attempt().await;
    pass(15.1).await;
    assert!(bench.attempt().await, "a vacant lease is free after one lease duration");
    bench
}

#[tokio::test(start_paused = true)]
async fn every_write_carries_the_version_that_was_read() {
    let server = Server::new();
    let bench = leader(&server, "a").await;
    let before = server.version();
    assert!(bench.attempt().await);
    let renewal = server.requests(&Method::PATCH).pop().unwrap();
    assert_eq!(renewal["metadata"]["resourceVersion"], before.to_string());
    assert_eq!(renewal["spec"].get("holderIdentity"), None, "a renewal does not write the holder");
}

#[tokio::test(start_paused = true)]
async fn an_absent_lease_is_made_vacant_and_waited_for() {
    let server = Server::new();
    let bench = Bench::new(&server, "a");
    assert!(!bench.attempt().await);
    let vacant = server.lease().unwrap();
    assert_eq!(vacant["spec"].get("holderIdentity"), None);
    assert_eq!(vacant["metadata"]["annotations"]["kube-provisioner.dev/provisioner"], "example.com/nfs");
    pass(14.9).await;
    assert!(!bench.attempt().await);
    pass(0.2).await;
    assert!(bench.attempt().await);
    assert_eq!(bench.guard().unwrap().epoch().number, server.version());
}

#[tokio::test(start_paused = true)]
async fn one_of_two_who_see_the_lease_free_acquires_it() {
    let server = Server::new();
    let (a, b) = (Bench::new(&server, "a"), Bench::new(&server, "b"));
    a.attempt().await;
    b.attempt().await;
    pass(15.1).await;
    server.once(Method::PATCH, Fault::Late(Duration::from_secs(1)));
    let (a_acquired, b_acquired) = tokio::join!(a.attempt(), b.attempt());
    assert!(!a_acquired && b_acquired);
    assert!(!a.leads() && b.leads());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_written_without_an_answer_counts_from_when_it_was_sent() {
    let server = Server::new();
    let bench = leader(&server, "a").await;
    pass(2.0).await;
    server.once(Method::PATCH, Fault::DoneUnanswered);
    assert!(!bench.attempt().await, "given up after a quarter of the hold");
    assert_eq!(bench.guard().unwrap().remaining().unwrap(), Duration::from_millis(5_500));
    server.once(Method::PATCH, Fault::Status(500));
    bench.attempt().await;
    assert_eq!(bench.guard().unwrap().remaining().unwrap(), Duration::from_millis(7_500));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_never_written_extends_nothing() {
    let server = Server::new();
    let bench = leader(&server, "a").await;
    pass(2.0).await;
    server.once(Method::PATCH, Fault::Swallowed);
    bench.attempt().await;
    server.once(Method::PATCH, Fault::Status(500));
    bench.attempt().await;
    assert_eq!(bench.guard().unwrap().remaining().unwrap(), Duration::from_millis(5_500));
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_answered_with_504_is_found_out_about() {
    let server = Server::new();
    let bench = Bench::new(&server, "a");
    bench.attempt().await;
    pass(15.1).await;
    server.once(Method::PATCH, Fault::DoneBut(504));
    assert!(!bench.attempt().await);
    assert!(!bench.leads());
    let acquired_at = server.version();
    assert!(bench.attempt().await, "the read proves it by its renewTime, and the crate renews");
    assert!(bench.leads());
    assert_eq!(bench.guard().unwrap().epoch().number, acquired_at);
    assert_eq!(server.transitions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_any_shape_can_be_taken_in_the_end() {
    let shapes = [
        json!({}),
        json!(null),
        json!({ "holderIdentity": "gone" }),
        json!({ "holderIdentity": "", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 3 }),
        json!({ "holderIdentity": "gone", "leaseDurationSeconds": -5, "leaseTransitions": i32::MAX }),
        json!({ "holderIdentity": "gone", "leaseDurationSeconds": 1, "renewTime": "9999-12-30T22:00:00.000000Z" }),
    ];
    for shape in shapes {
        let server = Server::new();
        server.put(shape.clone());
        let bench = Bench::new(&server, "a");
        assert!(!bench.attempt().await, "{shape}");
        pass(15.1).await;
        assert!(bench.attempt().await && bench.leads(), "{shape}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_huge_duration_is_waited_for_until_it_is_put_right() {
    let server = Server::new();
    server.put(json!({ "holderIdentity": "gone", "leaseDurationSeconds": i32::MAX }));
    let bench = Bench::new(&server, "a");
    bench.attempt().await;
    pass(3_600.0).await;
    assert!(!bench.attempt().await);
    server.edit(&json!({ "spec": { "leaseDurationSeconds": 15 } }));
    bench.attempt().await;
    pass(15.1).await;
    assert!(bench.attempt().await);
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_that_nobody_took_is_a_new_epoch_and_a_new_transition() {
    let server = Server::new();
    let bench = leader(&server, "a").await;
    let old = bench.guard().unwrap();
    pass(11.0).await;
    assert!(bench.attempt().await);
    let new = bench.guard().unwrap();
    assert!(!old.is_valid() && new.is_valid());
    assert!(new.epoch().number > old.epoch().number);
    assert_eq!(server.transitions(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_other_fields_does_not_end_a_leadership() {
    let server = Server::new();
    let bench = leader(&server, "a").await;
    let epoch = bench.guard().unwrap().epoch().clone();
    server.edit(&json!({ "metadata": { "annotations": { "somebody": "was-here" } } }));
    assert!(bench.attempt().await);
    assert_eq!(bench.guard().unwrap().epoch(), &epoch);
}

#[tokio::test(start_paused = true)]
async fn my_own_name_written_by_somebody_else_is_not_mine() {
    let server = Server::new();
    let bench = leader(&server, "a").await;
    server.edit(&json!({ "spec": { "renewTime": "2026-01-01T00:00:00.000000Z" } }));
    assert!(!bench.attempt().await);
    assert!(!bench.leads(), "a renewTime that is none of ours ends the leadership");
    pass(15.1).await;
    assert!(bench.attempt().await && bench.leads());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_went_back_ends_the_leadership_and_is_told() {
    let server = Server::new();
    let bench = leader(&server, "a").await;
    let status = bench.desk.subscribe();
    server.go_back_to(50);
    assert!(!bench.attempt().await);
    assert!(!bench.leads());
    assert_eq!(status.borrow().restores, 1);
}

#[tokio::test(start_paused = true)]
async fn an_identity_of_128_characters_leads() {
    let server = Server::new();
    let bench = leader(&server, &"p".repeat(300)).await;
    assert_eq!(server.holder().len(), 128);
    assert!(bench.leads());
}

#[tokio::test(start_paused = true)]
async fn a_step_down_marks_the_lease_and_the_next_holder_unmarks_it() {
    let server = Server::new();
    let mut a = Replica::start(&server, "a");
    a.until_leading().await;
    let b = Bench::new(&server, "b");
    b.attempt().await;
    assert_eq!(a.resignation.resign(Duration::from_secs(1)).await, Resigned::Released);
    let released = server.lease().unwrap();
    let mark = released["metadata"]["annotations"]["kube-provisioner.dev/released-by"].as_str().unwrap();
    assert!(mark.starts_with("a_") && mark.ends_with(released["spec"]["renewTime"].as_str().unwrap()));
    assert!(b.attempt().await && b.leads(), "taken at once");
    let annotations = server.lease().unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations.get("kube-provisioner.dev/released-by"), None);
}
