//! A history as the rules read it: in the order of time, with beliefs as intervals, calls with their ends, objects
//! by their UIDs, and the ages between restores of etcd. Judges nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    history::{Entry, Object, What},
    ledger::{Call, Phase},
    proxy::{Record, Request},
};

/// Of these kinds a fault may end the process that it befalls; the first part of the kind, up to a dash, counts.
const ENDS: [&str; 6] = ["kill", "term", "restart", "crash", "limit", "oom"];

/// Faults of these kinds keep no news of an object from a replica that lives; the first part of the kind counts.
const TIMELY: [&str; 4] = ["backend", "clock", "kill", "term"];

/// A broken watch is noticed, and another one begun, so long after the fault at most.
const AFTERWARDS: u64 = 10_000_000_000;

/// A time in which a replica believed to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belief<'a> {
    /// Who.
    pub party: &'a str,
    /// Its epoch.
    pub epoch: u64,
    /// From when.
    pub from: u64,
    /// Until when, not included.
    pub to: u64,
}

/// A call of the backend, with its end if it had one.
#[derive(Clone, Debug)]
pub struct Told<'a> {
    /// Its beginning.
    pub begin: &'a Call,
    /// Its end.
    pub end: Option<&'a Call>,
}

impl<'a> Told<'a> {
    /// When it made or removed the asset, if it did.
    pub fn changed(&self) -> Option<u64> {
        self.end.filter(|end| end.changed).map(|end| end.at)
    }

    /// The claim's UID in its request.
    pub fn claim_uid(&self) -> Option<&'a str> {
        self.text("/claim/metadata/uid")
    }

    /// A text in its request.
    pub fn text(&self, pointer: &str) -> Option<&'a str> {
        self.begin.request.pointer(pointer).and_then(Value::as_str)
    }

    /// Whether the audit asked for it: an ordinary deletion names its volume.
    pub fn is_of_the_audit(&self) -> bool {
        self.begin.operation == "delete" && self.begin.request.get("volume").is_none_or(Value::is_null)
    }

    /// Whether it has answered that it is done.
    pub fn is_done(&self) -> bool {
        let done = |outcome: &str| outcome.starts_with("\"Done") || outcome.starts_with("{\"Volume\"");
        self.end.is_some_and(|end| done(&end.outcome))
    }
}

/// Something that a replica began.
#[derive(Clone, Debug)]
pub struct Begun<'a> {
    /// When.
    pub at: u64,
    /// Who.
    pub party: &'a str,
    /// Its epoch.
    pub epoch: u64,
    /// How long the guard still held.
    pub left: u64,
    /// What, in the words of [`does`] or of a call of the backend.
    pub does: String,
}

/// A request in words that its beginning, a proxy and the audit log share: a creation's path has no name.
pub fn does(verb: &str, resource: &str, name: &str) -> String {
    let name = if verb == "create" { "" } else { name };
    format!("{verb} {resource} {name}").trim_end().to_owned()
}

/// Whether only a leader may send this. Lease and events are everybody's; reviews change nothing.
pub fn is_for_leaders(verb: &str, resource: &str) -> bool {
    let reads = ["get", "list", "watch"].contains(&verb);
    let free =
        resource.is_empty() || ["leases", "events"].contains(&resource) || resource.ends_with("reviews");
    !reads && !free
}

/// What began, where it is a request: in the words of [`does`]; a call of the backend as it is.
fn effect(effect: &str) -> String {
    let Some((method, path)) = effect.split_once(" /") else { return effect.to_owned() };
    let method = method.parse().unwrap_or_default();
    let request = Request::read(&method, &format!("/{path}"), "", &[]);
    does(&request.verb, &request.resource, &request.name)
}

/// A sight of an object.
pub type Sight<'a> = (u64, &'a Object);

/// See the module.
#[derive(Debug, Default)]
pub struct Reading<'a> {
    /// The entries by time.
    pub entries: Vec<&'a Entry>,
    /// Beliefs of all replicas by their beginning.
    pub beliefs: Vec<Belief<'a>>,
    /// What replicas began, by time.
    pub begun: Vec<Begun<'a>>,
    /// Calls by their beginning.
    pub calls: Vec<Told<'a>>,
    /// What proxies saw, with the replica behind them, by the time it came.
    pub requests: Vec<(&'a str, &'a Record)>,
    /// Each object's sights by time: by kind, name and UID.
    pub objects: BTreeMap<(&'a str, &'a str, &'a str), Vec<Sight<'a>>>,
    /// From when to when each fault may have kept news from replicas, by its number.
    late: BTreeMap<usize, (u64, u64)>,
    /// When nothing was broken any more, for the last time.
    pub healed: Option<u64>,
    /// When everything was at rest, for the last time.
    pub rest: Option<u64>,
    /// When etcd was put back.
    pub restored: Vec<u64>,
    /// The last entry's time.
    pub last: u64,
}

impl<'a> Reading<'a> {
    /// Reads a history in any order.
    #[must_use]
    pub fn of(history: &'a [Entry]) -> Self {
        let mut entries: Vec<&Entry> = history.iter().collect();
        entries.sort_by_key(|entry| entry.at);
        let mut reading = Self { last: entries.last().map_or(0, |entry| entry.at), ..Self::default() };
        for entry in &entries {
            reading.take(entry);
        }
        reading.calls.sort_by_key(|call| call.begin.at);
        reading.requests.sort_by_key(|(_, record)| record.came);
        reading.beliefs = beliefs(&entries);
        reading.entries = entries;
        reading
    }

    fn take(&mut self, entry: &'a Entry) {
        let (at, party) = (entry.at, &*entry.party);
        match &entry.what {
            What::Begins { epoch, left, effect: what } => {
                self.begun.push(Begun { at, party, epoch: *epoch, left: *left, does: effect(what) });
            }
            What::Call(call) if call.phase == Phase::Begin => {
                self.calls.push(Told { begin: call, end: None });
            }
            What::Call(call) => self.end(call),
            What::Request(record) => self.requests.push((party, record)),
            What::Object(object) => {
                let key = (&*object.kind, &*object.name, &*object.uid);
                self.objects.entry(key).or_default().push((at, object));
            }
            What::Fault { number, kind, over: false, .. } if !TIMELY.contains(&first_part(kind)) => {
                self.late.insert(*number, (at, u64::MAX));
            }
            What::Fault { number, over: true, .. } => {
                if let Some((_, to)) = self.late.get_mut(number) {
                    *to = at + AFTERWARDS;
                }
            }
            What::Healed => self.healed = Some(at),
            What::Rest => self.rest = Some(at),
            What::Restored => self.restored.push(at),
            _ => {}
        }
    }

    fn end(&mut self, end: &'a Call) {
        let key = |call: &Call| (call.pid, call.number, call.operation.clone(), call.volume.clone());
        let open = self.calls.iter_mut().rev().find(|call| call.end.is_none() && key(call.begin) == key(end));
        if let Some(open) = open {
            open.end = Some(end);
        }
    }

    /// How often etcd had been put back before `at`. What is learned in one age need not hold in another one.
    #[must_use]
    pub fn age(&self, at: u64) -> usize {
        self.restored.partition_point(|restored| *restored <= at)
    }

    /// Whether a fault may have kept what happened at `at` from a replica until `until`.
    #[must_use]
    pub fn news_was_late(&self, at: u64, until: u64) -> bool {
        self.late.values().any(|(from, to)| *from <= until && at <= *to)
    }

    /// The beliefs of a replica.
    pub fn beliefs_of(&self, party: &str) -> impl Iterator<Item = &Belief<'a>> {
        self.beliefs.iter().filter(move |belief| belief.party == party)
    }

    /// The belief of this epoch that had begun last at `at`, or the first one.
    #[must_use]
    pub fn belief_in(&self, epoch: u64, at: u64) -> Option<&Belief<'a>> {
        let mut of_it = self.beliefs.iter().filter(|belief| belief.epoch == epoch).peekable();
        let first = of_it.peek().copied();
        of_it.take_while(|belief| belief.from <= at).last().or(first)
    }

    /// All objects of a kind, each with its sights by time.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&'a str, &'a str, &[Sight<'a>])> {
        let ours = self.objects.iter().filter(move |((of, ..), _)| *of == kind);
        ours.map(|((_, name, uid), sights)| (*name, *uid, &**sights))
    }

    /// The objects of a kind that exist at rest; `None` without a rest.
    #[must_use]
    pub fn at_rest(&self, kind: &str) -> Option<Vec<Sight<'a>>> {
        let rest = self.rest?;
        let lasts = self.of_kind(kind).filter_map(|(_, _, sights)| sights.last().copied());
        Some(lasts.filter(|(at, object)| *at >= rest && !object.gone).collect())
    }

    /// Whether nobody saw an object's end, which there was: a restored etcd does not know it, or the list at rest
    /// has not got it.
    #[must_use]
    pub fn vanished(&self, sights: &[Sight<'_>]) -> bool {
        let unseen = |at: u64| self.age(at) < self.restored.len() || self.rest.is_some_and(|rest| at < rest);
        sights.last().is_some_and(|(at, last)| !last.gone && unseen(*at))
    }

    /// Whether the API server had refused to create a volume of this name for this claim before `at`, and the cluster
    /// had none for it: the name is somebody else's, and an asset made under it is surplus.
    #[must_use]
    pub fn is_taken(&self, volume: &str, claim: &str, at: u64) -> bool {
        let refused = |what: &What| match what {
            What::Audited { verb, resource, name, status: 409 } => {
                verb == "create" && resource == "persistentvolumes" && name == volume
            }
            _ => false,
        };
        let mut before = self.entries.iter().take_while(|entry| entry.at <= at);
        let own = |(of, _, sights): (&str, &str, &[Sight<'_>])| {
            of == volume && sights.iter().any(|(seen, it)| it.other == claim && *seen <= at)
        };
        before.any(|entry| refused(&entry.what)) && !self.of_kind("volume").any(own)
    }

    /// The claim of a volume by the backend's requests: its UID.
    #[must_use]
    pub fn claims_of_volumes(&self) -> BTreeMap<&'a str, &'a str> {
        let provisions = self.calls.iter().filter(|call| call.begin.operation == "provision");
        provisions.filter_map(|call| Some((&*call.begin.volume, call.claim_uid()?))).collect()
    }
}

/// Whether a fault ends the process that it befalls.
pub fn ends(kind: &str) -> bool {
    ENDS.contains(&first_part(kind))
}

/// The first part of a fault's kind.
pub fn first_part(kind: &str) -> &str {
    kind.split('-').next().unwrap_or_default()
}

fn beliefs<'a>(entries: &[&'a Entry]) -> Vec<Belief<'a>> {
    let mut beliefs: Vec<Belief<'a>> = Vec::new();
    // The place of the latest belief of each replica.
    let mut latest: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in entries {
        let (at, party) = (entry.at, &*entry.party);
        match &entry.what {
            What::Believes { epoch, left } => {
                let known = latest.get(party).and_then(|place| beliefs.get_mut(*place));
                match known {
                    Some(belief) if belief.epoch == *epoch && belief.to >= at => belief.to = at + left,
                    // The end of what is over already.
                    _ if *left == 0 => {}
                    known => {
                        cut(known, at);
                        latest.insert(party, beliefs.len());
                        beliefs.push(Belief { party, epoch: *epoch, from: at, to: at + left });
                    }
                }
            }
            What::Exited { .. } => cut(latest.get(party).and_then(|place| beliefs.get_mut(*place)), at),
            // The word of its death may come later than a successor's first belief.
            What::Fault { kind, target, over: false, .. } if first_part(kind) == "kill" => {
                cut(latest.get(&**target).and_then(|place| beliefs.get_mut(*place)), at);
            }
            _ => {}
        }
    }
    beliefs.sort_by_key(|belief| belief.from);
    beliefs
}

fn cut(belief: Option<&mut Belief<'_>>, at: u64) {
    if let Some(belief) = belief {
        belief.to = belief.to.min(at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;

    fn spans(history: &[Entry]) -> Vec<(&str, u64, u64, u64)> {
        let beliefs = Reading::of(history).beliefs;
        beliefs.iter().map(|it| (it.party, it.epoch, it.from, it.to)).collect()
    }

    #[test]
    fn a_belief_lasts_until_its_end_and_is_extended_by_the_next_word() {
        let history = [believes(0, "r0", 5, 10), believes(8, "r0", 5, 10), believes(30, "r0", 9, 5)];
        assert_eq!(spans(&history), [("r0", 5, 0, 18), ("r0", 9, 30, 35)]);
    }

    #[test]
    fn the_end_of_a_belief_of_a_process_and_a_kill_cut_it_short_and_a_pause_does_not() {
        let ends = [
            believes(3, "r0", 5, 0),
            entry(3, "r0", What::Exited { status: "signal 9".to_owned() }),
            fault(3, "kill-leader", "r0"),
        ];
        for end in ends {
            assert_eq!(spans(&[believes(0, "r0", 5, 10), end]), [("r0", 5, 0, 3)]);
        }
        let others = [fault(3, "pause", "r0"), fault(3, "kill", "r1"), believes(3, "r0", 4, 0)];
        for other in others {
            assert_eq!(spans(&[believes(0, "r0", 5, 10), other]), [("r0", 5, 0, 10)]);
        }
    }

    #[test]
    fn a_call_has_its_own_end_and_a_killed_one_has_none() {
        let mut history = vec![];
        history.extend(call(1, Some(4), "provision", "pvc-1", 5));
        history.extend(call(2, None, "provision", "pvc-2", 5));
        let reading = Reading::of(&history);
        let told: Vec<_> = reading.calls.iter().map(|it| (&*it.begin.volume, it.changed())).collect();
        assert_eq!(told, [("pvc-1", Some(4)), ("pvc-2", None)]);
        assert!(reading.calls[0].is_done());
    }
}
