//! Assets: one for each claim, and at rest one for each volume. Judged by the ledger's log and by what exists at rest.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Bounds,
    Invariant::{AssetsAreVolumes, OneAsset},
    Reading, Verdict, nanos,
    reading::Told,
};
use crate::history::What;

/// A claim has one asset: under one name, and none that is made again after its removal.
pub(super) fn one_for_each_claim(reading: &Reading<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for call in reading.calls.iter().filter(|call| call.begin.operation == "provision") {
        let Some(uid) = call.claim_uid() else { continue };
        let of_it = names.entry(uid).or_default();
        if of_it.insert(&call.begin.volume) && of_it.len() > 1 {
            let words = format!("claim {uid} got an asset under more than one name: {of_it:?}");
            verdict.found(OneAsset, call.begin.at, words);
        }
    }
    verdict.saw(OneAsset, names.len());
    let changed =
        |operation: &'static str| reading.calls.iter().filter(move |it| it.begin.operation == operation);
    for made in changed("provision") {
        for removal in changed("delete").filter(|it| it.begin.volume == made.begin.volume) {
            if let Some((at, words)) = made_again(reading, made, removal, bounds) {
                verdict.found(OneAsset, at, words);
            }
        }
    }
}

/// A straggler, begun before the removal, may bring the asset back once more, if it goes again.
fn made_again(
    reading: &Reading<'_>,
    made: &Told<'_>,
    removal: &Told<'_>,
    bounds: &Bounds,
) -> Option<(u64, String)> {
    let (made_at, removed_at) = (made.changed()?, removal.changed()?);
    let volume = &made.begin.volume;
    // What etcd was put back to may be a claim whose asset has gone since.
    if made_at < removed_at || reading.age(made_at) != reading.age(removed_at) {
        return None;
    }
    // Nor is what was made under somebody else's name, and removed as surplus.
    if reading.is_taken(volume, made.claim_uid().unwrap_or_default(), removed_at) {
        return None;
    }
    if begun(reading, made) > removed_at {
        return Some((
            made_at,
            format!("{volume} was provisioned again in epoch {} after its removal", made.begin.epoch),
        ));
    }
    let claim = made.claim_uid().unwrap_or_default();
    let gone = reading.of_kind("claim").any(|(_, uid, sights)| {
        uid == claim
            && sights.iter().any(|(at, it)| (it.gone || it.deleting) && *at <= made_at + nanos(bounds.lag))
    });
    let goes_again =
        reading.calls.iter().filter(|it| it.begin.operation == "delete" && it.begin.volume == *volume).any(
            |it| it.changed().is_some_and(|at| at > made_at && reading.rest.is_none_or(|rest| at < rest)),
        );
    (!gone || !goes_again).then(|| {
        let why = if gone { "did not go again" } else { "its claim lived" };
        (made_at, format!("a straggler of epoch {} brought {volume} back, and {why}", made.begin.epoch))
    })
}

/// When a call was begun: by its replica, if that is on record.
fn begun(reading: &Reading<'_>, call: &Told<'_>) -> u64 {
    let does = format!("{} {}", call.begin.operation, call.begin.volume);
    let fits = |it: &&super::reading::Begun<'_>| it.epoch == call.begin.epoch && it.does == does;
    let before = reading.begun.iter().take_while(|it| it.at <= call.begin.at);
    before.filter(fits).map(|it| it.at).last().unwrap_or(call.begin.at)
}

/// At rest there is an asset for each volume and a volume for each asset. What a restored etcd has forgotten, or
/// still knows, is no fault: after a restore only what came into being since is looked at.
pub(super) fn are_volumes(reading: &Reading<'_>, _: &Bounds, verdict: &mut Verdict) {
    let (Some(rest), Some(volumes)) = (reading.rest, reading.at_rest("volume")) else { return };
    let assets: BTreeSet<&str> = reading
        .entries
        .iter()
        .filter(|entry| entry.at >= rest)
        .filter_map(|entry| if let What::Asset { volume } = &entry.what { Some(&**volume) } else { None })
        .collect();
    let volumes: BTreeSet<&str> = volumes.iter().map(|(_, volume)| &*volume.name).collect();
    let counts = |name: &&&str| is_new(reading, name);
    verdict.saw(AssetsAreVolumes, assets.union(&volumes).filter(counts).count());
    for asset in assets.difference(&volumes).filter(counts) {
        verdict.found(AssetsAreVolumes, rest, format!("asset {asset} has no volume: it has leaked"));
    }
    for volume in volumes.difference(&assets).filter(counts) {
        verdict.found(AssetsAreVolumes, rest, format!("volume {volume} has no asset: it is lost"));
    }
}

/// Whether a volume was first provisioned by a leader that came after the last restore.
fn is_new(reading: &Reading<'_>, volume: &str) -> bool {
    let Some(restored) = reading.restored.last() else { return true };
    let first =
        reading.calls.iter().find(|it| it.begin.operation == "provision" && it.begin.volume == volume);
    let belief = first.and_then(|call| reading.belief_in(call.begin.epoch, call.begin.at));
    belief.is_some_and(|belief| belief.from >= *restored)
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;
    use crate::history::Entry;

    fn calls(all: &[(u64, u64, &str, u64)]) -> Vec<Entry> {
        let of_one = |it: &(u64, u64, &str, u64)| call(it.0 * S, Some(it.1 * S), it.2, "pvc-1", it.3);
        all.iter().flat_map(of_one).collect()
    }

    #[test]
    fn a_claim_that_is_provisioned_twice_under_one_name_has_one_asset() {
        good(&calls(&[(1, 2, "provision", 5), (3, 4, "provision", 9), (5, 6, "delete", 9)]), OneAsset);
    }

    #[test]
    fn two_names_for_one_claim_are_found() {
        let mut history = calls(&[(1, 2, "provision", 5)]);
        let request = serde_json::json!({ "claim": { "metadata": { "uid": "1" } } });
        history.extend(call_with(3 * S, Some(4 * S), "provision", "other", 5, request));
        bad(&history, OneAsset, &["claim 1", "pvc-1", "other"]);
    }

    #[test]
    fn an_asset_that_is_made_again_after_its_removal_is_found_unless_etcd_was_put_back() {
        let mut history = calls(&[(1, 2, "provision", 5), (3, 4, "delete", 5), (5, 6, "provision", 9)]);
        bad(&history, OneAsset, &["pvc-1", "again in epoch 9"]);
        history.push(harness(4 * S + 1, What::Restored));
        good(&history, OneAsset);
    }

    #[test]
    fn an_asset_that_was_surplus_because_its_name_was_taken_may_be_made_again() {
        let mut history = calls(&[(1, 2, "provision", 5), (3, 4, "delete", 5), (5, 6, "provision", 5)]);
        history.push(audited(2 * S + 1, "r0", "create", "persistentvolumes", "pvc-1", 409));
        good(&history, OneAsset);
        history.push(seen(3 * S, volume("1", 9, "Available", "Delete")));
        bad(&history, OneAsset, &["pvc-1", "again in epoch 5"]);
    }

    #[test]
    fn a_straggler_may_bring_an_asset_back_if_its_claim_is_gone_and_the_asset_goes_again() {
        let straggler = calls(&[(1, 2, "provision", 9), (1, 6, "provision", 5), (3, 4, "delete", 9)]);
        bad(&straggler, OneAsset, &["straggler of epoch 5", "its claim lived"]);
        let mut gone_claim = straggler;
        gone_claim.push(seen(3 * S, gone(claim("1", 7, "Bound"))));
        bad(&gone_claim, OneAsset, &["straggler", "did not go again"]);
        gone_claim.extend(calls(&[(7, 8, "delete", 9)]));
        good(&gone_claim, OneAsset);
    }

    fn at_rest(assets: &[&str], uids: &[&str]) -> Vec<Entry> {
        let mut history = vec![harness(S, What::Rest)];
        history.extend(assets.iter().map(|it| harness(2 * S, What::Asset { volume: (*it).to_owned() })));
        history.extend(uids.iter().map(|uid| seen(2 * S, volume(uid, 9, "Bound", "Delete"))));
        history
    }

    #[test]
    fn assets_without_volumes_and_volumes_without_assets_are_found() {
        good(&at_rest(&["pvc-1"], &["1"]), AssetsAreVolumes);
        bad(&at_rest(&["pvc-1", "pvc-2"], &["1"]), AssetsAreVolumes, &["asset pvc-2", "leaked"]);
        bad(&at_rest(&["pvc-1"], &["1", "2"]), AssetsAreVolumes, &["volume pvc-2", "lost"]);
    }

    #[test]
    fn after_a_restore_only_what_is_newer_counts() {
        let history = |believed| {
            let mut history = at_rest(&["pvc-1"], &[]);
            history.extend([harness(10, What::Restored), believes(believed, "r0", 5, S)]);
            history.extend(call(30, Some(40), "provision", "pvc-1", 5));
            history
        };
        assert_eq!(judged(&history(5), AssetsAreVolumes), (0, vec![]));
        bad(&history(20), AssetsAreVolumes, &["asset pvc-1"]);
    }
}
