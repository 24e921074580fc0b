//! What the World keeps, forgets and touches, news by news.

use super::*;
use crate::lifecycle::objects::{ClaimRef, Phase};

fn world() -> World {
    let served = Served { names: vec!["ours.dev".into()], finalizer: true, ..Served::default() };
    World::new(Arc::new(served), VolumeNaming::default())
}

fn claim(uid: &str, version: Version) -> Claim {
    Claim {
        namespace: "ns".into(),
        name: uid.into(),
        uid: uid.into(),
        version,
        class: Some("fast".into()),
        provisioner: Some("ours.dev".into()),
        ..Claim::default()
    }
}

fn class(provisioner: &str) -> Arc<Class> {
    Arc::new(Class { name: "fast".into(), provisioner: provisioner.into(), ..Class::default() })
}

fn volume(claim: &str, version: Version) -> Volume {
    Volume {
        name: format!("pvc-{claim}").into(),
        uid: format!("pv-{claim}").into(),
        version,
        claim: Some(ClaimRef { uid: claim.into(), ..ClaimRef::default() }),
        provisioned_by: Some("ours.dev".into()),
        ..Volume::default()
    }
}

#[test]
fn foreign_objects_are_not_kept() {
    let mut world = world();
    world.see_claim(Arc::new(Claim { provisioner: Some("theirs.dev".into()), ..claim("a", 1) }));
    world.see_volume(Arc::new(Volume { provisioned_by: Some("theirs.dev".into()), ..volume("a", 1) }));
    assert_eq!(world.keys().count(), 0);
}

#[test]
fn an_unnamed_claim_is_kept_until_its_class_proves_foreign() {
    let mut world = world();
    let unnamed = Arc::new(Claim { provisioner: None, ..claim("a", 1) });
    world.see_claim(unnamed.clone());
    assert!(world.claim("pvc-a").is_some(), "the class may still come");
    world.see_class(class("theirs.dev"));
    assert!(world.claim("pvc-a").is_none());
    world.see_class(class("ours.dev"));
    world.see_claim(unnamed);
    assert_eq!(world.decide_claim("pvc-a"), Some(claim::Decision::Wait(claim::PendingReason::NotNamedYet)));
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let mut world = world();
    world.see_volume(Arc::new(Volume { finalizer: false, ..volume("a", 5) }));
    let (_, touch) = world.see_volume(Arc::new(Volume { finalizer: true, ..volume("a", 4) }));
    assert_eq!(touch, Touch::Unchanged);
    assert!(!world.volume("pvc-a").unwrap().finalizer);
    world.see_claim(Arc::new(Claim { selected_node: Some("n".into()), ..claim("a", 5) }));
    world.see_claim(Arc::new(claim("a", 4)));
    assert!(world.claim("pvc-a").unwrap().selected_node.is_some());
}

#[test]
fn a_label_update_touches_nothing_and_a_new_class_touches_its_claims() {
    let mut world = world();
    assert_eq!(world.see_claim(Arc::new(claim("a", 1))).1, Touch::Changed);
    assert_eq!(world.see_claim(Arc::new(claim("a", 2))).1, Touch::Newer);
    assert_eq!(world.see_class(class("ours.dev")), [Key::from("pvc-a")]);
    assert!(world.see_class(class("ours.dev")).is_empty());
    assert_eq!(world.lose_class("fast"), [Key::from("pvc-a")]);
}

#[test]
fn a_list_sweeps_what_it_does_not_bring() {
    let mut world = world();
    for uid in ["a", "b"] {
        world.see_claim(Arc::new(claim(uid, 1)));
        world.see_volume(Arc::new(volume(uid, 1)));
    }
    world.relisting(Kind::Claims);
    world.relisting(Kind::Volumes);
    world.see_claim(Arc::new(claim("a", 1)));
    world.see_volume(Arc::new(volume("a", 1)));
    assert_eq!(world.synced(Kind::Claims), [Key::from("pvc-b")]);
    assert_eq!(world.synced(Kind::Volumes), [Key::from("pvc-b")]);
    assert!(world.claim("pvc-a").is_some() && world.volume("pvc-a").is_some());
    assert!(!world.is_known(&claim("b", 1)), "the known UIDs shrink with the claims");
    assert!(world.is_known(&claim("a", 1)));
}

#[test]
fn a_list_is_right_even_where_it_is_older_than_what_is_cached() {
    let mut world = world();
    world.see_volume(Arc::new(Volume { phase: Phase::Released, ..volume("a", 9) }));
    world.mark_removed("pvc-a", "pv-a");
    world.see_claim(Arc::new(Claim { volume_name: Some("pvc-a".into()), ..claim("a", 9) }));
    world.relisting(Kind::Volumes);
    world.relisting(Kind::Claims);
    world.see_volume(Arc::new(Volume { phase: Phase::Bound, ..volume("a", 4) }));
    world.see_claim(Arc::new(claim("a", 4)));
    assert_eq!(world.volume("pvc-a").map(|volume| volume.phase), Some(Phase::Bound));
    assert!(world.claim("pvc-a").unwrap().volume_name.is_none());
}

#[test]
fn what_we_removed_is_not_decided_on_again() {
    let mut world = world();
    world.see_volume(Arc::new(volume("a", 1)));
    world.mark_removed("pvc-a", "pv-a");
    let (_, touch) = world.see_volume(Arc::new(Volume { deleting: true, ..volume("a", 2) }));
    assert_eq!((touch, world.decide_volume("pvc-a")), (Touch::Unchanged, None));
    world.see_volume(Arc::new(Volume { uid: "another".into(), ..volume("a", 3) }));
    assert!(world.decide_volume("pvc-a").is_some(), "one made anew is another volume");
}

#[test]
fn a_lost_node_touches_the_claims_that_were_to_go_to_it() {
    let mut world = world();
    world.see_claim(Arc::new(Claim { selected_node: Some("n1".into()), ..claim("a", 1) }));
    world.see_claim(Arc::new(claim("b", 1)));
    world.see_node(Arc::new(Node { name: "n1".into(), ..Node::default() }));
    assert_eq!(world.lose_node("n1"), [Key::from("pvc-a")]);
}
