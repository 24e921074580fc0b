//! Where a leader can die: at a mutating request or a backend call, found in a run without a fault, by names that
//! are the same in every run.

use std::{collections::BTreeMap, fmt};

use serde::{Serialize, Serializer};

use crate::{ledger::Call, proxy::Record};

/// A request or a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    /// The `nth` request of this verb about this resource.
    Request {
        /// The verb.
        verb: String,
        /// The kind of object, in the plural.
        resource: String,
        /// Counted from 1.
        nth: usize,
    },
    /// The `nth` call of this operation.
    Call {
        /// The operation.
        operation: String,
        /// Counted from 1.
        nth: usize,
    },
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { verb, resource, nth } => write!(f, "{verb} {resource} #{nth}"),
            Self::Call { operation, nth } => write!(f, "backend {operation} #{nth}"),
        }
    }
}

impl Serialize for Site {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What happens at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// The leader dies before anything has been done.
    Before,
    /// It dies when it has been done, and the answer is lost.
    After,
    /// The leader lives, but its connection is cut, or the backend's program dies, before anything has been done.
    CutBefore,
    /// The same when it has been done, and the answer is lost.
    CutAfter,
}

impl Moment {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Before, Self::After, Self::CutBefore, Self::CutAfter];

    /// Whether the leader dies.
    pub(super) const fn is_death(self) -> bool {
        matches!(self, Self::Before | Self::After)
    }

    /// Whether it comes before anything has been done.
    pub(super) const fn is_early(self) -> bool {
        matches!(self, Self::Before | Self::CutBefore)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "leader killed before it",
            Self::After => "leader killed after it, before the answer",
            Self::CutBefore => "cut off before it",
            Self::CutAfter => "cut off after it, before the answer",
        })
    }
}

/// The sites of a run, in the order of time. The Lease is written at the pace of a clock, and audits list at the pace
/// of another: these are no part of a story.
pub(super) fn of_run(records: &[Record], calls: &[Call]) -> Vec<Site> {
    let mutating =
        records.iter().filter(|record| record.request.is_mutating() && record.request.resource != "leases");
    let requests = mutating.map(|record| {
        let what = (record.request.verb.clone(), record.request.resource.clone());
        (record.came, what)
    });
    let changing = ["provision", "delete", "keep"];
    let calls = calls.iter().filter(|call| changing.contains(&&*call.operation));
    let calls = calls.map(|call| (call.at, (call.operation.clone(), String::new())));
    let mut all: Vec<_> = requests.chain(calls).collect();
    all.sort();
    let mut seen: BTreeMap<_, usize> = BTreeMap::new();
    let sites = all.into_iter().map(|(_, what)| {
        let nth = seen.entry(what.clone()).or_default();
        *nth += 1;
        match what {
            (operation, resource) if resource.is_empty() => Site::Call { operation, nth: *nth },
            (verb, resource) => Site::Request { verb, resource, nth: *nth },
        }
    });
    sites.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ledger::Phase, proxy::Request};

    fn record(came: u64, verb: &str, resource: &str) -> Record {
        let request = Request { verb: verb.to_owned(), resource: resource.to_owned(), ..Request::default() };
        Record { came, sealed: came, n: 1, request, fate: String::new() }
    }

    fn call(at: u64, operation: &str) -> Call {
        Call {
            at,
            operation: operation.to_owned(),
            volume: String::new(),
            claim: String::new(),
            epoch: 1,
            number: 1,
            pid: 1,
            phase: Phase::Begin,
            outcome: String::new(),
            changed: false,
            request: serde_json::Value::Null,
        }
    }

    #[test]
    fn sites_come_in_the_order_of_time_and_are_counted_by_kind() {
        let records = [
            record(1, "patch", "leases"),
            record(3, "create", "persistentvolumes"),
            record(4, "get", "persistentvolumes"),
            record(6, "create", "persistentvolumes"),
        ];
        let calls = [call(2, "provision"), call(5, "provision"), call(7, "list")];
        let told: Vec<_> = of_run(&records, &calls).iter().map(ToString::to_string).collect();
        let volume = |nth| format!("create persistentvolumes #{nth}");
        let provision = |nth| format!("backend provision #{nth}");
        assert_eq!(told, [provision(1), volume(1), provision(2), volume(2)]);
    }
}
