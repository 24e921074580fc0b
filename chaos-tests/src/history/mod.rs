//! What happened in a run, told by all parties on one clock: a JSON object per line, so that a run can be judged
//! when it is over, and again at any later time.
//!
//! What is written is here; who judges it is elsewhere, and reads nothing but this.

pub mod check;
pub mod report;

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write},
    path::Path,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{ledger::Call, proxy::Record};

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// When, in nanoseconds on `CLOCK_MONOTONIC_RAW`.
    pub at: u64,
    /// Who tells it: the name of a replica, or `ledger`, `nemesis`, `cluster`, `harness`. Of what a proxy saw, the
    /// replica behind it.
    pub party: String,
    /// What it was.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum What {
    /// Of a replica: its program was started.
    Started {
        /// Its process.
        pid: u32,
    },
    /// Of a replica: its program ended. Whether somebody ended it on purpose is in the nemesis's entries.
    Exited {
        /// How, such as `signal 9` or `exit status: 0`.
        status: String,
    },
    /// Of a replica: from now on, for so long, it believes to lead, unless a later entry says otherwise.
    Believes {
        /// The epoch of its guard.
        epoch: u64,
        /// For how long, in nanoseconds; 0 when it has stopped.
        left: u64,
    },
    /// Of a replica: it began something outside.
    Begins {
        /// The epoch of its guard.
        epoch: u64,
        /// How long the guard still held, in nanoseconds.
        left: u64,
        /// A request (`POST /api/v1/persistentvolumes`) or a call of the backend (`provision pvc-1`).
        effect: String,
    },
    /// Of a replica: what it has of the machine's resources.
    Size {
        /// Threads.
        threads: usize,
        /// Open files.
        files: usize,
        /// Resident memory, in bytes.
        resident: u64,
    },
    /// Of the ledger: a call of the backend.
    Call(#[serde(with = "nested")] Call),
    /// Of a proxy: a request of the replica behind it.
    Request(Record),
    /// Of the nemesis: a fault begins or ends.
    Fault {
        /// Counts the faults of a run.
        number: usize,
        /// Its kind, such as `kill` or `freeze-claims`: one for each row of the report.
        kind: String,
        /// What it befell, such as a replica's name.
        target: String,
        /// Whether it is over.
        over: bool,
    },
    /// Of the harness: nothing is broken any more. From here on everything has to come to its end.
    Healed,
    /// Of the harness: everything is at rest. What is told of the cluster and of assets after this is the end state.
    Rest,
    /// Of the harness: etcd has been put back to an older state.
    Restored,
    /// Of the harness: an asset got data.
    Used {
        /// The volume.
        volume: String,
    },
    /// Of the harness, at rest: an asset exists.
    Asset {
        /// The volume.
        volume: String,
    },
    /// Of the cluster: an object as a watch, or the last list at rest, showed it.
    Object(Object),
    /// Of the cluster: the API server's own record of a request of a replica; `at` is when it came, from the wall
    /// clock. `party` is the replica, by its credential.
    Audited {
        /// `create`, `patch`, …
        verb: String,
        /// The kind of object, in the plural.
        resource: String,
        /// Its name, if the request names one.
        name: String,
        /// The status of the answer.
        status: u64,
    },
}

/// A call is an object of its own within its entry: both have a time.
mod nested {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Call;

    #[derive(Serialize, Deserialize)]
    struct Nested<T> {
        call: T,
    }

    pub(super) fn serialize<S: Serializer>(call: &Call, serializer: S) -> Result<S::Ok, S::Error> {
        Nested { call }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Call, D::Error> {
        Nested::deserialize(deserializer).map(|nested| nested.call)
    }
}

/// A claim, a volume, or a node that goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// `claim`, `volume` or `node`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion.
    pub version: u64,
    /// Whether this is its end.
    pub gone: bool,
    /// Its phase.
    pub phase: String,
    /// Of a volume: its reclaim policy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// Of a volume: the UID of its claim. Of a claim: the name of its volume.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub other: String,
    /// All its finalizers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Whether its deletion was asked for.
    #[serde(default)]
    pub deleting: bool,
    /// Of a claim: whether it can't be served, on purpose, as the load made it.
    #[serde(default)]
    pub hopeless: bool,
}

/// Writes a history in the order of time.
///
/// # Errors
/// If the file can't be written.
pub fn write(path: &Path, entries: &mut [Entry]) -> Result<()> {
    entries.sort_by_key(|entry| entry.at);
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut file = BufWriter::new(file);
    for entry in entries {
        serde_json::to_writer(&mut file, entry)?;
        file.write_all(b"\n")?;
    }
    file.flush().with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a history.
///
/// # Errors
/// If there is none, or a line of it is none of ours.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let lines = BufReader::new(file).lines().enumerate();
    let parse = |(number, line): (usize, std::io::Result<String>)| {
        let place = || format!("{} line {}", path.display(), number + 1);
        serde_json::from_str(&line.with_context(place)?).with_context(place)
    };
    lines.map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Phase;

    fn a_call() -> Call {
        Call {
            at: 5,
            operation: "provision".to_owned(),
            volume: "pvc-1".to_owned(),
            claim: "data".to_owned(),
            epoch: 7,
            number: 1,
            pid: 2,
            phase: Phase::End,
            outcome: "\"Done\"".to_owned(),
            changed: true,
            request: serde_json::Value::Null,
        }
    }

    #[test]
    fn what_was_written_is_read_in_the_order_of_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.jsonl");
        let entry = |at, what| Entry { at, party: "r0".to_owned(), what };
        let claim = Object { kind: "claim".to_owned(), version: 7, ..Object::default() };
        let record = Record { came: 1, sealed: 2, n: 3, request: Default::default(), fate: "cut".to_owned() };
        let mut all = [
            entry(3, What::Rest),
            entry(1, What::Believes { epoch: 5, left: 9 }),
            entry(2, What::Object(claim.clone())),
            entry(4, What::Request(record)),
            entry(5, What::Call(a_call())),
        ];
        write(&path, &mut all).unwrap();
        let read = read(&path).unwrap();
        assert_eq!(read.iter().map(|entry| entry.at).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(matches!(&read[1].what, What::Object(object) if *object == claim));
        assert!(matches!(&read[3].what, What::Request(record) if record.fate == "cut"));
        assert!(
            matches!(&read[4].what, What::Call(call) if call.at == 5 && call.volume == "pvc-1" && call.changed)
        );
    }
}
