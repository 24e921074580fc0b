//! Nobody sees an object go back: neither the cluster's watch, nor, as the requests to the backend tell it, a leader.

use std::collections::BTreeMap;

use super::{Bounds, Invariant::VersionsGrow, Reading, Verdict};

/// The versions of one object, as one observer saw them one after the other, grow until etcd is put back.
pub(super) fn grow(reading: &Reading<'_>, _: &Bounds, verdict: &mut Verdict) {
    for ((kind, name, uid), sights) in &reading.objects {
        let versions = sights.iter().map(|(at, object)| (*at, object.version));
        in_order(reading, verdict, &format!("the cluster's watch saw {kind} {name} ({uid})"), versions);
    }
    let mut by_leader: BTreeMap<(u64, &str), Vec<(u64, u64)>> = BTreeMap::new();
    for call in &reading.calls {
        let version = call.text("/claim/metadata/resourceVersion").and_then(|version| version.parse().ok());
        if let (Some(uid), Some(version)) = (call.claim_uid(), version) {
            by_leader.entry((call.begin.epoch, uid)).or_default().push((call.begin.at, version));
        }
    }
    for ((epoch, uid), versions) in by_leader {
        let who = format!("the leader of epoch {epoch} provisioned for claim {uid} as it was");
        in_order(reading, verdict, &who, versions.into_iter());
    }
}

fn in_order(
    reading: &Reading<'_>,
    verdict: &mut Verdict,
    who: &str,
    versions: impl Iterator<Item = (u64, u64)>,
) {
    let mut latest = (0, 0);
    for (at, version) in versions {
        verdict.saw(VersionsGrow, 1);
        let seen = (reading.age(at), version);
        if seen < latest {
            verdict.found(VersionsGrow, at, format!("{who} at version {version} after {}", latest.1));
        }
        latest = latest.max(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;
    use crate::history::What;

    #[test]
    fn versions_that_grow_or_stay_are_fine() {
        let other = claim("2", 3, "Pending");
        good(
            &[seen(1, claim("1", 7, "Pending")), seen(2, other), seen(3, claim("1", 7, "Bound"))],
            VersionsGrow,
        );
    }

    #[test]
    fn a_version_that_goes_back_is_found_unless_etcd_was_put_back() {
        let mut history = vec![seen(1, claim("1", 7, "Bound")), seen(3, claim("1", 6, "Pending"))];
        bad(&history, VersionsGrow, &["claim data-1", "version 6 after 7"]);
        history.push(harness(2, What::Restored));
        good(&history, VersionsGrow);
    }

    #[test]
    fn a_leader_that_goes_back_is_found_and_a_successor_may_know_less() {
        let at_version = |at, epoch, version: &str| {
            let claim = serde_json::json!({ "metadata": { "uid": "1", "resourceVersion": version } });
            call_with(at, None, "provision", "pvc-1", epoch, serde_json::json!({ "claim": claim }))
        };
        let mut history = at_version(1, 5, "9");
        history.extend(at_version(2, 6, "8"));
        good(&history, VersionsGrow);
        history.extend(at_version(3, 5, "8"));
        bad(&history, VersionsGrow, &["epoch 5", "claim 1", "version 8 after 9"]);
    }
}
