//! The known bugs of one operation: with each, the story goes wrong in the way that `docs/development/chaos.md` says.

use super::*;
use crate::known_bugs::{Bug, testing};

#[test]
fn no_claimref_comparison_takes_anybodys_volume_for_ours() {
    let foreign = || Answer::Volume(Ok(Some(stored("other", "/elsewhere"))));
    let answers = || vec![provisioned("/a"), Answer::Volume(Err(exists())), foreign()];
    let story = testing::with(Bug::NoClaimRefComparison, || provision_story(provision_task(), answers()));
    assert_eq!(story, "provision, create, read, saved");
    assert!(provision_story(provision_task(), answers()).ends_with("delete asset"));
}

#[test]
fn delete_on_failed_save_takes_the_asset() {
    let answers = || vec![provisioned("/a"), Answer::Volume(Err(unavailable()))];
    let story = testing::with(Bug::DeleteOnFailedSave, || provision_story(provision_task(), answers()));
    assert_eq!(story, "provision, create, delete asset");
}

#[test]
fn forget_background_calls_the_unknown_known() {
    let story = testing::with(Bug::ForgetBackground, || {
        let answer = Answer::Provisioned(Err(ProvisionError::Background("cut off".into())));
        provision_story(provision_task(), vec![answer])
    });
    assert_eq!(story, "provision, failed ProvisioningFailed");
}

#[test]
fn reschedule_on_node_gone_does_not_ask_the_backend() {
    let node = Some(SelectedNode { name: "n".to_owned(), ..SelectedNode::default() });
    let task = || ProvisionTask { node: node.clone(), ..provision_task() };
    let story = testing::with(Bug::RescheduleOnNodeGone, || provision_story(task(), vec![]));
    assert_eq!(story, "unselect");
    assert_eq!(provision_story(task(), vec![]), "provision");
}

#[test]
fn no_keep_says_nothing_to_the_backend() {
    let mut retained = stored("c1", "/a");
    retained.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".to_owned());
    let read = || Answer::Volume(Ok(Some(retained.clone())));
    let story = testing::with(Bug::NoKeep, || remove_story(volume(), Job::Keep, vec![read(), read()]));
    assert_eq!(story, "read, strip v1, tended");
}
