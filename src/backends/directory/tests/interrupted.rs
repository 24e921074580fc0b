//! What is left after a stop at any point, and beside a call of an earlier leader.

use super::*;

/// A stop at each point of provisioning, as the names that it leaves.
#[tokio::test]
async fn after_a_stop_anywhere_in_provisioning_both_calls_finish_the_work() {
    let mark = r#"{"installation":"cluster/example.com/dir","claim":{"namespace":"team","name":"data","uid":"8f14e45f","resourceVersion":"42"},"reclaimPolicy":"Delete"}"#;
    let stops: [&[&str]; 6] = [
        &["staging/mark.3.pvc-8f14e45f"],
        &["staging/mark.3.pvc-8f14e45f", "staging/dir.3.pvc-8f14e45f/"],
        &["staging/mark.7.pvc-8f14e45f", "staging/dir.7.pvc-8f14e45f/"],
        &["markers/pvc-8f14e45f", "staging/dir.3.pvc-8f14e45f/"],
        &["markers/pvc-8f14e45f"],
        &["markers/pvc-8f14e45f", "../pvc-8f14e45f/"],
    ];
    for stop in stops {
        for provision_first in [true, false] {
            let place = Place::new();
            Base::open(place.base("").to_str().unwrap()).unwrap();
            for left in stop {
                match left.strip_suffix('/') {
                    Some(dir) => fs::create_dir(place.state(dir)).unwrap(),
                    None => fs::write(place.state(left), mark).unwrap(),
                }
            }
            let mut volume = PersistentVolume::default();
            volume.metadata.name = Some(NAME.into());
            if provision_first {
                volume = place.provision().await.unwrap();
                assert!(place.base(NAME).exists() && place.state("markers").join(NAME).exists(), "{stop:?}");
            }
            place.backend.delete(&volume).await.unwrap();
            place.assert_empty();
        }
    }
}

#[tokio::test]
async fn after_a_stop_anywhere_in_deleting_both_calls_finish_the_work() {
    for provision_first in [true, false] {
        let place = Place::new();
        let volume = place.provision().await.unwrap();
        fs::create_dir_all(place.base(NAME).join("old/.lifted-0/data")).unwrap();
        fs::rename(place.base(NAME), place.state("deleting").join(NAME)).unwrap();
        // Also stopped after lifting something up.
        fs::create_dir_all(place.state("deleting").join(NAME).join(".lifted-0/more")).unwrap();
        if provision_first {
            place.provision().await.unwrap();
            assert_eq!(
                fs::read_dir(place.base(NAME)).unwrap().count(),
                0,
                "data of a deleted volume came back"
            );
        }
        place.backend.delete(&volume).await.unwrap();
        place.assert_empty();
    }
}

#[test]
fn a_failure_before_the_volume_is_seen_leaves_nothing() {
    let place = Place::new();
    let base = Base::open(place.base("").to_str().unwrap()).unwrap();
    let plan = plan();
    plan.stage(&base, Entry::Missing, &Wanted::default()).unwrap();
    assert_eq!(fs::read_dir(place.state("staging")).unwrap().count(), 2);
    let error = plan.undo(&base, plan.failed("setting its mode", std::io::Error::other("no")));
    assert!(matches!(error, MakeError::Nothing(_)), "{error:?}");
    place.assert_empty();
}

#[test]
fn a_failure_that_cannot_be_taken_back_leaves_the_outcome_unknown() {
    let place = Place::new();
    let base = Base::open(place.base("").to_str().unwrap()).unwrap();
    // A file where the directory is made: opening it fails, and so does removing it as a directory.
    fs::write(place.state("staging/dir.7.pvc-8f14e45f"), "").unwrap();
    let error = plan().carry_out(&base, &Wanted::default()).unwrap_err();
    assert!(matches!(error, MakeError::Unknown { .. }), "{error:?}");
}

fn plan() -> Plan {
    Plan {
        name: VolumeName::parse(NAME).unwrap(),
        epoch: 7,
        access: config::Access { mode: 0o777, uid: None, gid: None },
        marker: Marker::of(&options(NAME)),
    }
}

/// Provisioning and deleting of one name side by side, as an earlier leader's process could do it: the
/// file system decides, and there is never a volume that no marker tells of.
#[test]
fn a_deletion_beside_a_straggling_provision_leaves_a_marked_volume_or_nothing() {
    let place = Place::new();
    let path = place.base("").to_str().unwrap().to_owned();
    // Losing a race is an error of that call, and it is repeated.
    let make = |epoch: u64| {
        let plan = Plan { epoch, ..plan() };
        plan.carry_out(&Base::open(&path).unwrap(), &Wanted::default()).is_ok()
    };
    let remove = || remove::remove(&Base::open(&path).unwrap(), &plan().name, &Wanted::default()).is_ok();
    for round in 0..500 {
        std::thread::scope(|threads| {
            let calls = [threads.spawn(|| make(1)), threads.spawn(|| make(2)), threads.spawn(remove)];
            let [first, second, removal] = calls.map(|call| call.join().unwrap());
            assert!(first || second || removal, "round {round}: each call lost to another");
            // Alone, each succeeds.
            assert!(first || make(1), "round {round}");
            assert!(second || make(2), "round {round}");
            assert!(removal || remove(), "round {round}");
        });
        let made = place.base(NAME).exists();
        assert!(
            !made || place.state("markers").join(NAME).exists(),
            "round {round}: a volume without a marker"
        );
    }
    assert!(remove());
    place.assert_empty();
    place.assert_outside_untouched();
}

#[tokio::test]
async fn a_deletion_that_nobody_waits_for_stops_and_the_next_goes_on() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    fs::write(place.base(NAME).join("data"), "x").unwrap();
    let base = Base::open(place.base("").to_str().unwrap()).unwrap();
    remove::remove(&base, &plan().name, &Wanted::no_longer()).unwrap_err();
    assert!(!place.base(NAME).exists() && place.state("deleting").join(NAME).join("data").exists());
    assert!(place.state("markers").join(NAME).exists(), "what is left must bear its mark");
    place.backend.delete(&volume).await.unwrap();
    place.assert_empty();
}

#[test]
fn a_provision_that_nobody_waits_for_makes_nothing() {
    let place = Place::new();
    let base = Base::open(place.base("").to_str().unwrap()).unwrap();
    plan().carry_out(&base, &Wanted::no_longer()).unwrap_err();
    place.assert_empty();
}
