//! A replica among thousands of claims and volumes of another provisioner, on a control plane of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use chaos_tests::{
    chaos::{
        cast::{Kind, Programs},
        crowd,
    },
    control_plane::{ControlPlane, Options},
    product::Profile,
};

/// Claims of another provisioner, and as many volumes: some, and many.
const SOME: u32 = 500;
const MANY: u32 = 2_500;

/// CASES 41; `cargo chaos run crowd` measures 20,000.
#[tokio::test]
async fn what_is_another_provisioners_costs_a_replica_no_memory_and_no_request_each() {
    let programs = Programs::only_ours(Profile::Dev).await.unwrap();
    let options = Options { scheduler: false, audit_log: true, ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let place = crowd::place(&plane).await.unwrap();
    // Among some there are full pages of a list already, which take what they take.
    crowd::fill(&place, 0..SOME).await.unwrap();
    let some = crowd::start(&plane, &programs, Kind::Ours, SOME).await.unwrap();
    crowd::fill(&place, SOME..MANY).await.unwrap();
    let many = crowd::start(&plane, &programs, Kind::Ours, MANY).await.unwrap();
    eprintln!("{some:?}\n{many:?}");
    // The one before left its own claim and volume behind, which are another provisioner's as well.
    for start in [&some, &many] {
        // Its claim, and its volume as soon as that is counted.
        assert!(start.kept.is_some_and(|kept| (1.0..=2.0).contains(&kept)), "{start:?}");
    }
    let more = 2 * (MANY - SOME);
    let each = (many.resident_mib - some.resident_mib) * f64::from(1 << 20) / f64::from(more);
    assert!(each < 1_500.0, "{each:.0} bytes for each of the others' objects");
    // Pages of the lists, and no more.
    let requests = many.requests.unwrap() - some.requests.unwrap();
    assert!(requests <= usize::try_from(more).unwrap() / 100, "{requests} requests for {more} objects more");
}
