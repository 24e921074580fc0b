//! Orders of answers against the pure operations: every path of provisioning and of removing.

mod bugs;

use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolumeSpec};
use serde_json::json;

use super::*;
use crate::{
    lease::{Epoch, NotLeading},
    lifecycle::{names, objects::ClaimRef},
    provisioner::{IgnoredError, ReclaimPolicy},
};

fn setting() -> Setting {
    let served = Served { names: vec!["ours.dev".into()], finalizer: true, ..Served::default() };
    Setting { served: Arc::new(served), selective: false, traceparent: Some("00-t-s-01".to_owned()) }
}

fn claim() -> Claim {
    Claim {
        namespace: "ns".into(),
        name: "data".into(),
        uid: "c1".into(),
        version: 5,
        class: Some("fast".into()),
        provisioner: Some("ours.dev".into()),
        whole: Some(Arc::default()),
        ..Claim::default()
    }
}

fn provision_task() -> ProvisionTask {
    let class = Class { name: "fast".into(), provisioner: "ours.dev".into(), ..Class::default() };
    ProvisionTask {
        name: "pvc-c1".into(),
        claim: Arc::new(claim()),
        class: Arc::new(class),
        node: None,
        read_claim: false,
        unknown: false,
        claim_gone: false,
    }
}

fn provisioning(task: ProvisionTask) -> (Operation, Effect) {
    Operation::begin(Task::Provision(task), setting())
}

fn asset(path: &str) -> Box<PersistentVolume> {
    let host_path = HostPathVolumeSource { path: path.to_owned(), type_: None };
    let spec = PersistentVolumeSpec { host_path: Some(host_path), ..Default::default() };
    Box::new(PersistentVolume { spec: Some(spec), ..Default::default() })
}

/// A volume as the API server has it.
fn stored(claim: &str, path: &str) -> Box<PersistentVolume> {
    let value = json!({
        "metadata": {
            "name": "pvc-c1", "uid": "v1", "resourceVersion": "9",
            "finalizers": [names::FINALIZER],
            "annotations": {names::PROVISIONED_BY: "ours.dev"},
        },
        "spec": {
            "claimRef": {"namespace": "ns", "name": "data", "uid": claim},
            "hostPath": {"path": path},
            "persistentVolumeReclaimPolicy": "Delete",
        },
        "status": {"phase": "Released"},
    });
    Box::new(serde_json::from_value(value).unwrap())
}

fn unavailable() -> CallError {
    CallError::Unavailable { what: "create volume pvc-c1".to_owned(), message: "503".to_owned() }
}

fn not_leading() -> CallError {
    NotLeading { epoch: Epoch { number: 1, lease_uid: "l".into() } }.into()
}

fn conflict() -> CallError {
    CallError::Conflict { what: "x".to_owned(), message: "changed".to_owned() }
}

fn not_found() -> CallError {
    CallError::NotFound { what: "x".to_owned() }
}

fn exists() -> CallError {
    CallError::AlreadyExists { what: "x".to_owned() }
}

fn forbidden() -> CallError {
    CallError::Forbidden { what: "patch".to_owned(), message: "no".to_owned() }
}

/// What an operation did, one word an effect, up to its end or its last answer.
fn played(first: Effect, mut operation: Operation, answers: Vec<Answer>) -> Vec<String> {
    let mut story = vec![word(&first)];
    for answer in answers {
        match operation.answer(answer, 0.0) {
            Step::Do(effect) => story.push(word(&effect)),
            Step::TellAndDo(note, effect) => {
                story.push(format!("tell {}", note.reason.as_str()));
                story.push(word(&effect));
            }
            Step::Done(outcome) => story.push(ending(&outcome)),
        }
    }
    story
}

fn word(effect: &Effect) -> String {
    match effect {
        Effect::ReadClaim { .. } => "read claim".to_owned(),
        Effect::CallProvision => "provision".to_owned(),
        Effect::CreateVolume(_) => "create".to_owned(),
        Effect::ReadVolume => "read".to_owned(),
        Effect::FindUsers => "find users".to_owned(),
        Effect::DeleteVolume { version: Some(version), .. } => format!("fence {version}"),
        Effect::DeleteVolume { .. } => "delete object".to_owned(),
        Effect::CallDelete(_) => "delete asset".to_owned(),
        Effect::CallKeep(_) => "keep".to_owned(),
        Effect::StripFinalizer { uid, version: None } => format!("strip {uid}"),
        Effect::StripFinalizer { version: Some(version), .. } => format!("strip at {version}"),
        Effect::AddFinalizer { version, .. } => format!("add at {version}"),
        Effect::Unselect => "unselect".to_owned(),
        Effect::Wait(time) => format!("wait {time:?}"),
    }
}

fn ending(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Saved(_) => "saved".to_owned(),
        Outcome::Removed => "removed".to_owned(),
        Outcome::Tended(_) => "tended".to_owned(),
        Outcome::Rescheduled(_) => "rescheduled".to_owned(),
        Outcome::Superseded(_) => "superseded".to_owned(),
        Outcome::Ignored(_) => "ignored".to_owned(),
        Outcome::Stopped { unknown: false } => "stopped".to_owned(),
        Outcome::Stopped { unknown: true } => "stopped unknown".to_owned(),
        Outcome::Failed(failure) => {
            let flag = |set, word: &str| if set { format!(" {word}") } else { String::new() };
            format!(
                "failed {}{}{}",
                failure.reason.as_str(),
                flag(failure.unknown, "unknown"),
                flag(failure.slow, "slow")
            )
        }
    }
}

fn provision_story(task: ProvisionTask, answers: Vec<Answer>) -> String {
    let (operation, first) = provisioning(task);
    played(first, operation, answers).join(", ")
}

fn provisioned(path: &str) -> Answer {
    Answer::Provisioned(Ok(asset(path)))
}

#[test]
fn a_claim_gets_its_volume_with_one_call_and_one_write() {
    let answers = vec![provisioned("/a"), Answer::Volume(Ok(Some(stored("c1", "/a"))))];
    assert_eq!(provision_story(provision_task(), answers), "provision, create, saved");
}

#[test]
fn a_claim_that_may_be_stale_is_read_first_and_only_an_unchanged_one_is_provisioned() {
    let stale = || ProvisionTask { read_claim: true, ..provision_task() };
    let read = |claim: Option<Claim>| vec![Answer::Claim(Ok(claim.map(Box::new)))];
    assert_eq!(provision_story(stale(), read(Some(claim()))), "read claim, provision");
    let changed = [
        Claim { uid: "another".into(), ..claim() },
        Claim { volume_name: Some("pv".into()), ..claim() },
        Claim { deleting: true, ..claim() },
        Claim { provisioner: Some("theirs.dev".into()), ..claim() },
    ];
    for now in changed {
        assert_eq!(provision_story(stale(), read(Some(now))), "read claim, superseded");
    }
    assert_eq!(provision_story(stale(), read(None)), "read claim, superseded");
}

#[test]
fn an_unknown_outcome_is_asked_for_again_without_looking_at_the_claim() {
    let task = ProvisionTask { read_claim: true, unknown: true, ..provision_task() };
    assert_eq!(provision_story(task, vec![]), "provision");
}

/// A claim of 1 Gi; the backend makes 1 G.
fn too_little(task: ProvisionTask) -> (ProvisionTask, Answer) {
    let spec = json!({ "spec": { "resources": { "requests": { "storage": "1Gi" } } } });
    let whole = Some(Arc::new(serde_json::from_value(spec).unwrap()));
    let mut volume = asset("/a");
    let capacity = json!({ "storage": "1G" });
    volume.spec.as_mut().unwrap().capacity = Some(serde_json::from_value(capacity).unwrap());
    (ProvisionTask { claim: Arc::new(Claim { whole, ..claim() }), ..task }, Answer::Provisioned(Ok(volume)))
}

#[test]
fn a_volume_that_can_not_be_the_claims_is_not_saved_and_its_asset_is_asked_for_again() {
    let (task, answer) = too_little(provision_task());
    let (mut operation, _) = provisioning(task);
    let Step::Done(Outcome::Failed(failure)) = operation.answer(answer, 0.0) else { panic!("not failed") };
    assert!(failure.unknown && !failure.slow, "{failure:?}");
    assert!(failure.message.contains("capacity is 1G, less than the 1Gi"), "{}", failure.message);
}

#[test]
fn whatever_was_made_for_a_claim_that_is_gone_is_saved_so_that_it_is_deleted() {
    let (task, answer) = too_little(ProvisionTask { unknown: true, claim_gone: true, ..provision_task() });
    assert_eq!(provision_story(task, vec![answer]), "provision, create");
}

#[test]
fn each_error_of_the_backend_has_its_outcome() {
    let table = [
        (ProvisionError::finished("x"), "failed ProvisioningFailed"),
        (ProvisionError::background("x"), "failed ProvisioningFailed unknown"),
        (ProvisionError::NoChange("x".into()), "failed ProvisioningFailed"),
        (ProvisionError::Infeasible("x".into()), "failed ProvisioningFailed slow"),
        (ProvisionError::Reschedule("x".into()), "failed ProvisioningFailed"),
        (IgnoredError::new("x").into(), "ignored"),
    ];
    for (error, expected) in table {
        let story = provision_story(provision_task(), vec![Answer::Provisioned(Err(error))]);
        assert_eq!(story, format!("provision, {expected}"));
    }
    let unknown = ProvisionTask { unknown: true, ..provision_task() };
    let answer = Answer::Provisioned(Err(ProvisionError::NoChange("x".into())));
    assert_eq!(provision_story(unknown, vec![answer]), "provision, failed ProvisioningFailed unknown");
}

#[test]
fn rescheduling_takes_the_node_off_the_claim() {
    let placed = || ProvisionTask { node: Some(SelectedNode::default()), ..provision_task() };
    let refused = || Answer::Provisioned(Err(ProvisionError::Reschedule("full".into())));
    let story = |answer| provision_story(placed(), vec![refused(), Answer::Unselected(answer)]);
    assert_eq!(story(Ok(Some(Box::new(claim())))), "provision, unselect, rescheduled");
    assert_eq!(story(Err(conflict())), "provision, unselect, superseded");
    assert_eq!(story(Err(not_leading())), "provision, unselect, stopped");
}

#[test]
fn only_the_backends_word_takes_the_node_off() {
    let placed = || ProvisionTask { node: Some(SelectedNode::default()), ..provision_task() };
    let table = [
        (ProvisionError::finished("x"), "failed ProvisioningFailed"),
        (ProvisionError::background("x"), "failed ProvisioningFailed unknown"),
        (ProvisionError::NoChange("x".into()), "failed ProvisioningFailed"),
        (ProvisionError::Infeasible("x".into()), "failed ProvisioningFailed slow"),
        (IgnoredError::new("x").into(), "ignored"),
    ];
    for (error, expected) in table {
        let story = provision_story(placed(), vec![Answer::Provisioned(Err(error))]);
        assert_eq!(story, format!("provision, {expected}"));
    }
}

#[test]
fn saving_goes_on_until_it_succeeds_and_never_deletes_the_asset() {
    let mut answers = vec![provisioned("/a")];
    for _ in 0..3 {
        answers.push(Answer::Volume(Err(unavailable())));
        answers.push(Answer::Waited);
    }
    answers.push(Answer::Volume(Err(forbidden())));
    answers.push(Answer::Waited);
    answers.push(Answer::Volume(Ok(Some(stored("c1", "/a")))));
    assert_eq!(
        provision_story(provision_task(), answers),
        "provision, create, tell ProvisioningFailed, wait 200ms, create, wait 400ms, create, wait 800ms, \
         create, tell ProvisioningFailed, wait 1.6s, create, saved"
    );
}

#[test]
fn what_the_server_rejects_for_good_frees_the_slot_and_is_asked_for_again() {
    let rejected = CallError::Rejected { what: "create".to_owned(), message: "422".to_owned() };
    let answers = vec![provisioned("/a"), Answer::Volume(Err(rejected))];
    assert_eq!(
        provision_story(provision_task(), answers),
        "provision, create, failed ProvisioningFailed unknown"
    );
}

#[test]
fn a_volume_that_exists_is_judged_by_its_claim() {
    let story = |existing: Option<Box<PersistentVolume>>| {
        let answers = vec![provisioned("/a"), Answer::Volume(Err(exists())), Answer::Volume(Ok(existing))];
        provision_story(provision_task(), answers)
    };
    assert_eq!(story(Some(stored("c1", "/elsewhere"))), "provision, create, read, saved");
    assert_eq!(
        story(Some(stored("c2", "/a"))),
        "provision, create, read, failed ProvisioningFailed",
        "the asset that a foreign volume uses stays"
    );
    assert_eq!(
        story(Some(stored("c2", "/b"))),
        "provision, create, read, tell ProvisioningFailed, delete asset",
        "a surplus asset goes"
    );
    let mut dying = stored("c1", "/a");
    dying.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    assert_eq!(story(Some(dying)), "provision, create, read, failed ProvisioningFailed unknown");
    assert_eq!(story(None), "provision, create, read, tell ProvisioningFailed, wait 200ms");
}

#[test]
fn a_leadership_that_ends_stops_every_step() {
    let stopped = |answers| provision_story(provision_task(), answers);
    assert_eq!(stopped(vec![Answer::NotLeading]), "provision, stopped");
    let lost = || Answer::Volume(Err(not_leading()));
    assert_eq!(stopped(vec![provisioned("/a"), lost()]), "provision, create, stopped unknown");
}

#[test]
fn an_operation_that_is_cut_off_knows_whether_the_backend_was_called() {
    let stale = ProvisionTask { read_claim: true, ..provision_task() };
    let (mut operation, _) = provisioning(stale);
    assert!(matches!(operation.cut_off(), Outcome::Stopped { unknown: false }));
    operation.answer(Answer::Claim(Ok(Some(Box::new(claim())))), 0.0);
    assert!(matches!(operation.cut_off(), Outcome::Stopped { unknown: true }));
}

fn volume() -> Volume {
    Volume {
        name: "pvc-c1".into(),
        uid: "v1".into(),
        version: 8,
        finalizer: true,
        policy: ReclaimPolicy::Delete,
        claim: Some(ClaimRef { namespace: "ns".into(), name: "data".into(), uid: "c1".into() }),
        provisioned_by: Some("ours.dev".into()),
        ..Volume::default()
    }
}

fn remove_story(volume: Volume, job: Job, answers: Vec<Answer>) -> String {
    let task = Task::Remove(RemoveTask { volume: Arc::new(volume), job });
    let (operation, first) = Operation::begin(task, setting());
    played(first, operation, answers).join(", ")
}

fn object() -> Answer {
    Answer::Volume(Ok(Some(stored("c1", "/a"))))
}

#[test]
fn a_volume_of_ours_is_fenced_then_its_asset_goes_then_our_finalizer() {
    let answers = vec![object(), Answer::Deleted(Ok(())), object()];
    assert_eq!(
        remove_story(volume(), Job::Delete(Proof::Released), answers),
        "fence 8, delete asset, strip v1, removed"
    );
}

#[test]
fn a_fence_that_does_not_hold_deletes_nothing() {
    for error in [conflict(), not_found()] {
        let story = remove_story(volume(), Job::Delete(Proof::Released), vec![Answer::Volume(Err(error))]);
        assert_eq!(story, "fence 8, superseded");
    }
    let story = remove_story(volume(), Job::Delete(Proof::Released), vec![Answer::Volume(Err(forbidden()))]);
    assert_eq!(story, "fence 8, failed VolumeFailedDelete");
}

#[test]
fn a_volume_without_our_finalizer_is_read_live_and_decided_on_again() {
    let bare = || Volume { finalizer: false, ..volume() };
    let plain = |edit: fn(&mut PersistentVolume)| {
        let mut stored = stored("c1", "/a");
        stored.metadata.finalizers = None;
        edit(&mut stored);
        Answer::Volume(Ok(Some(stored)))
    };
    let story = |answers| remove_story(bare(), Job::Delete(Proof::Released), answers);
    let answers = vec![plain(|_| {}), Answer::Deleted(Ok(())), Answer::Volume(Ok(None))];
    assert_eq!(story(answers), "read, delete asset, delete object, removed");
    let retained = plain(|volume| {
        volume.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".to_owned());
    });
    assert_eq!(story(vec![retained]), "read, superseded");
    assert_eq!(story(vec![plain(|volume| volume.metadata.uid = Some("v2".into()))]), "read, superseded");
    let bound = plain(|volume| volume.status.as_mut().unwrap().phase = Some("Bound".into()));
    assert_eq!(story(vec![bound]), "read, superseded");
}

#[test]
fn each_error_of_the_backends_delete_has_its_outcome() {
    let table = [
        (DeleteError::failed("x"), "failed VolumeFailedDelete"),
        (DeleteError::InUse("x".into()), "failed VolumeDelete"),
        (IgnoredError::new("x").into(), "ignored"),
    ];
    for (error, expected) in table {
        let answers = vec![object(), Answer::Deleted(Err(error))];
        let story = remove_story(volume(), Job::Delete(Proof::Released), answers);
        assert_eq!(story, format!("fence 8, delete asset, {expected}"));
    }
}

#[test]
fn the_finalizer_goes_once_the_asset_is_gone_however_long_it_takes() {
    let answers = vec![
        object(),
        Answer::Deleted(Ok(())),
        Answer::Volume(Err(unavailable())),
        Answer::Waited,
        Answer::Volume(Err(unavailable())),
        Answer::Waited,
        Answer::Volume(Err(not_found())),
    ];
    assert_eq!(
        remove_story(volume(), Job::Delete(Proof::Released), answers),
        "fence 8, delete asset, strip v1, tell VolumeFailedDelete, wait 200ms, strip v1, wait 400ms, strip v1, \
         removed"
    );
}

#[test]
fn a_failed_volume_is_deleted_only_if_its_claim_is_gone() {
    let story = |claim: Option<Claim>| {
        let answers = vec![Answer::Claim(Ok(claim.map(Box::new)))];
        remove_story(volume(), Job::Delete(Proof::ReadClaim), answers)
    };
    assert_eq!(story(Some(claim())), "read claim, superseded");
    assert_eq!(story(None), "read claim, fence 8");
    assert_eq!(story(Some(Claim { uid: "made anew".into(), ..claim() })), "read claim, fence 8");
}

#[test]
fn a_retained_volume_is_kept_before_it_is_let_go() {
    let mut retained = stored("c1", "/a");
    retained.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".to_owned());
    let read = || Answer::Volume(Ok(Some(retained.clone())));
    let story = |answers| remove_story(volume(), Job::Keep, answers);
    assert_eq!(story(vec![read(), Answer::Kept(Ok(())), read()]), "read, keep, strip v1, tended");
    assert_eq!(
        story(vec![read(), Answer::Kept(Err("full".to_owned()))]),
        "read, keep, failed VolumeFailedDelete"
    );
    assert_eq!(story(vec![object()]), "read, superseded", "its policy is Delete again");
}

#[test]
fn a_finalizer_that_is_switched_off_goes_with_one_write() {
    assert_eq!(remove_story(volume(), Job::Strip, vec![object()]), "strip v1, tended");
}

#[test]
fn a_volume_that_was_deleted_before_it_was_bound_is_spared_for_its_living_claim() {
    let story = |claim: Option<Claim>, stripped| {
        let answers = vec![Answer::Claim(Ok(claim.map(Box::new))), stripped];
        remove_story(volume(), Job::Spare, answers)
    };
    assert_eq!(story(Some(claim()), object()), "read claim, tell VolumeDelete, strip at 8, tended");
    let changed = Answer::Volume(Err(conflict()));
    assert_eq!(story(Some(claim()), changed), "read claim, tell VolumeDelete, strip at 8, superseded");
    let answers = vec![Answer::Claim(Ok(None))];
    assert_eq!(remove_story(volume(), Job::Spare, answers), "read claim, ignored");
}

#[test]
fn a_volume_without_the_finalizer_gets_it_unless_it_has_changed() {
    assert_eq!(remove_story(volume(), Job::Adopt, vec![object()]), "add at 8, tended");
    let changed = Answer::Volume(Err(conflict()));
    assert_eq!(remove_story(volume(), Job::Adopt, vec![changed]), "add at 8, superseded");
}

#[test]
fn an_orphan_goes_only_after_a_last_look() {
    let story = |answers| {
        let asset = Asset { volume_name: "pvc-c1".to_owned(), ..Asset::default() };
        let task = OrphanTask { name: "pvc-c1".into(), asset };
        let (operation, first) = Operation::begin(Task::Orphan(Arc::new(task)), setting());
        played(first, operation, answers).join(", ")
    };
    let free = || Answer::Users(Ok(None));
    assert_eq!(story(vec![free(), Answer::Deleted(Ok(()))]), "find users, delete asset, removed");
    let used = Answer::Users(Ok(Some(Spared::UsedBy("static".to_owned()))));
    assert_eq!(story(vec![used]), "find users, superseded");
    let failed = Answer::Users(Err(unavailable()));
    assert_eq!(story(vec![failed]), "find users, failed ProvisioningCleanupFailed");
    let busy = Answer::Deleted(Err(DeleteError::failed("busy")));
    assert_eq!(story(vec![free(), busy]), "find users, delete asset, failed ProvisioningCleanupFailed");
}

#[test]
fn an_answer_out_of_turn_is_told_and_leaves_the_outcome_unknown() {
    let story = provision_story(provision_task(), vec![Answer::Waited]);
    assert_eq!(story, "provision, failed ProvisioningFailed unknown");
}

#[test]
fn a_panic_while_an_effect_is_carried_out_fails_the_operation_which_may_have_made_something() {
    let (operation, effect) = provisioning(provision_task());
    assert!(matches!(effect, Effect::CallProvision), "{effect:?}");
    let Outcome::Failed(failure) = operation.broken("no hooks") else { panic!("it did not fail") };
    assert!(failure.unknown && failure.message.contains("no hooks"), "{failure:?}");
}
