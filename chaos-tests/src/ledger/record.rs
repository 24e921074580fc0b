//! What the ledger's program and the tests exchange through files: the gate's rules and the log's records.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The file of the log, a JSON object per line.
pub const LOG: &str = "log";
/// The file of the gate, a JSON list of [`Rule`]s.
pub const GATE: &str = "gate";
/// The directory of the assets, a directory each.
pub const ASSETS: &str = "assets";
/// The directory of the marks, a file for each asset that has one.
pub const MARKS: &str = "marks";
/// The directory of the doors: a call that waits at one goes on when its file is there.
pub const DOORS: &str = "doors";
/// The directory of the calls that have come to a door, a file named after the door each.
pub const ARRIVED: &str = "arrived";
/// The directory that counts the calls, per operation and volume.
pub const COUNTS: &str = "counts";

/// A record of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Nanoseconds on `CLOCK_MONOTONIC_RAW`, the same for all processes of the machine, and never faked.
    pub at: u64,
    /// The operation.
    pub operation: String,
    /// The name of the volume; empty where there is none.
    pub volume: String,
    /// The name of the claim, where the request tells it.
    pub claim: String,
    /// The epoch of the leadership that asked.
    pub epoch: u64,
    /// The number of this call for this operation and volume, from 1.
    pub number: usize,
    /// The process that answers it.
    pub pid: u32,
    /// Whether it begins or ends.
    pub phase: Phase,
    /// With the end: what was answered.
    #[serde(default)]
    pub outcome: String,
    /// With the end: whether this call made or removed the asset.
    #[serde(default)]
    pub changed: bool,
    /// With the beginning: the request, without the operation's name.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub request: serde_json::Value,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, operation, volume, claim, epoch, number, phase, outcome, changed, .. } = self;
        let millis = at / 1_000_000;
        write!(
            f,
            "{millis} ms {operation} #{number} {volume} ({claim}) epoch {epoch} {phase:?} {outcome} {}",
            if *changed { "changed" } else { "" }
        )
    }
}

/// A call's begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The request was read.
    Begin,
    /// The answer is about to be written. A call that is killed has none.
    End,
}

/// What the gate does to some calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rule {
    operation: String,
    claim: Option<String>,
    first: Option<usize>,
    nth: Option<usize>,
    /// How such a call goes.
    pub conduct: Conduct,
}

impl Rule {
    /// A rule for the calls of one operation.
    #[must_use]
    pub fn on(operation: &str) -> Self {
        Self {
            operation: operation.to_owned(),
            claim: None,
            first: None,
            nth: None,
            conduct: Conduct::default(),
        }
    }

    /// Only for the claim of this name.
    #[must_use]
    pub fn claim(mut self, name: &str) -> Self {
        self.claim = Some(name.to_owned());
        self
    }

    /// Only for the first calls of each volume.
    #[must_use]
    pub fn first(mut self, calls: usize) -> Self {
        self.first = Some(calls);
        self
    }

    /// Only for this call of each volume, counted from 1.
    #[must_use]
    pub fn nth(mut self, call: usize) -> Self {
        self.nth = Some(call);
        self
    }

    /// How they go.
    #[must_use]
    pub fn conduct(mut self, conduct: Conduct) -> Self {
        self.conduct = conduct;
        self
    }

    /// Whether the rule is about this call.
    #[must_use]
    pub fn fits(&self, call: &Call) -> bool {
        self.operation == call.operation
            && self.claim.as_ref().is_none_or(|claim| *claim == call.claim)
            && self.first.is_none_or(|first| call.number <= first)
            && self.nth.is_none_or(|nth| call.number == nth)
    }
}

/// How a call goes. The steps come in the order of the fields; the default makes or removes the asset and says done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Conduct {
    /// Written to standard error first.
    pub stderr: String,
    /// How long it takes before it does anything.
    pub latency_ms: u64,
    /// If not 0: what is not there yet is made so late by a process of its own, which outlives a call that is cut
    /// off; the call takes as long.
    #[serde(default)]
    pub lingering_ms: u64,
    /// A door at which it waits before the asset is made or removed.
    pub door_before: Option<String>,
    /// Whether it leaves the asset alone.
    pub idle: bool,
    /// A door at which it waits afterwards, with the answer still to come.
    pub door_after: Option<String>,
    /// What it says.
    pub words: Words,
}

/// What a call says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub enum Words {
    /// That it is done.
    #[default]
    Done,
    /// That it is done, with these fields laid over the volume (or over the capabilities).
    Volume(serde_json::Map<String, serde_json::Value>),
    /// This outcome, with this message.
    Outcome(String, String),
    /// This text instead of an answer.
    Text(String),
    /// This many bytes.
    Flood(usize),
    /// Nothing: it ends by this signal.
    Signal(i32),
    /// Nothing: it exits with this code.
    Exit(i32),
    /// Nothing, ever: it hangs.
    Hang,
}

impl Conduct {
    /// Leaves the asset alone and gives this outcome.
    #[must_use]
    pub fn answer(outcome: &str, message: &str) -> Self {
        Self::idle(Words::Outcome(outcome.to_owned(), message.to_owned()))
    }

    /// Leaves the asset alone and says this.
    #[must_use]
    pub fn idle(words: Words) -> Self {
        Self { idle: true, words, ..Self::default() }
    }

    /// Makes or removes the asset and says this.
    #[must_use]
    pub fn words(words: Words) -> Self {
        Self { words, ..Self::default() }
    }

    /// Waits at a door before the asset is made or removed.
    #[must_use]
    pub fn behind(door: &str) -> Self {
        Self { door_before: Some(door.to_owned()), ..Self::default() }
    }

    /// Makes or removes the asset, then waits at a door.
    #[must_use]
    pub fn before(door: &str) -> Self {
        Self { door_after: Some(door.to_owned()), ..Self::default() }
    }

    /// Takes so long before it does anything.
    #[must_use]
    pub fn slow(latency: std::time::Duration) -> Self {
        Self { latency_ms: latency.as_millis().try_into().unwrap_or(u64::MAX), ..Self::default() }
    }

    /// Makes the asset so late, even if the call is cut off before.
    #[must_use]
    pub fn lingering(time: std::time::Duration) -> Self {
        Self { lingering_ms: time.as_millis().try_into().unwrap_or(u64::MAX), ..Self::default() }
    }

    /// With this on standard error first.
    #[must_use]
    pub fn stderr(mut self, text: &str) -> Self {
        text.clone_into(&mut self.stderr);
        self
    }
}
