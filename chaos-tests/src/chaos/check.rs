//! `cargo chaos check`: judges a history again, at any later time. The rules are in [`crate::history::check`].

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};
use clap::Args;

use crate::history::{
    self,
    check::{Bounds, Invariant, Verdict},
    report::{Report, Run},
};

/// Judge a history that a run has left.
#[derive(Clone, Debug, Args)]
pub struct Check {
    /// Histories: JSON lines
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
    /// Write the report of these histories, as HTML and as JSON, into this directory
    #[arg(long)]
    report: Option<PathBuf>,
    /// Seconds after the last fault within which each claim has to be bound or gone
    #[arg(long, default_value_t = Bounds::default().settle.as_secs())]
    settle: u64,
}

/// Judges, and prints the verdict.
///
/// # Errors
/// If the history can't be read, or something in it must not be.
pub fn run(options: &Check) -> Result<()> {
    let bounds = Bounds { settle: Duration::from_secs(options.settle), ..Bounds::default() };
    let runs: Result<Vec<Run>> = options.paths.iter().map(|path| judged(path, &bounds)).collect();
    let report = Report { runs: runs?, ..Report::default() };
    for (path, run) in options.paths.iter().zip(&report.runs) {
        if options.json {
            println!("{}", serde_json::to_string_pretty(&run.verdict)?);
        } else {
            print!("{}\n{}", path.display(), told(&run.verdict, run.timeline.start));
        }
    }
    options.report.as_ref().map_or(Ok(()), |directory| report.write(directory))?;
    let violations = report.totals().violations;
    ensure!(violations == 0, "{violations} violations");
    Ok(())
}

/// The history of one run. Its directory is named after its scenario and its seed.
fn judged(path: &Path, bounds: &Bounds) -> Result<Run> {
    let history = history::read(path)?;
    let length = history.last().zip(history.first()).map_or(0, |(last, first)| last.at - first.at);
    let directory = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let parts = directory.rsplit_once('-').and_then(|(scenario, seed)| Some((scenario, seed.parse().ok()?)));
    let (scenario, seed) = parts.unwrap_or((&*directory, 0));
    Ok(Run::judged(scenario, seed, Duration::from_nanos(length).as_secs_f64(), &history, bounds))
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
        run(&Check { paths: vec![path], json: false, report: None, settle: 60 })
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
