//! The rules of the protocol, one sentence each, without wire or clock.

use super::*;

fn candidate() -> Arc<Candidate> {
    Arc::new(Candidate {
        me: "me".into(),
        provisioner: "ours".into(),
        lease: Duration::from_secs(15),
        hold: Duration::from_secs(10),
        mistakes: mistakes::Mistakes::default(),
        wall_ahead: 0,
    })
}

fn at(seconds: u64) -> BootTime {
    BootTime::from_boot(Duration::from_secs(1_000 + seconds))
}

fn stored(version: u64, holder: Option<&str>, renewed: i64) -> Stored {
    Stored {
        version,
        uid: "uid".into(),
        holder: holder.map(Name::from),
        renewed: Some(Stamp(renewed)),
        duration: Duration::from_secs(15),
        released_by: None,
        restored: Restored::default(),
        provisioner: None,
    }
}

fn read(machine: &mut Machine, now: BootTime, found: Stored) -> Shown {
    let ticket = machine.begin_read();
    machine.end_read(now, ticket, Some(found))
}

/// Leads since `at(15)`, with version 2 and renewTime 100.
fn leader() -> Machine {
    let mut machine = Machine::new(candidate());
    read(&mut machine, at(0), stored(1, Some("other"), 1));
    assert_eq!(read(&mut machine, at(15), stored(1, Some("other"), 1)), Shown::Free);
    assert_eq!(machine.begin_write(at(15), Kind::Acquire, Stamp(100)), Ok(1));
    machine.end_write(at(15), Stamp(100), Fate::Written(stored(2, Some("me"), 100)));
    assert_eq!(machine.term().unwrap().valid_until, at(25));
    machine
}

#[test]
fn a_lease_is_free_when_i_have_seen_no_change_for_its_duration() {
    let mut machine = Machine::new(candidate());
    assert_eq!(read(&mut machine, at(0), stored(1, Some("other"), 1)), Shown::Held);
    assert_eq!(read(&mut machine, at(14), stored(1, Some("other"), 1)), Shown::Held);
    assert_eq!(read(&mut machine, at(14), stored(2, Some("other"), 2)), Shown::Held);
    assert_eq!(read(&mut machine, at(28), stored(2, Some("other"), 2)), Shown::Held);
    assert_eq!(read(&mut machine, at(29), stored(2, Some("other"), 2)), Shown::Free);
}

#[test]
fn a_longer_stored_duration_is_honoured_and_a_shorter_one_is_not() {
    let mut machine = Machine::new(candidate());
    let long = Stored { duration: Duration::from_secs(60), ..stored(1, Some("other"), 1) };
    read(&mut machine, at(0), long);
    let shortened = Stored { duration: Duration::ZERO, ..stored(2, Some("other"), 1) };
    read(&mut machine, at(1), shortened.clone());
    assert_eq!(
        read(&mut machine, at(59), shortened.clone()),
        Shown::Held,
        "the holder was promised a minute"
    );
    assert_eq!(read(&mut machine, at(60), shortened), Shown::Free);
}

#[test]
fn an_absurd_duration_is_forgotten_once_it_is_put_right() {
    let mut machine = Machine::new(candidate());
    let endless =
        Stored { duration: Duration::from_secs(u64::from(u32::MAX)), ..stored(1, Some("other"), 1) };
    read(&mut machine, at(0), endless);
    assert!(machine.absurd_duration().is_some());
    read(&mut machine, at(100), stored(2, Some("other"), 1));
    assert_eq!(read(&mut machine, at(115), stored(2, Some("other"), 1)), Shown::Free);
}

#[test]
fn a_release_counts_only_while_its_own_renew_time_is_stored() {
    let release = |renewed| Some(Release { holder: "other".into(), renewed: Stamp(renewed) });
    let mut machine = Machine::new(candidate());
    let genuine = Stored { released_by: release(7), ..stored(1, None, 7) };
    assert_eq!(read(&mut machine, at(0), genuine), Shown::Free);
    for stale in [
        Stored { released_by: release(7), ..stored(2, None, 8) },
        Stored { released_by: release(7), ..stored(3, Some("other"), 7) },
        Stored { released_by: release(7), renewed: None, ..stored(4, None, 0) },
    ] {
        assert_eq!(read(&mut machine, at(0), stale), Shown::Held);
    }
}

#[test]
fn a_watch_event_that_is_not_newer_is_dropped() {
    let mut machine = leader();
    machine.watched(at(16), stored(2, Some("other"), 1));
    machine.watched(at(16), stored(1, None, 1));
    machine.watched_deletion(at(16), 2);
    assert!(machine.term().is_some());
    machine.watched(at(16), stored(3, Some("other"), 1));
    assert!(machine.term().is_none());
    assert_eq!(machine.take_ending(), Some(Ending::Overwritten(Some("other".into()))));
}

#[test]
fn a_read_that_a_watch_event_has_outrun_decides_nothing() {
    let mut machine = leader();
    let ticket = machine.begin_read();
    machine.watched(at(16), stored(3, Some("other"), 1));
    assert_eq!(machine.end_read(at(16), ticket, Some(stored(2, Some("me"), 100))), Shown::Held);
    assert!(machine.term().is_none() && machine.take_ending() != Some(Ending::Restored));
}

#[test]
fn an_answer_that_a_watch_event_has_outrun_makes_no_leader() {
    let mut machine = Machine::new(candidate());
    read(&mut machine, at(0), stored(1, Some("other"), 1));
    read(&mut machine, at(15), stored(1, Some("other"), 1));
    machine.begin_write(at(15), Kind::Acquire, Stamp(100)).unwrap();
    machine.watched(at(15), stored(3, Some("thief"), 5));
    machine.end_write(at(15), Stamp(100), Fate::Written(stored(2, Some("me"), 100)));
    assert!(machine.term().is_none());
}

#[test]
fn only_a_read_may_go_back_and_it_ends_the_leadership() {
    let mut machine = leader();
    assert_eq!(read(&mut machine, at(16), stored(1, Some("me"), 100)), Shown::Held);
    assert_eq!(machine.take_ending(), Some(Ending::Restored));
}

#[test]
fn one_read_allows_one_write() {
    let mut machine = leader();
    assert_eq!(machine.begin_write(at(16), Kind::Renew, Stamp(101)), Err(NotAllowed));
    read(&mut machine, at(16), stored(2, Some("me"), 100));
    assert_eq!(machine.begin_write(at(16), Kind::Acquire, Stamp(101)), Err(NotAllowed));
    read(&mut machine, at(16), stored(2, Some("me"), 100));
    assert_eq!(machine.begin_write(at(16), Kind::Renew, Stamp(101)), Ok(2));
    assert_eq!(machine.begin_write(at(16), Kind::Renew, Stamp(102)), Err(NotAllowed));
}

#[test]
fn a_leadership_ends_at_its_deadline_and_a_late_answer_starts_another() {
    let mut machine = leader();
    read(&mut machine, at(20), stored(2, Some("me"), 100));
    machine.begin_write(at(20), Kind::Renew, Stamp(101)).unwrap();
    machine.end_write(at(26), Stamp(101), Fate::Written(stored(3, Some("me"), 101)));
    let term = machine.term().unwrap();
    assert_eq!((term.number, term.valid_until), (3, at(30)), "a new epoch, counted from when it was sent");
    let mut machine = leader();
    read(&mut machine, at(16), stored(2, Some("me"), 100));
    machine.begin_write(at(16), Kind::Renew, Stamp(101)).unwrap();
    machine.end_write(at(26), Stamp(101), Fate::Written(stored(3, Some("me"), 101)));
    assert!(machine.term().is_none(), "an answer after the hold makes nobody leader");
}

#[test]
fn after_the_hold_a_lost_write_proves_nothing() {
    let mut machine = leader();
    read(&mut machine, at(16), stored(2, Some("me"), 100));
    machine.begin_write(at(16), Kind::Renew, Stamp(101)).unwrap();
    machine.end_write(at(17), Stamp(101), Fate::Unknown);
    assert_eq!(read(&mut machine, at(26), stored(3, Some("me"), 101)), Shown::Held);
    assert!(machine.term().is_none());
}

#[test]
fn a_write_that_was_refused_is_not_looked_for() {
    let mut machine = leader();
    read(&mut machine, at(16), stored(2, Some("me"), 100));
    machine.begin_write(at(16), Kind::Renew, Stamp(101)).unwrap();
    machine.end_write(at(16), Stamp(101), Fate::of_status(403));
    assert_eq!(read(&mut machine, at(17), stored(3, Some("me"), 101)), Shown::Held);
    assert!(matches!(Fate::of_status(504), Fate::Unknown) && matches!(Fate::of_status(409), Fate::Unknown));
}

#[test]
fn no_two_writes_of_ours_carry_one_renew_time() {
    let machine = leader();
    assert_eq!(machine.fresh_stamp(Stamp(100)), Stamp(101));
    assert_eq!(machine.fresh_stamp(Stamp(5)), Stamp(5));
}

#[test]
fn a_step_down_ends_the_leadership_first_and_acquires_nothing_after() {
    let mut machine = leader();
    machine.step_down();
    assert!(machine.term().is_none() && machine.may_hold());
    assert_eq!(read(&mut machine, at(16), stored(2, Some("me"), 100)), Shown::Mine);
    assert_eq!(machine.begin_write(at(16), Kind::StepDown, Stamp(101)), Ok(2));
    machine.end_write(at(16), Stamp(101), Fate::Written(stored(3, None, 101)));
    read(&mut machine, at(60), stored(3, None, 101));
    assert_eq!(machine.begin_write(at(60), Kind::Acquire, Stamp(102)), Err(NotAllowed));
}

#[test]
fn a_lease_of_another_provisioner_is_held_for_ever() {
    let mut machine = Machine::new(candidate());
    let foreign = Stored { provisioner: Some("theirs".into()), ..stored(1, None, 1) };
    read(&mut machine, at(0), foreign.clone());
    assert_eq!(read(&mut machine, at(10_000), foreign), Shown::Held);
    assert_eq!(machine.other_provisioner().map(|name| &**name), Some("theirs"));
}

fn tells(version: u64, told: &str, from: u64) -> Stored {
    Stored { restored: Restored { told: Some(told.into()), from }, ..stored(version, Some("other"), 1) }
}

#[test]
fn a_lease_that_went_back_is_told_once_by_leaders_and_standbys_until_it_stands_in_the_lease() {
    let mut machine = Machine::new(candidate());
    read(&mut machine, at(0), stored(500, Some("other"), 1));
    assert!(!machine.take_forgets() && machine.untold().is_none());
    read(&mut machine, at(1), stored(160, Some("other"), 1));
    assert!(machine.take_forgets() && !machine.take_forgets());
    assert_eq!(machine.untold().map(|(relapse, _)| relapse), Some(Relapse::Lease));
    assert!(machine.restored().told.is_some(), "from now on, written or not");
    machine.told(at(2), tells(161, "by me", 0));
    assert!(machine.untold().is_none() && !machine.take_forgets());
    read(&mut machine, at(3), stored(162, Some("other"), 1));
    assert_eq!(machine.restored().told, None, "people took it off");
}

#[test]
fn who_hears_of_a_restore_that_another_found_forgets_too_and_who_never_knew_better_does_not() {
    let mut machine = Machine::new(candidate());
    read(&mut machine, at(0), tells(200, "long ago", 0));
    assert!(!machine.take_forgets());
    read(&mut machine, at(1), tells(700, "by another", 0));
    assert!(machine.take_forgets());
    assert!(machine.untold().is_none());
}

#[test]
fn a_mark_ahead_is_a_restore_unless_one_is_known_and_then_only_its_version_is_told() {
    let mut machine = Machine::new(candidate());
    read(&mut machine, at(0), stored(100, Some("other"), 1));
    machine.relapsed(Relapse::Mark(900));
    assert!(machine.take_forgets());
    machine.told(at(1), tells(101, "by me", 900));
    machine.relapsed(Relapse::Mark(950));
    assert!(!machine.take_forgets());
    assert_eq!(machine.untold().map(|(relapse, _)| relapse), Some(Relapse::Mark(950)));
    machine.told(at(2), tells(102, "by me", 950));
    assert!(machine.untold().is_none());
}
