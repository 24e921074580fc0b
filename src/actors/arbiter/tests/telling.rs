//! What metrics and traces are told: the queue's comings and goings, waits, and the ends of stories.

use super::*;

/// What the queue and the traces are told, in words.
fn told(table: &mut Table) -> Vec<String> {
    let line = |effect: &Effect| match effect {
        Effect::Start { task, .. } => Some(format!("start {}", task.name())),
        Effect::Queued(lane) => Some(format!("queued {lane:?}")),
        Effect::Unqueued(lane) => Some(format!("unqueued {lane:?}")),
        Effect::Waited(Waited { uid, reason, start, end }) => {
            Some(format!("{uid} waited {:?} for {reason}", end.saturating_since(*start)))
        }
        Effect::Over(story) => {
            let binding = story.bound.map(|bound| bound.saturating_since(story.saved));
            Some(format!("{} over, bound after {binding:?}", story.task.claim.uid))
        }
        _ => None,
    };
    table.arbiter.take_effects().iter().filter_map(line).collect()
}

fn saved(table: &mut Table, uid: &str) {
    let volume = table.volume_of(uid, Phase::Pending);
    table.finish(&format!("pvc-{uid}"), Outcome::Saved(volume.into()));
}

fn bind(table: &mut Table, uid: &str) {
    let name = format!("pvc-{uid}");
    table.claim_as(uid, |claim| {
        claim.volume_name = Some(name.into());
        claim.bound = true;
    });
}

#[test]
fn every_key_that_enters_the_queue_leaves_it_started_or_not_on_standbys_too() {
    let mut table = Table::with(rules());
    table.claim("a");
    table.claim("b");
    table.sync();
    assert_eq!(told(&mut table), ["queued Provision", "queued Provision"]);
    let gone = Claim { uid: "b".into(), ..Claim::default() };
    table.arbiter.see_claims(&[watch::News::Gone(Arc::new(gone))], table.now);
    assert_eq!(told(&mut table), ["unqueued Provision"]);
    table.lead(50);
    assert_eq!(told(&mut table), ["start pvc-a"]);
    saved(&mut table, "a");
    bind(&mut table, "a");
    table.volume("a", Phase::Released);
    assert_eq!(told(&mut table), ["a over, bound after Some(0ns)", "queued Remove", "start pvc-a"]);
}

#[test]
fn a_trace_tells_what_was_waited_for_and_ends_when_the_claim_is_bound() {
    let mut table = Table::leading(rules());
    table.claim_as("a", |claim| claim.provisioner = None);
    table.pass(2);
    table.claim("a");
    assert_eq!(told(&mut table), ["a waited 2s for NotNamedYet", "queued Provision", "start pvc-a"]);
    table.finish("pvc-a", failed(false));
    table.pass(15);
    assert_eq!(told(&mut table), ["a waited 15s for BackingOff", "queued Provision", "start pvc-a"]);
    saved(&mut table, "a");
    table.pass(3);
    assert!(told(&mut table).is_empty(), "the user still waits");
    bind(&mut table, "a");
    assert_eq!(told(&mut table), ["a over, bound after Some(3s)"]);
    bind(&mut table, "a");
    assert!(told(&mut table).is_empty(), "told twice");
}

#[test]
fn waiting_in_the_queue_of_a_standby_is_no_wait_and_a_time_without_leader_is() {
    let mut table = Table::with(rules());
    table.sync();
    table.claim("old");
    table.pass(60);
    table.claim("new");
    table.pass(2);
    told(&mut table);
    table.arbiter.lead_after(Duration::from_secs(5), guard(50), table.now);
    let mut told = told(&mut table);
    told.sort();
    let expected =
        ["new waited 2s for Leaderless", "old waited 5s for Leaderless", "start pvc-new", "start pvc-old"];
    assert_eq!(told, expected);
}

#[test]
fn a_story_is_told_once_also_where_its_end_is_not_seen() {
    let mut table = Table::leading(rules());
    for uid in ["a", "b", "c"] {
        table.claim(uid);
    }
    saved(&mut table, "a");
    told(&mut table);
    let gone = Claim { uid: "a".into(), ..Claim::default() };
    table.arbiter.see_claims(&[watch::News::Gone(Arc::new(gone))], table.now);
    saved(&mut table, "b");
    table.arbiter.leadership(None, table.now);
    saved(&mut table, "c");
    bind(&mut table, "b");
    let over = ["a over, bound after None", "b over, bound after None", "c over, bound after None"];
    let told = told(&mut table);
    assert_eq!(told.iter().filter(|line| line.contains("over")).collect::<Vec<_>>(), over);
}
