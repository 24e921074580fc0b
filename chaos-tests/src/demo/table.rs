//! The live picture: replicas, progress, and a cell for each claim. Makes text; writes none.

use std::time::Duration;

use super::world::{Progress, World};

const COLUMNS: usize = 4;
const BAR_WIDTH: usize = 32;

/// What is being waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Goal {
    /// What the claims become, such as `Bound`.
    pub(super) word: &'static str,
    pub(super) done: usize,
    pub(super) total: usize,
    pub(super) elapsed: Duration,
}

/// A replica, as its row shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplicaRow {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) role: Role,
}

/// What a replica does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Leader,
    Standby,
    Killed,
    /// Killed, and its Lease has not run out yet.
    KilledLeader,
}

/// A colour or weight of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
}

impl Style {
    pub(super) fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// The role of the replica `name`.
pub(super) fn role(name: &str, runs: bool, leader: Option<&str>) -> Role {
    match (runs, leader == Some(name)) {
        (true, true) => Role::Leader,
        (true, false) => Role::Standby,
        (false, true) => Role::KilledLeader,
        (false, false) => Role::Killed,
    }
}

/// All lines, for a terminal.
pub(super) fn picture(replicas: &[ReplicaRow], world: &World, goal: &Goal) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(replicas.iter().map(replica));
    lines.push(String::new());
    lines.push(format!("  {}", bar(goal)));
    lines.push(String::new());
    let cells: Vec<String> =
        world.claims.iter().map(|(name, claim)| cell(name, world.progress(claim))).collect();
    lines.extend(by_columns(&cells));
    lines.push(String::new());
    lines
}

/// The goal in words, for output that is no terminal.
pub(super) fn sentence(goal: &Goal) -> String {
    let Goal { word, done, total, elapsed } = goal;
    format!("{done} of {total} claims {word} after {:.1} s", elapsed.as_secs_f32())
}

/// How many quarters of the goal are reached: plain output has a line for each.
pub(super) const fn quarters(goal: &Goal) -> usize {
    match (goal.done * 4).checked_div(goal.total) {
        Some(quarters) => quarters,
        None => 4,
    }
}

fn replica(row: &ReplicaRow) -> String {
    let ReplicaRow { name, pid, role } = row;
    let (mark, word) = match role {
        Role::Leader => (Style::Green.paint("▶"), Style::Green.paint("leader")),
        Role::Standby => (Style::Dim.paint("·"), Style::Dim.paint("standby")),
        Role::Killed => (Style::Red.paint("✗"), Style::Red.paint("killed")),
        Role::KilledLeader => {
            (Style::Red.paint("✗"), Style::Red.paint("killed, its Lease has yet to run out"))
        }
    };
    format!("  {mark} {name}  pid {pid:<8} {word}")
}

fn bar(goal: &Goal) -> String {
    let Goal { word, done, total, elapsed } = goal;
    let filled = (BAR_WIDTH * done).checked_div(*total).unwrap_or(BAR_WIDTH).min(BAR_WIDTH);
    let (full, empty) = ("█".repeat(filled), "░".repeat(BAR_WIDTH - filled));
    let style = if done >= total { Style::Green } else { Style::Yellow };
    format!("{word:<6} {}{empty} {done:>3} of {total}  {:>5.1} s", style.paint(&full), elapsed.as_secs_f32())
}

fn cell(name: &str, progress: Progress) -> String {
    let (mark, word, style) = match progress {
        Progress::Pending => ("○", "pending", Style::Yellow),
        Progress::Provisioned => ("◐", "volume", Style::Yellow),
        Progress::Bound => ("●", "Bound", Style::Green),
        Progress::Deleting => ("◌", "deleting", Style::Dim),
        Progress::Gone => (" ", "gone", Style::Dim),
    };
    format!("{} {name} {}", style.paint(mark), style.paint(&format!("{word:<8}")))
}

/// Down each column, as a list of files is shown.
fn by_columns(cells: &[String]) -> Vec<String> {
    let rows = cells.len().div_ceil(COLUMNS);
    let row = |first: usize| {
        let row: Vec<&str> = cells.iter().skip(first).step_by(rows.max(1)).map(String::as_str).collect();
        format!("  {}", row.join("  "))
    };
    (0..rows).map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn goal(done: usize, total: usize) -> Goal {
        Goal { word: "Bound", done, total, elapsed: Duration::from_millis(1_250) }
    }

    fn without_styles(line: &str) -> String {
        line.split('\x1b').enumerate().fold(String::new(), |text, (number, part)| match number {
            0 => text + part,
            _ => text + part.split_once('m').map_or("", |(_, rest)| rest),
        })
    }

    #[test]
    fn a_dead_holder_of_the_lease_is_told_from_a_dead_standby() {
        assert_eq!(role("a", true, Some("a")), Role::Leader);
        assert_eq!(role("a", true, None), Role::Standby);
        assert_eq!(role("a", false, Some("a")), Role::KilledLeader);
        assert_eq!(role("a", false, Some("b")), Role::Killed);
    }

    #[test]
    fn forty_claims_and_three_replicas_fit_a_small_terminal() {
        let mut world = World::default();
        for number in 1..=40 {
            world.claim_seen(&format!("demo-{number:02}"), &number.to_string(), false, false, Instant::now());
        }
        let replicas: Vec<ReplicaRow> = (1..=3)
            .map(|number| ReplicaRow {
                name: format!("replica-{number}"),
                pid: 4_194_304,
                role: Role::KilledLeader,
            })
            .collect();
        let lines: Vec<String> =
            picture(&replicas, &world, &goal(40, 40)).iter().map(|l| without_styles(l)).collect();
        assert!(lines.len() < 24, "{} lines", lines.len());
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        assert_eq!(lines.iter().filter(|line| line.contains("demo-")).count(), 10);
    }

    #[test]
    fn claims_run_down_the_columns() {
        let cells: Vec<String> = (1..=6).map(|number| number.to_string()).collect();
        assert_eq!(by_columns(&cells), ["  1  3  5", "  2  4  6"]);
        assert!(by_columns(&[]).is_empty());
    }

    #[test]
    fn the_bar_is_full_at_the_goal_and_never_longer() {
        for (done, full) in [(0, 0), (10, 16), (20, 32), (25, 32)] {
            let bar = bar(&goal(done, 20));
            assert_eq!(bar.matches('█').count(), full, "{bar}");
            assert_eq!(bar.matches('░').count(), 32 - full, "{bar}");
        }
    }

    #[test]
    fn plain_output_has_a_line_for_each_quarter() {
        let quarters: Vec<usize> = [0, 4, 5, 10, 19, 20].map(|done| quarters(&goal(done, 20))).to_vec();
        assert_eq!(quarters, [0, 0, 1, 2, 3, 4]);
        assert_eq!(sentence(&goal(10, 20)), "10 of 20 claims Bound after 1.2 s");
    }
}
