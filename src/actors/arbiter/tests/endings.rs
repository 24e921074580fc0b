//! What each end of an operation leads to: what is told, what metrics are told, and when it is tried again.

use super::*;

/// The messages told since the last time, with their reason.
fn said(table: &mut Table) -> Vec<String> {
    let line = |effect: &Effect| match effect {
        Effect::Tell(note) => Some(format!("{}: {}", note.reason.as_str(), note.message)),
        _ => None,
    };
    table.arbiter.take_effects().iter().filter_map(line).collect()
}

/// What metrics and the log are told of the operations that ended.
fn verdicts(table: &mut Table) -> Vec<Verdict> {
    let verdict = |effect| match effect {
        Effect::Ended(ended) => Some(ended.verdict),
        _ => None,
    };
    table.arbiter.take_effects().into_iter().filter_map(verdict).collect()
}

fn failure(reason: Reason, slow: bool) -> Outcome {
    Outcome::Failed(Failure { message: "why".to_owned(), reason, unknown: false, slow })
}

#[test]
fn each_end_of_an_attempt_to_provision_has_its_verdict() {
    let wait = |seconds| Some(Duration::from_secs(seconds));
    let why = || "why".to_owned();
    let mut saved = Table::leading(rules());
    let volume = saved.volume_of("a", Phase::Pending);
    let table: Vec<(&str, Outcome, Verdict)> = vec![
        ("saved", Outcome::Saved(volume.into()), Verdict::Succeeded),
        ("nothing was made", failure(Reason::ProvisioningFailed, false), Verdict::Failed(why(), wait(15))),
        ("it can't work", failure(Reason::ProvisioningFailed, true), Verdict::Failed(why(), wait(300))),
        ("ignored", Outcome::Ignored(why()), Verdict::Moot("ignored by the backend: why".to_owned())),
        (
            "rescheduled",
            Outcome::Rescheduled(None),
            Verdict::Moot("the scheduler chooses another node".to_owned()),
        ),
        ("decided anew", Outcome::Superseded(why()), Verdict::Moot(why())),
        (
            "the leadership ended",
            Outcome::Stopped { unknown: true },
            Verdict::Moot("the leadership ended".to_owned()),
        ),
    ];
    for (what, outcome, expected) in table {
        let mut table = Table::leading(rules());
        table.claim("a");
        table.did();
        table.finish("pvc-a", outcome);
        assert_eq!(verdicts(&mut table), [expected], "{what}");
    }
}

#[test]
fn each_end_of_an_attempt_to_delete_has_its_verdict() {
    let wait = Some(Duration::from_secs(15));
    let why = || "why".to_owned();
    let table: Vec<(&str, Outcome, Verdict)> = vec![
        ("removed", Outcome::Removed, Verdict::Succeeded),
        ("failed", failure(Reason::VolumeFailedDelete, false), Verdict::Failed(why(), wait)),
        ("in use is no failure", failure(Reason::VolumeDelete, false), Verdict::InUse(why(), wait)),
        ("ignored", Outcome::Ignored(why()), Verdict::Moot("ignored by the backend: why".to_owned())),
    ];
    for (what, outcome, expected) in table {
        let mut table = Table::leading(rules());
        table.volume("a", Phase::Released);
        table.did();
        table.finish("pvc-a", outcome);
        assert_eq!(verdicts(&mut table), [expected], "{what}");
    }
}

#[test]
fn a_threshold_is_told_with_the_last_error_and_says_what_ends_it() {
    let limits = Rules { provision_threshold: 2, delete_threshold: 1, ..rules() };
    let mut table = Table::leading(limits);
    table.claim("a");
    table.finish("pvc-a", failed(false));
    assert_eq!(said(&mut table), ["ProvisioningFailed: no space"]);
    table.pass(15);
    table.finish("pvc-a", failed(false));
    let given_up = "ProvisioningFailed: given up after 2 attempts, until the claim, its class or its node changes; \
                    the last error: no space";
    assert_eq!(said(&mut table), ["ProvisioningFailed: no space", given_up]);
    table.volume("b", Phase::Released);
    table.finish("pvc-b", failure(Reason::VolumeFailedDelete, false));
    let given_up =
        "VolumeFailedDelete: given up after 1 attempts, until the volume changes; the last error: why";
    assert_eq!(said(&mut table), ["VolumeFailedDelete: why", given_up]);
}

#[test]
fn a_volume_that_was_given_up_is_deleted_when_it_changes() {
    let mut table = Table::leading(Rules { delete_threshold: 1, ..rules() });
    table.volume("a", Phase::Released);
    table.finish("pvc-a", failure(Reason::VolumeFailedDelete, false));
    table.did();
    table.pass(100_000);
    table.arbiter.resync(table.now);
    assert!(table.did().is_empty());
    table.volume("a", Phase::Failed);
    assert_eq!(table.did(), ["Delete(ReadClaim) pvc-a"]);
}

#[test]
fn neither_our_own_mark_of_deletion_nor_a_label_hastens_the_next_try_to_delete() {
    let mut table = Table::leading(Rules { delete_threshold: 3, ..rules() });
    table.volume("a", Phase::Released);
    let mut marked = table.volume_of("a", Phase::Released);
    marked.deleting = true;
    table.arbiter.see_volumes(&[watch::News::Seen(Arc::new(marked.clone()))], table.now);
    table.did();
    table.finish("pvc-a", failure(Reason::VolumeFailedDelete, false));
    assert_eq!(table.did(), ["tell pvc-a VolumeFailedDelete"], "the fence is seen while the backend works");
    table.pass(14);
    marked.version += 1;
    table.arbiter.see_volumes(&[watch::News::Seen(Arc::new(marked.clone()))], table.now);
    assert!(table.did().is_empty(), "a label");
    table.pass(1);
    assert_eq!(table.did(), ["Delete(Released) pvc-a"]);
    for attempts in [2, 3] {
        table.finish("pvc-a", failure(Reason::VolumeFailedDelete, false));
        table.did();
        table.pass(1000);
        marked.version += 1;
        table.arbiter.see_volumes(&[watch::News::Seen(Arc::new(marked.clone()))], table.now);
        let expected: &[&str] = if attempts < 3 { &["Delete(Released) pvc-a"] } else { &[] };
        assert_eq!(table.did(), expected, "after {attempts}");
    }
}

#[test]
fn parameters_that_cannot_work_are_tried_seldom_and_at_once_with_a_new_class() {
    let mut table = Table::leading(rules());
    table.claim("a");
    table.finish("pvc-a", failure(Reason::ProvisioningFailed, true));
    table.did();
    table.pass(299);
    assert!(table.did().is_empty(), "not after the ordinary wait");
    table.pass(1);
    assert_eq!(table.did(), ["provision pvc-a"], "but in the end");
    table.finish("pvc-a", failure(Reason::ProvisioningFailed, true));
    table.did();
    table.class_with("fast", OURS, "uid-2");
    assert_eq!(table.did(), ["provision pvc-a"]);
}

#[test]
fn a_change_during_an_attempt_is_not_lost_whatever_came_of_it() {
    let ends = [
        ("failed", failure(Reason::ProvisioningFailed, false)),
        ("it can't work", failure(Reason::ProvisioningFailed, true)),
        ("ignored", Outcome::Ignored("other site".to_owned())),
        ("decided anew", Outcome::Superseded("changed".to_owned())),
    ];
    for (what, outcome) in ends {
        let mut table = Table::leading(Rules { provision_threshold: 1, ..rules() });
        table.claim("a");
        table.class_with("fast", OURS, "uid-2");
        table.did();
        table.finish("pvc-a", outcome);
        assert!(table.did().contains(&"provision pvc-a".to_owned()), "{what}");
    }
    let mut table = Table::leading(rules());
    let mut going = table.volume_of("b", Phase::Pending);
    going.deleting = true;
    table.arbiter.see_volumes(&[watch::News::Seen(Arc::new(going))], table.now);
    assert_eq!(table.did(), ["Spare pvc-b"]);
    table.volume("b", Phase::Released);
    table.finish("pvc-b", Outcome::Ignored("it waits to be released".to_owned()));
    assert_eq!(table.did(), ["Delete(Released) pvc-b"], "released while its claim was being read");
}

#[test]
fn what_is_known_about_an_asset_decides_whether_its_claim_may_be_forgotten() {
    let gone = || Claim { uid: "a".into(), ..Claim::default() };
    // Before this attempt, and what it told: an asset may exist.
    let table = [
        ("nothing was made", false, false, false),
        ("it may go on in the background", false, true, true),
        ("nothing was left behind after all", true, false, false),
        ("it still may go on", true, true, true),
    ];
    for (what, before, told, asked_again) in table {
        let mut table = Table::leading(rules());
        table.claim("a");
        if before {
            table.finish("pvc-a", failed(true));
            table.pass(15);
        }
        table.arbiter.see_claims(&[watch::News::Gone(Arc::new(gone()))], table.now);
        table.did();
        table.finish("pvc-a", failed(told));
        table.pass(3600);
        let asked = table.did().iter().any(|line| line.starts_with("provision"));
        assert_eq!(asked, asked_again, "{what}");
    }
}

#[test]
fn the_class_and_the_chosen_node_reach_the_backend_as_they_are_now() {
    let mut table = Table::with(rules());
    let whole = serde_json::from_value(serde_json::json!({
        "provisioner": OURS,
        "allowedTopologies": [{ "matchLabelExpressions": [{ "key": "zone", "values": ["z1"] }] }],
    }));
    let class = Class {
        name: "fast".into(),
        provisioner: OURS.into(),
        wait_for_consumer: true,
        whole: Arc::new(whole.unwrap()),
        ..Class::default()
    };
    table.arbiter.see_classes(&[watch::News::Seen(Arc::new(class))], table.now);
    let labels = [("zone".to_owned(), "z1".to_owned())].into();
    let node = Node { name: "n".into(), labels };
    table.arbiter.see_nodes(&[watch::News::Seen(Arc::new(node))], table.now);
    table.sync();
    table.lead(50);
    table.claim("unplaced");
    assert!(table.did().is_empty());
    table.claim_as("a", |claim| claim.selected_node = Some("n".into()));
    let effects = table.arbiter.take_effects();
    let task = effects.iter().find_map(|effect| match effect {
        Effect::Start { task: Task::Provision(task), .. } => Some(task.clone()),
        _ => None,
    });
    let task = task.unwrap();
    let node = task.node.unwrap();
    assert_eq!((node.name.as_str(), node.labels["zone"].as_str()), ("n", "z1"));
    assert_eq!(task.class.whole.allowed_topologies.as_ref().unwrap().len(), 1);
}

#[test]
fn a_volume_that_goes_unused_with_its_policy_delete_is_told_of_by_the_leader() {
    let gone = |table: &mut Table, edit: fn(&mut Volume)| {
        let mut volume = table.volume_of("a", Phase::Available);
        volume.finalizer = false;
        volume.claim = None;
        edit(&mut volume);
        let volume = Arc::new(volume);
        table.arbiter.see_volumes(&[watch::News::Seen(volume.clone())], table.now);
        table.did();
        table.arbiter.see_volumes(&[watch::News::Gone(volume)], table.now);
        table.did()
    };
    let mut table = Table::leading(rules());
    assert_eq!(gone(&mut table, |_| {}), ["tell pvc-a VolumeDelete"]);
    assert!(gone(&mut table, |volume| volume.phase = Phase::Bound).is_empty());
    assert!(gone(&mut table, |volume| volume.provisioned_by = Some("theirs.dev".into())).is_empty());
    let mut standby = Table::with(rules());
    standby.sync();
    assert!(gone(&mut standby, |_| {}).is_empty());
}

#[test]
fn a_claim_whose_volume_goes_away_called_bound_is_told_once_and_gets_a_new_one() {
    let mut table = Table::leading(rules());
    table.claim("a");
    let saved = table.volume_of("a", Phase::Pending);
    table.finish("pvc-a", Outcome::Saved(saved.into()));
    table.volume("a", Phase::Bound);
    table.did();
    let mut going = table.volume_of("a", Phase::Bound);
    going.deleting = true;
    table.arbiter.see_volumes(&[watch::News::Seen(Arc::new(going.clone()))], table.now);
    assert_eq!(table.did(), ["tell a ProvisioningFailed"]);
    table.arbiter.resync(table.now);
    assert!(table.did().is_empty(), "once, and nothing is deleted");
    assert_eq!(table.arbiter.pending_by_reason()["VolumeTerminating"], 1);
    table.arbiter.see_volumes(&[watch::News::Gone(Arc::new(going))], table.now);
    assert_eq!(table.did(), ["provision pvc-a, reading"]);
}

#[test]
fn finalizers_are_put_on_and_taken_off_in_a_lane_of_their_own() {
    let mut table = Table::leading(Rules { delete_workers: 1, ..rules() });
    table.volume("busy", Phase::Released);
    table.did();
    for n in 0..3 {
        let mut volume = table.volume_of(&format!("v{n}"), Phase::Bound);
        volume.finalizer = false;
        table.arbiter.see_volumes(&[watch::News::Seen(Arc::new(volume))], table.now);
    }
    let begun = table.did();
    assert!(!begun.is_empty(), "a deletion under way holds up none of them");
    assert!(begun.iter().all(|line| line.starts_with("Adopt")), "{begun:?}");
}
