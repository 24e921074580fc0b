//! `cargo chaos check`: judges a history again, at any later time. The rules are in [`crate::history::check`].

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use clap::Args;

use crate::history::{
    self,
    check::{Bounds, Invariant, Verdict},
};

/// Judge a history that a run has left.
#[derive(Clone, Debug, Args)]
pub struct Check {
    /// The history: JSON lines
    path: PathBuf,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
    /// Seconds after the last fault within which each claim has to be bound or gone
    #[arg(long, default_value_t = Bounds::default().settle.as_secs())]
    settle: u64,
}

/// Judges, and prints the verdict.
///
/// # Errors
/// If the history can't be read, or something in it must not be.
pub fn run(options: &Check) -> Result<()> {
    let history = history::read(&options.path)?;
    let bounds = Bounds { settle: Duration::from_secs(options.settle), ..Bounds::default() };
    let verdict = history::check::check(&history, &bounds);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&verdict)?);
    } else {
        print!("{}", told(&verdict, history.first().map_or(0, |entry| entry.at)));
    }
    ensure!(verdict.violations.is_empty(), "{} violations", verdict.violations.len());
    Ok(())
}

/// A line for each invariant, and one for each violation, with seconds since the beginning.
fn told(verdict: &Verdict, start: u64) -> String {
    let mut lines = Vec::new();
    for invariant in Invariant::ALL {
        let (facts, broken) = (verdict.facts(invariant), verdict.against(invariant).count());
        let word = match (broken, facts) {
            (0, 0) => "nothing to look at".to_owned(),
            (0, _) => format!("{facts} looked at"),
            _ => format!("{facts} looked at, {broken} VIOLATIONS"),
        };
        lines.push(format!("{:<26}{word}\n", invariant.name()));
    }
    for violation in &verdict.violations {
        let seconds = Duration::from_nanos(violation.at.saturating_sub(start)).as_secs_f64();
        lines.push(format!("{seconds:>9.3} s {}: {}\n", violation.invariant.name(), violation.words));
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Entry, What};

    fn check_of(history: &mut [Entry]) -> Result<()> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.jsonl");
        history::write(&path, history).unwrap();
        run(&Check { path, json: false, settle: 60 })
    }

    #[test]
    fn a_history_with_two_leaders_fails_the_command() {
        let believes = |at, party: &str, epoch| Entry {
            at,
            party: party.to_owned(),
            what: What::Believes { epoch, left: 10 },
        };
        check_of(&mut [believes(0, "r0", 5), believes(10, "r1", 9)]).unwrap();
        let error = check_of(&mut [believes(0, "r0", 5), believes(9, "r1", 9)]).unwrap_err();
        assert_eq!(error.to_string(), "1 violations");
    }

    #[test]
    fn what_was_not_looked_at_is_said() {
        let text = told(&Verdict::default(), 0);
        assert_eq!(text.matches("nothing to look at").count(), Invariant::ALL.len(), "{text}");
    }
}
