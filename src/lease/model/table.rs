//! The table of variants, each with the verdict that is expected of it.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::{bare::Bare, world::Row};
use crate::lease::machine::mistakes::Mistake::{self, *};

fn safe(row: Row) {
    let begun = Instant::now();
    let checker = row.clone().checker().threads(2).spawn_bfs().join();
    println!("{} states in {:?}: {row:?}", checker.unique_state_count(), begun.elapsed());
    checker.assert_properties();
}

fn two_leaders(row: Row) {
    let begun = Instant::now();
    let found = HasDiscoveries::AnyOf(["one leader"].into());
    let checker = row.clone().checker().threads(2).finish_when(found).spawn_bfs().join();
    println!("{} states in {:?}: {row:?}", checker.unique_state_count(), begun.elapsed());
    let path = checker.discovery("one leader").unwrap_or_else(|| panic!("safe after all: {row:?}"));
    println!("two leaders after {:?}", path.into_actions());
}

/// Without our own observation, without a deadline: what the crate does, in our machine's words.
const TRUSTING: [Mistake; 3] = [ForeignClock, NoDeadline, HolderIsProof];

#[test]
fn the_bare_crate_has_two_leaders() {
    let found = Bare { ticks: 4 }.checker().spawn_bfs().join();
    assert!(found.discovery("one leader").is_some());
}

#[test]
fn a_version_alone_is_not_enough() {
    two_leaders(Row { mistakes: &TRUSTING, ticks: Some(14), ..Row::PLAIN });
}

#[test]
fn a_deadline_alone_is_not_enough() {
    two_leaders(Row {
        mistakes: &[NoCompareAndSwap, ForeignClock, HolderUnchecked],
        ticks: Some(14),
        ..Row::PLAIN
    });
}

#[test]
fn version_and_deadline_are_safe_while_all_clocks_agree() {
    safe(Row { mistakes: &[ForeignClock], ticks: Some(14), writes: 4, ..Row::PLAIN });
}

#[test]
fn version_and_deadline_are_not_enough_when_one_clock_is_ahead() {
    two_leaders(Row { mistakes: &[ForeignClock], ahead: &[0, 3, 0], ticks: Some(14), ..Row::PLAIN });
}

#[test]
fn with_our_own_observation_clocks_may_be_off_both_ways() {
    safe(Row { ahead: &[-3, 3, 0], ticks: Some(14), writes: 3, ..Row::PLAIN });
    safe(Row { writes: 3, restarts: 1, ..Row::PLAIN });
}

#[test]
fn a_conditional_step_down_is_safe() {
    safe(Row { writes: 5, step_downs: 1, ..Row::PLAIN });
}

#[test]
fn an_unconditional_step_down_is_not() {
    two_leaders(Row { mistakes: &[UnconditionalStepDown], step_downs: 1, restarts: 1, ..Row::PLAIN });
}

#[test]
fn that_the_holder_is_me_proves_nothing_after_a_lost_answer() {
    two_leaders(Row { mistakes: &[HolderIsProof], losses: 1, ..Row::PLAIN });
}

#[test]
fn an_emptied_or_deleted_lease_is_not_free() {
    two_leaders(Row { mistakes: &[AnyEmptyingIsFree], meddlings: 1, ..Row::PLAIN });
}

#[test]
fn the_full_protocol_is_safe_with_lost_answers_and_a_third_party() {
    safe(Row { writes: 3, losses: 1, meddlings: 1, ..Row::PLAIN });
    safe(Row { writes: 4, meddlings: 1, ..Row::PLAIN });
}

#[test]
fn the_full_protocol_is_safe_among_three() {
    safe(Row { replicas: 3, writes: 3, ..Row::PLAIN });
}
