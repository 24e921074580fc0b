//! Processes live until somebody ends them, and don't grow: judged by the harness that started them, by the nemesis,
//! and by what the kernel says of their size.

use std::collections::BTreeMap;

use super::{
    Bounds,
    Invariant::{NobodyEnds, NothingGrows},
    Reading, Verdict, nanos,
    reading::{ends, first_part},
};
use crate::history::What;

const CLEAN: &str = "exit status: 0";
const PAUSE: &str = "pause";

/// A replica ends only by a fault that ends it, cleanly if it was asked to, or cleanly when all is over.
pub(super) fn nobody_ends(reading: &Reading<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let mut started: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &reading.entries {
        match &entry.what {
            What::Started { .. } => {
                verdict.saw(NobodyEnds, 1);
                started.insert(&entry.party, entry.at);
            }
            What::Exited { status } => {
                let since = started.get(&*entry.party).copied().unwrap_or_default();
                let faults = faults_of(reading, &entry.party, since, entry.at + nanos(bounds.lag));
                let over = reading.rest.is_some_and(|rest| rest <= entry.at);
                if let Some(flaw) = flaw(status, &faults, over) {
                    verdict.found(NobodyEnds, entry.at, format!("{} ended ({status}) {flaw}", entry.party));
                }
            }
            _ => {}
        }
    }
}

fn flaw(status: &str, faults: &[&str], over: bool) -> Option<&'static str> {
    let clean = status == CLEAN;
    match faults {
        [] if over && clean => None,
        faults if !faults.iter().any(|kind| ends(kind)) => Some("and nobody had ended it"),
        // One that stands still can't stop when it is asked to, and is killed in the end.
        faults if clean || faults.iter().any(|kind| first_part(kind) != "term") => None,
        _ => Some("though it was only asked to stop"),
    }
}

/// The kinds of faults in this time that end the process of `party`, or let it stand still.
fn faults_of<'a>(reading: &Reading<'a>, party: &str, since: u64, to: u64) -> Vec<&'a str> {
    let in_time = reading.entries.iter().filter(|entry| (since..=to).contains(&entry.at));
    let kind = |what: &'a What| match what {
        What::Fault { kind, target, over: false, .. } if target == party && (ends(kind) || kind == PAUSE) => {
            Some(&**kind)
        }
        _ => None,
    };
    in_time.filter_map(|entry| kind(&entry.what)).collect()
}

/// Of each process the last size is at most so much above the first one.
pub(super) fn nothing_grows(reading: &Reading<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let mut first: BTreeMap<&str, Size> = BTreeMap::new();
    let mut last: BTreeMap<&str, (u64, Size)> = BTreeMap::new();
    let judge = |verdict: &mut Verdict, party: &str, first: Option<Size>, last: Option<(u64, Size)>| {
        let (Some(first), Some((at, last))) = (first, last) else { return };
        verdict.saw(NothingGrows, 1);
        for flaw in first.flaws(last, bounds) {
            verdict.found(NothingGrows, at, format!("{party} {flaw}"));
        }
    };
    for entry in &reading.entries {
        let party = &*entry.party;
        match entry.what {
            What::Started { .. } => judge(verdict, party, first.remove(party), last.remove(party)),
            What::Size { threads, files, resident } => {
                let size = Size { threads, files, resident };
                if first.contains_key(party) {
                    last.insert(party, (entry.at, size));
                } else {
                    first.insert(party, size);
                }
            }
            _ => {}
        }
    }
    for (party, size) in first {
        judge(verdict, party, Some(size), last.remove(party));
    }
}

#[derive(Clone, Copy)]
struct Size {
    threads: usize,
    files: usize,
    resident: u64,
}

impl Size {
    fn flaws(self, last: Self, bounds: &Bounds) -> Vec<String> {
        let mebi = |bytes: u64| bytes >> 20;
        let mut flaws = Vec::new();
        if last.threads > self.threads + bounds.threads {
            flaws.push(format!("has {} threads after {}", last.threads, self.threads));
        }
        if last.files > self.files + bounds.files {
            flaws.push(format!("has {} files open after {}", last.files, self.files));
        }
        if last.resident > self.resident + bounds.resident {
            flaws.push(format!("has {} MiB resident after {}", mebi(last.resident), mebi(self.resident)));
        }
        flaws
    }
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;
    use crate::history::Entry;

    fn started(at: u64) -> Entry {
        entry(at, "r0", What::Started { pid: 7 })
    }

    fn exited(at: u64, status: &str) -> Entry {
        entry(at, "r0", What::Exited { status: status.to_owned() })
    }

    #[test]
    fn who_is_killed_or_asked_to_stop_or_is_there_when_all_is_over_may_end() {
        good(&[started(0), fault(S, "kill", "r0"), exited(2 * S, "signal 9")], NobodyEnds);
        good(&[started(0), fault(S, "term", "r0"), exited(2 * S, CLEAN)], NobodyEnds);
        good(&[started(0), harness(S, What::Rest), exited(2 * S, CLEAN)], NobodyEnds);
    }

    #[test]
    fn who_ends_by_itself_is_found() {
        let parts = ["r0", "exit status: 70", "nobody had ended it"];
        bad(&[started(0), exited(2 * S, "exit status: 70")], NobodyEnds, &parts);
        let other = [started(0), fault(S, "kill", "r1"), exited(2 * S, "exit status: 70")];
        bad(&other, NobodyEnds, &parts);
        let harmless = [started(0), fault(S, "pause", "r0"), exited(2 * S, "exit status: 70")];
        bad(&harmless, NobodyEnds, &parts);
        bad(&[started(0), harness(S, What::Rest), exited(2 * S, "exit status: 70")], NobodyEnds, &parts);
    }

    #[test]
    fn a_kill_of_an_earlier_process_does_not_explain_the_end_of_this_one() {
        let history = [started(0), fault(S, "kill", "r0"), exited(2 * S, "signal 9"), started(3 * S)];
        good(&history, NobodyEnds);
        let mut again = history.to_vec();
        again.push(exited(9 * S, "signal 9"));
        bad(&again, NobodyEnds, &["r0", "nobody"]);
    }

    #[test]
    fn who_was_asked_to_stop_and_ended_badly_is_found() {
        let history = [started(0), fault(S, "term", "r0"), exited(2 * S, "exit status: 70")];
        bad(&history, NobodyEnds, &["r0", "only asked to stop"]);
        let still = [
            started(0),
            fault(S, "pause", "r0"),
            fault(S, "term", "r0"),
            exited(2 * S, "signal: 9 (SIGKILL)"),
        ];
        good(&still, NobodyEnds);
    }

    fn size(at: u64, threads: usize, files: usize, resident: u64) -> Entry {
        entry(at, "r0", What::Size { threads, files, resident: resident << 20 })
    }

    #[test]
    fn a_process_that_swells_and_comes_back_has_not_grown() {
        good(&[started(0), size(1, 5, 20, 30), size(2, 500, 900, 900), size(3, 6, 22, 40)], NothingGrows);
    }

    #[test]
    fn what_grows_is_found_in_each_process() {
        let first = size(1, 5, 20, 30);
        bad(&[first.clone(), size(2, 50, 20, 30)], NothingGrows, &["r0 has 50 threads after 5"]);
        bad(&[first.clone(), size(2, 5, 90, 30)], NothingGrows, &["r0 has 90 files open after 20"]);
        bad(&[first.clone(), size(2, 5, 20, 300)], NothingGrows, &["r0 has 300 MiB resident after 30"]);
        let restarted = [first.clone(), started(2), size(3, 5, 90, 30), size(4, 5, 91, 30)];
        good(&restarted, NothingGrows);
        let before = [first, size(2, 5, 90, 30), started(3), size(4, 5, 20, 30)];
        bad(&before, NothingGrows, &["90 files"]);
    }
}
