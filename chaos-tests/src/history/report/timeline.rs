//! What a run looked like, as the picture needs it: who led when, what the backend was asked, what broke. Times are
//! in milliseconds from the first entry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::{Entry, What, check::reading::Reading};

/// More calls than this are not drawn.
const CALLS: usize = 600;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The first entry's time on the history's clock, in nanoseconds: what violations count from.
    pub start: u64,
    /// When it ends.
    pub length: u64,
    /// When nothing was broken any more.
    pub healed: Option<u64>,
    /// When everything was at rest.
    pub rest: Option<u64>,
    /// When etcd was put back.
    pub restored: Vec<u64>,
    /// The replicas, by name.
    pub lanes: Vec<Lane>,
    /// Calls of the backend.
    pub calls: Vec<CallBar>,
    /// Faults.
    pub faults: Vec<FaultBar>,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its beginning.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

/// A replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Its name.
    pub party: String,
    /// When its processes ran, as far as that was told.
    pub lives: Vec<Span>,
    /// When it believed to lead.
    pub leads: Vec<Lead>,
}

/// A belief.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lead {
    /// The epoch.
    pub epoch: u64,
    /// When.
    #[serde(flatten)]
    pub span: Span,
}

/// A call of the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallBar {
    /// `provision`, `delete` or `keep`.
    pub operation: String,
    /// The volume.
    pub volume: String,
    /// The epoch.
    pub epoch: u64,
    /// When; without an end it was killed, and ends where it begins.
    #[serde(flatten)]
    pub span: Span,
    /// Whether it said that it is done.
    pub done: bool,
    /// Whether it was killed before it had an answer.
    pub killed: bool,
}

/// A fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultBar {
    /// Its kind.
    pub kind: String,
    /// Whom it befell.
    pub target: String,
    /// When.
    #[serde(flatten)]
    pub span: Span,
}

impl Timeline {
    /// Of a history.
    #[must_use]
    pub fn of(history: &[Entry]) -> Self {
        let reading = Reading::of(history);
        let start = reading.entries.first().map_or(0, |entry| entry.at);
        let millis = |at: u64| at.saturating_sub(start) / 1_000_000;
        let length = millis(reading.last);
        Self {
            start,
            length,
            healed: reading.healed.map(millis),
            rest: reading.rest.map(millis),
            restored: reading.restored.iter().copied().map(millis).collect(),
            lanes: lanes(&reading, length, &millis),
            calls: calls(&reading, &millis),
            faults: faults(&reading, length, &millis),
        }
    }
}

fn lanes(reading: &Reading<'_>, length: u64, millis: &impl Fn(u64) -> u64) -> Vec<Lane> {
    let mut lanes: BTreeMap<&str, Lane> = BTreeMap::new();
    for entry in &reading.entries {
        let at = millis(entry.at);
        match &entry.what {
            What::Started { .. } => {
                lanes.entry(&entry.party).or_default().lives.push(Span { from: at, to: length });
            }
            What::Exited { .. } => {
                if let Some(life) = lanes.entry(&entry.party).or_default().lives.last_mut() {
                    life.to = at;
                }
            }
            _ => {}
        }
    }
    for belief in &reading.beliefs {
        let span = Span { from: millis(belief.from), to: millis(belief.to).min(length) };
        lanes.entry(belief.party).or_default().leads.push(Lead { epoch: belief.epoch, span });
    }
    lanes.into_iter().map(|(party, lane)| Lane { party: party.to_owned(), ..lane }).collect()
}

fn calls(reading: &Reading<'_>, millis: &impl Fn(u64) -> u64) -> Vec<CallBar> {
    let changing = |operation: &str| ["provision", "delete", "keep"].contains(&operation);
    let drawn = reading.calls.iter().filter(|call| changing(&call.begin.operation)).take(CALLS);
    let bar = |call: &crate::history::check::reading::Told<'_>| {
        let from = millis(call.begin.at);
        CallBar {
            operation: call.begin.operation.clone(),
            volume: call.begin.volume.clone(),
            epoch: call.begin.epoch,
            span: Span { from, to: call.end.map_or(from, |end| millis(end.at)) },
            done: call.is_done(),
            killed: call.end.is_none(),
        }
    };
    drawn.map(bar).collect()
}

fn faults(reading: &Reading<'_>, length: u64, millis: &impl Fn(u64) -> u64) -> Vec<FaultBar> {
    let mut bars: Vec<(usize, FaultBar)> = Vec::new();
    for entry in &reading.entries {
        let What::Fault { number, kind, target, over } = &entry.what else { continue };
        let at = millis(entry.at);
        if !over {
            let span = Span { from: at, to: length };
            bars.push((*number, FaultBar { kind: kind.clone(), target: target.clone(), span }));
        } else if let Some((_, bar)) =
            bars.iter_mut().rev().find(|(of, bar)| of == number && bar.kind == *kind)
        {
            bar.span.to = at;
        }
    }
    bars.into_iter().map(|(_, bar)| bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn entry(at: u64, party: &str, what: What) -> Entry {
        Entry { at: at * MS, party: party.to_owned(), what }
    }

    #[test]
    fn lives_beliefs_and_faults_are_spans_from_the_first_entry_on() {
        let fault = |over| What::Fault { number: 1, kind: "pause".to_owned(), target: "r0".to_owned(), over };
        let history = [
            entry(100, "r0", What::Started { pid: 1 }),
            entry(110, "r0", What::Believes { epoch: 5, left: 900 * MS }),
            entry(120, "nemesis", fault(false)),
            entry(130, "nemesis", fault(true)),
            entry(140, "r0", What::Exited { status: "signal 9".to_owned() }),
            entry(150, "r1", What::Believes { epoch: 7, left: 900 * MS }),
            entry(160, "harness", What::Rest),
        ];
        let timeline = Timeline::of(&history);
        assert_eq!((timeline.start, timeline.length, timeline.rest), (100 * MS, 60, Some(60)));
        let lead = |epoch, from, to| Lead { epoch, span: Span { from, to } };
        assert_eq!(timeline.lanes[0].lives, [Span { from: 0, to: 40 }]);
        assert_eq!(timeline.lanes[0].leads, [lead(5, 10, 40)]);
        assert_eq!(timeline.lanes[1].leads, [lead(7, 50, 60)]);
        assert_eq!(timeline.faults[0].span, Span { from: 20, to: 30 });
    }
}
