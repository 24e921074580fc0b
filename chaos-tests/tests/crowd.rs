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

/// Claims of another provisioner, and as many volumes.
const OBJECTS: u32 = 1_500;

/// CASES 41; `cargo chaos run crowd` measures 20,000.
#[tokio::test]
async fn what_is_another_provisioners_costs_a_replica_no_memory_and_no_request_each() {
    let programs = Programs::only_ours(Profile::Dev).await.unwrap();
    let options = Options { scheduler: false, audit_log: true, ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let alone = crowd::start(&plane, &programs, Kind::Ours, 0).await.unwrap();
    crowd::fill(&plane, OBJECTS).await.unwrap();
    let among = crowd::start(&plane, &programs, Kind::Ours, OBJECTS).await.unwrap();
    eprintln!("{alone:?}\n{among:?}");
    // Kept whole, each of the 3,000 would take 9 KB; slim, half of one. What is left is the page that is read.
    let growth = (among.resident_mib - alone.resident_mib) * f64::from(1 << 20) / f64::from(2 * OBJECTS);
    assert!(growth < 2_500.0, "{growth:.0} bytes for each of the others' objects");
    // Pages of a list, and no more.
    let more = among.requests.unwrap() - alone.requests.unwrap();
    assert!(more <= usize::try_from(2 * OBJECTS).unwrap() / 100, "{more} requests more than alone");
}
