//! Orders of news, outcomes and leaderships against the pure Arbiter.

mod endings;
mod restored;
mod telling;

use super::*;
use crate::{
    actors::volume::{Failure, Outcome},
    clock::SystemClock,
    cluster::watch,
    lease::Epoch,
    lifecycle::{
        objects::{Claim, ClaimRef, Class, Node, Phase, Volume},
        tell::Reason,
    },
    provisioner::Asset,
};

const OURS: &str = "ours.dev";

fn rules() -> Rules {
    Rules {
        naming: VolumeNaming::default(),
        backoff: Backoff::GO_LIBRARY,
        provision_workers: 100,
        delete_workers: 100,
        provision_threshold: 0,
        delete_threshold: 0,
        tell_start: false,
    }
}

/// An Arbiter with what it did, and a clock of its own that only the test moves.
struct Table {
    arbiter: Arbiter,
    now: BootTime,
    version: Version,
}

impl Table {
    fn with(rules: Rules) -> Self {
        let served = Served { names: vec![OURS.into()], finalizer: true, ..Served::default() };
        let mut table = Self {
            arbiter: Arbiter::new(Arc::new(served), rules),
            now: BootTime::from_boot(Duration::from_secs(1000)),
            version: 100,
        };
        table.class("fast", OURS);
        table
    }

    fn leading(rules: Rules) -> Self {
        let mut table = Self::with(rules);
        table.sync();
        table.lead(50);
        table
    }

    fn sync(&mut self) {
        self.arbiter.see_claims(&[watch::News::Synced], self.now);
        self.arbiter.see_volumes(&[watch::News::Synced], self.now);
        self.arbiter.see_classes(&[watch::News::Synced], self.now);
        self.arbiter.see_nodes(&[watch::News::Synced], self.now);
    }

    /// A leadership with a mark below all versions of this test.
    fn lead(&mut self, number: u64) {
        let guard = guard(number);
        self.arbiter.leadership(Some(guard.clone()), self.now);
        self.arbiter.mark_read(&guard, 1);
    }

    fn class(&mut self, name: &str, provisioner: &str) {
        self.class_with(name, provisioner, "uid-1");
    }

    fn class_with(&mut self, name: &str, provisioner: &str, uid: &str) {
        let class =
            Class { name: name.into(), uid: uid.into(), provisioner: provisioner.into(), ..Class::default() };
        self.arbiter.see_classes(&[watch::News::Seen(Arc::new(class))], self.now);
    }

    fn claim_as(&mut self, uid: &str, edit: impl FnOnce(&mut Claim)) {
        self.version += 1;
        let mut claim = Claim {
            namespace: "ns".into(),
            name: uid.into(),
            uid: uid.into(),
            version: self.version,
            class: Some("fast".into()),
            provisioner: Some(OURS.into()),
            whole: Some(Arc::default()),
            ..Claim::default()
        };
        edit(&mut claim);
        self.arbiter.see_claims(&[watch::News::Seen(Arc::new(claim))], self.now);
    }

    fn claim(&mut self, uid: &str) {
        self.claim_as(uid, |_| {});
    }

    fn volume_of(&mut self, uid: &str, phase: Phase) -> Volume {
        self.version += 1;
        Volume {
            name: format!("pvc-{uid}").into(),
            uid: format!("pv-{uid}").into(),
            version: self.version,
            phase,
            finalizer: true,
            claim: Some(ClaimRef { uid: uid.into(), ..ClaimRef::default() }),
            class: Some("fast".into()),
            provisioned_by: Some(OURS.into()),
            ..Volume::default()
        }
    }

    fn volume(&mut self, uid: &str, phase: Phase) {
        let volume = self.volume_of(uid, phase);
        self.arbiter.see_volumes(&[watch::News::Seen(Arc::new(volume))], self.now);
    }

    fn finish(&mut self, key: &str, outcome: Outcome) {
        self.arbiter.finished(&key.into(), outcome, 0.0, self.now);
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.arbiter.wake(self.now);
    }

    /// What was done since the last time, one line an effect.
    fn did(&mut self) -> Vec<String> {
        self.arbiter.take_effects().iter().filter_map(line).collect()
    }
}

fn guard(number: u64) -> LeaderGuard {
    let clock = SystemClock::shared();
    let until = clock.now() + Duration::from_secs(3600);
    LeaderGuard::new(Epoch { number, lease_uid: "l".into() }, until, clock)
}

fn line(effect: &Effect) -> Option<String> {
    match effect {
        Effect::Start { task: Task::Provision(task), .. } => {
            let read = if task.read_claim { ", reading" } else { "" };
            let unknown = if task.unknown { ", unknown" } else { "" };
            let gone = if task.claim_gone { ", for nobody" } else { "" };
            Some(format!("provision {}{read}{unknown}{gone}", task.name))
        }
        Effect::Start { task: Task::Remove(task), .. } => {
            Some(format!("{:?} {}", task.job, task.volume.name))
        }
        Effect::Start { task: Task::Orphan(task), .. } => Some(format!("remove orphan {}", task.name)),
        Effect::Stop(key) => Some(format!("stop {key}")),
        Effect::Tell(note) => Some(format!("tell {} {}", note.about.name, note.reason.as_str())),
        _ => None,
    }
}

fn failed(unknown: bool) -> Outcome {
    let message = "no space".to_owned();
    Outcome::Failed(Failure { message, reason: Reason::ProvisioningFailed, unknown, slow: false })
}

#[test]
fn a_standby_knows_all_and_starts_nothing_and_a_leader_needs_every_kind_first() {
    let mut table = Table::with(rules());
    table.claim("a");
    table.lead(50);
    assert!(table.did().is_empty(), "nothing before the first lists are complete");
    table.sync();
    assert_eq!(table.did(), ["provision pvc-a"]);
    let mut standby = Table::with(rules());
    standby.sync();
    standby.claim("a");
    assert!(standby.did().is_empty());
    assert_eq!(standby.arbiter.queued_in(Lane::Provision), 1);
    standby.lead(51);
    assert_eq!(standby.did(), ["provision pvc-a, reading"], "taking over is only the permission to start");
}

#[test]
fn a_claim_is_provisioned_once_and_its_volume_is_known_before_the_watch_says_so() {
    let mut table = Table::leading(rules());
    table.claim("a");
    assert_eq!(table.did(), ["provision pvc-a"]);
    let volume = table.volume_of("a", Phase::Pending);
    table.finish("pvc-a", Outcome::Saved(volume.into()));
    assert_eq!(table.did(), ["tell a ProvisioningSucceeded"]);
    table.claim_as("a", |claim| claim.selected_node = Some("n".into()));
    table.arbiter.resync(table.now);
    assert!(table.did().is_empty());
    table.claim_as("a", |claim| claim.volume_name = Some("pvc-a".into()));
    assert!(table.arbiter.entries.is_empty(), "nothing is remembered of a key that is done");
}

#[test]
fn a_volume_that_vanished_before_its_creation_was_reported_leaves_no_ghost() {
    let mut table = Table::leading(rules());
    table.claim("a");
    let volume = table.volume_of("a", Phase::Pending);
    table.arbiter.see_volumes(&[watch::News::Seen(Arc::new(volume.clone()))], table.now);
    table.arbiter.see_volumes(&[watch::News::Gone(Arc::new(volume.clone()))], table.now);
    table.did();
    table.finish("pvc-a", Outcome::Saved(volume.into()));
    assert_eq!(table.did(), ["tell a ProvisioningSucceeded", "provision pvc-a, reading"]);
}

#[test]
fn failures_wait_longer_each_time_and_a_change_ends_the_wait() {
    let mut table = Table::leading(rules());
    table.claim("a");
    table.finish("pvc-a", failed(false));
    table.did();
    table.pass(14);
    assert!(table.did().is_empty());
    table.pass(1);
    assert_eq!(table.did(), ["provision pvc-a"]);
    table.finish("pvc-a", failed(false));
    table.did();
    table.pass(29);
    table.claim("a");
    table.arbiter.resync(table.now);
    assert!(table.did().is_empty(), "a label update and a resync hasten nothing");
    table.class_with("fast", OURS, "uid-2");
    assert_eq!(table.did(), ["provision pvc-a"], "the class was made anew");
}

#[test]
fn a_change_during_an_attempt_is_not_lost() {
    let mut table = Table::leading(rules());
    table.claim("a");
    table.class_with("fast", OURS, "uid-2");
    table.did();
    table.finish("pvc-a", failed(false));
    assert_eq!(table.did(), ["tell a ProvisioningFailed", "provision pvc-a"]);
}

#[test]
fn an_unknown_outcome_is_found_out_even_when_the_claim_is_gone() {
    let mut table = Table::leading(rules());
    table.claim("a");
    table.finish("pvc-a", failed(true));
    table.did();
    let gone = Claim { uid: "a".into(), ..Claim::default() };
    table.arbiter.see_claims(&[watch::News::Gone(Arc::new(gone))], table.now);
    assert_eq!(
        table.did(),
        ["provision pvc-a, unknown, for nobody"],
        "at once: who waits for the asset is gone"
    );
    table.finish("pvc-a", failed(true));
    let class = Class { name: "fast".into(), ..Class::default() };
    table.arbiter.see_classes(&[watch::News::Gone(Arc::new(class))], table.now);
    table.did();
    table.pass(15);
    assert_eq!(table.did(), ["provision pvc-a, unknown, for nobody"]);
    table.finish("pvc-a", failed(false));
    table.did();
    assert!(table.arbiter.entries.is_empty(), "now it is known that nothing is left");
}

#[test]
fn an_unknown_outcome_is_found_out_for_a_claim_that_lives_but_has_no_class_any_more() {
    let mut table = Table::leading(rules());
    table.claim("a");
    table.finish("pvc-a", failed(true));
    table.did();
    let class = Class { name: "fast".into(), ..Class::default() };
    table.arbiter.see_classes(&[watch::News::Gone(Arc::new(class))], table.now);
    let started: Vec<String> = table.did().into_iter().filter(|line| line.starts_with("provision")).collect();
    assert_eq!(started, ["provision pvc-a, unknown"], "it may still want what is made");
    table.finish("pvc-a", failed(true));
    table.claim_as("a", |claim| claim.deleting = true);
    assert_eq!(table.did().last().unwrap(), "provision pvc-a, unknown, for nobody");
}

#[test]
fn a_known_failure_of_a_claim_that_is_gone_is_not_tried_again() {
    let mut table = Table::leading(rules());
    table.claim("a");
    let gone = Claim { uid: "a".into(), ..Claim::default() };
    table.arbiter.see_claims(&[watch::News::Gone(Arc::new(gone))], table.now);
    table.finish("pvc-a", failed(false));
    table.did();
    table.pass(3600);
    assert!(table.did().is_empty());
    assert_eq!(table.arbiter.next_alarm(), None);
}

#[test]
fn a_released_volume_is_removed_once() {
    let mut table = Table::leading(rules());
    table.volume("a", Phase::Bound);
    assert!(table.did().is_empty());
    table.volume("a", Phase::Released);
    assert_eq!(table.did(), ["Delete(Released) pvc-a"]);
    table.volume("a", Phase::Released);
    table.finish("pvc-a", Outcome::Removed);
    table.volume("a", Phase::Released);
    table.arbiter.resync(table.now);
    assert!(table.did().is_empty(), "late news of a volume that we removed");
}

#[test]
fn a_fence_that_failed_is_decided_anew_when_the_watch_shows_why() {
    let mut table = Table::leading(rules());
    table.volume("a", Phase::Released);
    table.did();
    table.finish("pvc-a", Outcome::Superseded("the volume has changed".to_owned()));
    assert!(table.did().is_empty(), "not on the same view");
    table.volume("a", Phase::Released);
    assert_eq!(table.did(), ["Delete(Released) pvc-a"]);
    table.finish("pvc-a", Outcome::Superseded("the volume has changed".to_owned()));
    table.pass(1);
    assert_eq!(table.did(), ["Delete(Released) pvc-a"], "and in any case after a second");
}

#[test]
fn what_the_backend_ignores_is_left_alone_until_it_changes() {
    let mut table = Table::leading(rules());
    table.claim("a");
    table.finish("pvc-a", Outcome::Ignored("other site".to_owned()));
    table.did();
    table.pass(3600);
    table.arbiter.resync(table.now);
    assert!(table.did().is_empty());
    table.claim_as("a", |claim| claim.selected_node = Some("n".into()));
    assert_eq!(table.did(), ["provision pvc-a"]);
}

#[test]
fn a_threshold_gives_up_until_something_changes_and_never_on_an_unknown_outcome() {
    let mut table = Table::leading(Rules { provision_threshold: 2, ..rules() });
    table.claim("a");
    for unknown in [true, true, false] {
        table.finish("pvc-a", failed(unknown));
        table.pass(1000);
    }
    table.did();
    table.pass(100_000);
    assert!(table.did().is_empty());
    assert_eq!(table.arbiter.pending_by_reason()["GivenUp"], 1);
    table.class_with("fast", OURS, "uid-2");
    assert_eq!(table.did(), ["provision pvc-a"]);
}

#[test]
fn a_missing_class_is_told_once_and_awaited() {
    let mut table = Table::leading(rules());
    table.claim_as("a", |claim| claim.class = Some("gold".into()));
    assert_eq!(table.did(), ["tell a ProvisioningFailed"]);
    table.arbiter.resync(table.now);
    assert!(table.did().is_empty());
    table.class("gold", OURS);
    assert_eq!(table.did(), ["provision pvc-a"]);
}

#[test]
fn a_standby_tells_nothing_and_a_new_leader_does() {
    let mut table = Table::with(rules());
    table.sync();
    table.claim_as("a", |claim| claim.block = true);
    assert!(table.did().is_empty());
    table.lead(50);
    assert_eq!(table.did(), ["tell a ProvisioningFailed"]);
}

#[test]
fn losing_the_lease_stops_everything_and_a_key_starts_again_only_after_it_has_stopped() {
    let mut table = Table::leading(rules());
    table.claim("a");
    table.did();
    table.arbiter.leadership(None, table.now);
    assert_eq!(table.did(), ["stop pvc-a"]);
    table.lead(60);
    assert_eq!(table.did(), ["stop pvc-a"], "the old epoch's operation is still there");
    table.finish("pvc-a", Outcome::Stopped { unknown: true });
    assert_eq!(table.did(), ["provision pvc-a, unknown"]);
}

#[test]
fn a_volume_that_another_leader_saved_settles_what_was_unknown_here() {
    let mut table = Table::leading(rules());
    table.claim("a");
    table.arbiter.leadership(None, table.now);
    table.finish("pvc-a", Outcome::Stopped { unknown: true });
    table.volume("a", Phase::Bound);
    let gone = Claim { uid: "a".into(), ..Claim::default() };
    table.arbiter.see_claims(&[watch::News::Gone(Arc::new(gone))], table.now);
    let volume = table.volume_of("a", Phase::Bound);
    table.arbiter.see_volumes(&[watch::News::Gone(Arc::new(volume))], table.now);
    table.did();
    table.lead(70);
    assert!(table.did().is_empty(), "nothing is made anew for a claim that is gone");
}

#[test]
fn a_drain_starts_nothing_more() {
    let mut table = Table::leading(Rules { provision_workers: 1, ..rules() });
    table.claim("a");
    table.claim("b");
    assert_eq!(table.did(), ["provision pvc-a"]);
    table.arbiter.drain();
    let volume = table.volume_of("a", Phase::Pending);
    table.finish("pvc-a", Outcome::Saved(volume.into()));
    assert_eq!(table.did(), ["tell a ProvisioningSucceeded"]);
    assert_eq!(table.arbiter.running(), 0);
}

#[test]
fn without_a_mark_or_with_an_older_version_a_claim_is_read_live() {
    let mut table = Table::with(rules());
    table.sync();
    table.claim("a");
    let guard = guard(50);
    table.arbiter.leadership(Some(guard.clone()), table.now);
    assert_eq!(table.did(), ["provision pvc-a, reading"]);
    table.arbiter.mark_read(&guard, table.version + 1);
    table.claim("b");
    table.claim("c");
    assert_eq!(table.did(), ["provision pvc-b", "provision pvc-c"]);
}

#[test]
fn deletions_that_hang_never_hold_up_claims() {
    let mut table = Table::leading(Rules { delete_workers: 2, ..rules() });
    for n in 0..30 {
        table.volume(&format!("v{n}"), Phase::Released);
    }
    assert_eq!(table.did().len(), 2);
    table.claim("a");
    assert_eq!(table.did(), ["provision pvc-a"]);
}

#[test]
fn a_node_that_goes_wakes_the_claims_that_were_to_go_to_it() {
    let mut table = Table::leading(rules());
    let node = Node { name: "n".into(), ..Node::default() };
    table.arbiter.see_nodes(&[watch::News::Seen(Arc::new(node.clone()))], table.now);
    table.claim_as("a", |claim| claim.selected_node = Some("n".into()));
    table.finish("pvc-a", failed(false));
    table.did();
    table.arbiter.see_nodes(&[watch::News::Gone(Arc::new(node))], table.now);
    assert_eq!(table.did(), ["provision pvc-a"]);
}

#[test]
fn an_orphan_is_removed_unless_a_claim_or_a_volume_of_it_is_known() {
    let mut table = Table::leading(rules());
    let asset = |uid: &str| Asset {
        volume_name: format!("pvc-{uid}"),
        claim: Some(crate::provisioner::AssetClaim { uid: uid.to_owned(), ..Default::default() }),
        ..Asset::default()
    };
    table.claim("a");
    table.volume("b", Phase::Bound);
    table.did();
    let unknown = table.arbiter.unknown_among(vec![asset("a"), asset("b"), asset("c")]);
    assert_eq!(unknown, [asset("c")]);
    table.arbiter.remove_orphans(vec![asset("b"), asset("c")], table.now);
    assert_eq!(table.did(), ["remove orphan pvc-c"]);
    table.finish("pvc-c", failed(false));
    table.pass(3600);
    assert!(table.did().is_empty(), "the next audit finds it again");
}

#[test]
fn an_orphan_whose_claim_appears_waits_for_no_removal() {
    let mut table = Table::leading(Rules { delete_workers: 1, ..rules() });
    table.volume("b", Phase::Released);
    table.did();
    let asset = Asset { volume_name: "pvc-c".to_owned(), ..Asset::default() };
    table.arbiter.remove_orphans(vec![asset], table.now);
    table.claim("c");
    assert_eq!(table.did(), ["provision pvc-c"]);
}
