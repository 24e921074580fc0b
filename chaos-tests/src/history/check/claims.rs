//! Claims: matched with their volumes, and at an end in time. Judged by what the cluster's watch and the last list
//! showed.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Bounds,
    Invariant::{ClaimsAndVolumesMatch, ClaimsEnd},
    Reading, Verdict, nanos,
    reading::Sight,
};
use crate::history::What;

/// A volume's claim is one that there was, a claim has one volume at a time, and each names the other in the end.
pub(super) fn match_volumes(reading: &Reading<'_>, _: &Bounds, verdict: &mut Verdict) {
    let seen = reading.of_kind("claim").map(|(_, uid, _)| uid);
    let claims: BTreeSet<&str> = seen.chain(reading.claims_of_volumes().into_values()).collect();
    for (name, _, sights) in reading.of_kind("volume") {
        verdict.saw(ClaimsAndVolumesMatch, 1);
        let strange = sights.iter().find(|(_, it)| !it.other.is_empty() && !claims.contains(&*it.other));
        if let Some((at, volume)) = strange {
            let words = format!("volume {name} is for claim UID {}, which there never was", volume.other);
            verdict.found(ClaimsAndVolumesMatch, *at, words);
        }
    }
    one_volume_at_a_time(reading, verdict);
    both_name_each_other(reading, verdict);
}

fn one_volume_at_a_time(reading: &Reading<'_>, verdict: &mut Verdict) {
    let mut living: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in &reading.entries {
        // What was deleted before a restore may be there again.
        if let What::Restored = entry.what {
            living.clear();
        }
        let What::Object(volume) = &entry.what else { continue };
        if volume.kind != "volume" || volume.other.is_empty() {
            continue;
        }
        let of_claim = living.entry(&volume.other).or_default();
        if volume.gone {
            of_claim.remove(&*volume.name);
        } else if of_claim.insert(&volume.name) && of_claim.len() > 1 {
            let words = format!("claim {} has several volumes: {of_claim:?}", volume.other);
            verdict.found(ClaimsAndVolumesMatch, entry.at, words);
        }
    }
}

fn both_name_each_other(reading: &Reading<'_>, verdict: &mut Verdict) {
    let (Some(claims), Some(volumes)) = (reading.at_rest("claim"), reading.at_rest("volume")) else { return };
    for (at, claim) in claims.into_iter().filter(|(_, claim)| claim.phase == "Bound") {
        verdict.saw(ClaimsAndVolumesMatch, 1);
        let volume = volumes.iter().find(|(_, volume)| volume.name == claim.other);
        let flaw = match volume {
            Some((_, volume)) if volume.other == claim.uid => continue,
            Some((_, volume)) => format!("is for claim UID {}", volume.other),
            // What etcd was put back to may be a claim whose volume was made later.
            None if !reading.restored.is_empty() => continue,
            None => "does not exist".to_owned(),
        };
        let words = format!("claim {} ({}) is bound to {}, which {flaw}", claim.name, claim.uid, claim.other);
        verdict.found(ClaimsAndVolumesMatch, at, words);
    }
}

/// Each claim that can be served is bound or gone in time, and at rest none is on its way out.
pub(super) fn end(reading: &Reading<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let Some(healed) = reading.healed else { return };
    for (name, uid, sights) in reading.of_kind("claim") {
        let Some((first, _)) = sights.first() else { continue };
        if sights.iter().any(|(_, claim)| claim.hopeless) || reading.vanished(sights) {
            continue;
        }
        let deadline = healed.max(*first) + nanos(bounds.settle);
        // A history that goes neither so far nor to the rest can't tell.
        if reading.last < deadline && reading.rest.is_none() {
            continue;
        }
        verdict.saw(ClaimsEnd, 1);
        if let Some((at, words)) = unfinished(sights, deadline, reading.rest) {
            verdict.found(ClaimsEnd, at, format!("claim {name} ({uid}) {words}"));
        }
    }
}

fn unfinished(sights: &[Sight<'_>], deadline: u64, rest: Option<u64>) -> Option<(u64, String)> {
    let in_time = sights.partition_point(|(at, _)| *at <= deadline);
    let (at, then) = sights.get(..in_time).unwrap_or_default().last()?;
    if !then.gone && then.phase != "Bound" {
        return Some((*at, format!("was still {} so long after everything was healed", then.phase)));
    }
    let (at, last) = sights.last()?;
    let stuck = rest.is_some() && last.deleting && !last.gone;
    stuck.then(|| (*at, format!("is still being deleted at rest, with {:?}", last.finalizers)))
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;
    use crate::history::{Entry, Object};

    fn pair() -> Vec<Entry> {
        vec![
            harness(S, What::Rest),
            seen(2 * S, claim("1", 8, "Bound")),
            seen(2 * S, volume("1", 9, "Bound", "Delete")),
        ]
    }

    #[test]
    fn a_claim_and_its_volume_match() {
        good(&pair(), ClaimsAndVolumesMatch);
    }

    #[test]
    fn a_volume_for_a_claim_that_never_was_is_found() {
        let mut history = pair();
        history.push(seen(3 * S, volume("2", 9, "Released", "Delete")));
        bad(&history, ClaimsAndVolumesMatch, &["pvc-2", "UID 2", "never was"]);
        history.extend(call(1, None, "provision", "pvc-2", 5));
        good(&history, ClaimsAndVolumesMatch);
    }

    #[test]
    fn a_second_volume_for_a_claim_is_found_unless_the_first_is_gone() {
        let second =
            Object { name: "other".to_owned(), uid: "u".to_owned(), ..volume("1", 3, "Released", "Delete") };
        let mut history = pair();
        history.push(seen(S + 1, second.clone()));
        bad(&history, ClaimsAndVolumesMatch, &["claim 1", "other", "pvc-1"]);
        history.push(seen(S + 2, gone(second)));
        good(&history, ClaimsAndVolumesMatch);
    }

    #[test]
    fn a_claim_that_is_bound_to_nothing_or_to_anothers_volume_is_found() {
        let mut alone = pair();
        alone.truncate(2);
        bad(&alone, ClaimsAndVolumesMatch, &["data-1", "pvc-1", "does not exist"]);
        let mut strange = pair();
        strange.push(seen(3 * S, Object { other: "pvc-1".to_owned(), ..claim("2", 9, "Bound") }));
        bad(&strange, ClaimsAndVolumesMatch, &["data-2", "bound to pvc-1", "UID 1"]);
    }

    fn ends(sights: &[(u64, Object)]) -> Vec<Entry> {
        let mut history = vec![harness(10 * S, What::Healed), harness(300 * S, What::Rest)];
        history.extend(sights.iter().map(|(at, object)| seen(at * S, object.clone())));
        let at_rest = sights.last().filter(|(_, object)| !object.gone);
        history.extend(at_rest.map(|(_, object)| seen(301 * S, object.clone())));
        history
    }

    #[test]
    fn a_claim_that_the_list_at_rest_has_not_got_is_gone() {
        let mut history = ends(&[(5, claim("1", 3, "Pending"))]);
        history.pop();
        assert_eq!(judged(&history, ClaimsEnd), (0, vec![]));
    }

    #[test]
    fn claims_that_are_bound_or_gone_in_time_and_hopeless_ones_are_at_their_end() {
        let pending = claim("1", 3, "Pending");
        good(&ends(&[(5, pending.clone()), (69, claim("1", 8, "Bound"))]), ClaimsEnd);
        good(&ends(&[(5, pending.clone()), (69, gone(pending.clone()))]), ClaimsEnd);
        good(&ends(&[(100, pending.clone()), (159, claim("1", 8, "Bound"))]), ClaimsEnd);
        let hopeless = Object { hopeless: true, ..pending };
        assert_eq!(judged(&ends(&[(5, hopeless)]), ClaimsEnd), (0, vec![]));
    }

    #[test]
    fn a_claim_that_is_late_or_never_comes_to_its_end_is_found() {
        let pending = claim("1", 3, "Pending");
        bad(&ends(&[(5, pending.clone())]), ClaimsEnd, &["data-1", "still Pending"]);
        bad(
            &ends(&[(5, pending.clone()), (71, claim("1", 8, "Bound"))]),
            ClaimsEnd,
            &["data-1", "still Pending"],
        );
        let going = Object { deleting: true, finalizers: vec!["f".to_owned()], ..claim("1", 8, "Bound") };
        bad(&ends(&[(5, going)]), ClaimsEnd, &["data-1", "still being deleted", "\"f\""]);
    }

    #[test]
    fn a_history_that_ends_too_early_can_not_tell() {
        let history = [harness(10 * S, What::Healed), seen(20 * S, claim("1", 3, "Pending"))];
        assert_eq!(judged(&history, ClaimsEnd), (0, vec![]));
    }
}
