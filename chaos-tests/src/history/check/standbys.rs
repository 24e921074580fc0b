//! Who does not lead is silent: judged by what proxies and the API server's audit log saw of each replica.

use super::{
    Bounds,
    Invariant::StandbysAreSilent,
    Reading, Verdict, nanos,
    reading::{does, is_for_leaders},
};
use crate::history::{Entry, What};

/// A write, other than of the Lease and events, is sent while its replica believes to lead, or was begun while it
/// did: a process may stand still in between.
pub(super) fn are_silent(reading: &Reading<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let lag = nanos(bounds.lag);
    for (at, party, verb, resource, name) in reading.entries.iter().filter_map(|entry| write(entry)) {
        verdict.saw(StandbysAreSilent, 1);
        let mut beliefs = reading.beliefs_of(party);
        // The audit log has another clock: a little early is no wonder.
        let leads = beliefs.any(|belief| belief.from <= at + lag && at <= belief.to + lag);
        let does = does(verb, resource, name);
        let begun = || reading.begun.iter().take_while(|begun| begun.at <= at + lag);
        if !leads && !begun().any(|begun| begun.party == party && begun.does == does) {
            verdict.found(
                StandbysAreSilent,
                at,
                format!("{party} did not lead and sent {verb} {resource} {name}"),
            );
        }
    }
}

fn write(entry: &Entry) -> Option<(u64, &str, &str, &str, &str)> {
    let party = &*entry.party;
    let (at, verb, resource, name) = match &entry.what {
        What::Request(record) => {
            (record.came, &record.request.verb, &record.request.resource, &record.request.name)
        }
        What::Audited { verb, resource, name, .. } => (entry.at, verb, resource, name),
        _ => return None,
    };
    is_for_leaders(verb, resource).then_some((at, party, verb, resource, name))
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;

    #[test]
    fn a_leader_may_write_and_a_standby_may_renew_tell_and_read() {
        let history = [
            believes(0, "r0", 5, 10 * S),
            audited(S, "r0", "create", "persistentvolumes", "pvc-1", 201),
            audited(S, "r1", "patch", "leases", "l", 200),
            audited(S, "r1", "create", "events", "", 201),
            request(S, "r1", "list", "persistentvolumes", "", "answered 200"),
        ];
        good(&history, StandbysAreSilent);
        assert_eq!(judged(&history, StandbysAreSilent).0, 1, "only what needs a leader is looked at");
    }

    #[test]
    fn a_write_of_a_standby_is_found_by_whoever_saw_it() {
        let leader = believes(0, "r0", 5, 10 * S);
        let seen = audited(S, "r1", "delete", "persistentvolumes", "pvc-1", 409);
        bad(&[leader.clone(), seen], StandbysAreSilent, &["r1", "delete persistentvolumes pvc-1"]);
        let seen = request(S, "r1", "patch", "persistentvolumeclaims", "data", "answered 200");
        bad(&[leader, seen], StandbysAreSilent, &["r1", "patch persistentvolumeclaims data"]);
    }

    #[test]
    fn a_write_after_the_end_is_found_unless_it_was_begun_before_and_its_process_stood_still() {
        let leader = believes(0, "r0", 5, S);
        let late = request(5 * S, "r0", "patch", "persistentvolumes", "pvc-1", "answered 200");
        bad(&[leader.clone(), late.clone()], StandbysAreSilent, &["r0 did not lead"]);
        let begun = begins(1, "r0", 5, "PATCH /api/v1/persistentvolumes/pvc-1");
        good(&[leader, late, begun], StandbysAreSilent);
    }
}
