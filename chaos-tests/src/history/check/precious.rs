//! What must not be deleted: judged by the ledger's deletions that did remove something, against what the cluster's
//! watch showed of their volumes and claims before and soon after they were begun. A watch may lag, so an object counts
//! only for what it was all the time around the beginning.

use super::{
    Bounds,
    Invariant::NothingPreciousDeleted,
    Reading, Verdict, nanos,
    reading::{Sight, Told},
};
use crate::history::{Object, What};

/// No asset goes whose volume retains or is bound, whose claim lives, or, after a restore, that held data and that no
/// volume asked to delete.
pub(super) fn nothing_is_deleted(reading: &Reading<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let lag = nanos(bounds.lag);
    for call in reading.calls.iter().filter(|call| call.begin.operation == "delete") {
        let Some(removed) = call.changed() else { continue };
        verdict.saw(NothingPreciousDeleted, 1);
        if let Some(why) = Around::new(reading, call, lag).why_not() {
            let by = if call.is_of_the_audit() { "the audit" } else { "a deletion" };
            let (volume, epoch) = (&call.begin.volume, call.begin.epoch);
            let words = format!("{by} of epoch {epoch} removed the asset of {volume}, {why}");
            verdict.found(NothingPreciousDeleted, removed, words);
        }
    }
}

/// A deletion and the time around its beginning.
struct Around<'r, 'a> {
    reading: &'r Reading<'a>,
    call: &'r Told<'a>,
    from: u64,
    to: u64,
    /// Nothing that was seen earlier counts.
    age_began: u64,
}

impl<'r, 'a> Around<'r, 'a> {
    fn new(reading: &'r Reading<'a>, call: &'r Told<'a>, lag: u64) -> Self {
        let at = call.begin.at;
        let age_began = reading.restored.iter().copied().filter(|it| *it <= at).max().unwrap_or_default();
        Self { reading, call, from: at.saturating_sub(lag), to: at + lag, age_began }
    }

    fn why_not(&self) -> Option<String> {
        let (volume, claim) = (self.volume(), self.claim());
        let policy = self.call_that_made().and_then(|made| made.text("/reclaimPolicy"));
        if volume.iter().any(|sights| always(sights, |it| it.policy == "Retain")) {
            return Some("which retains".to_owned());
        }
        if self.call.is_of_the_audit() && self.was_kept() {
            return Some("which had been kept".to_owned());
        }
        if volume.is_empty() && policy == Some("Retain") && self.call.is_of_the_audit() {
            return Some("which was provisioned to be retained".to_owned());
        }
        if self.age_began > 0 && self.call.is_of_the_audit() && self.was_used() {
            return Some("which held data, after etcd had been put back".to_owned());
        }
        let (uid, lives) = claim?;
        if lives && !self.reading.is_taken(&self.call.begin.volume, uid, self.to) {
            return Some(format!("whose claim {uid} lived"));
        }
        None
    }

    /// The sights of the volumes of this name, in the time that counts.
    fn volume(&self) -> Vec<Vec<Sight<'a>>> {
        let name = &self.call.begin.volume;
        let ours = self.reading.objects.range(("volume", &**name, "")..);
        let ours = ours.take_while(|((kind, of, _), _)| *kind == "volume" && of == name);
        // Its end says nothing of a volume: a wrong deletion brings it about, and what was kept stays so.
        let living = |sights: &[Sight<'a>]| self.in_time(sights.iter().filter(|(_, it)| !it.gone));
        ours.map(|(_, sights)| living(sights)).filter(|sights| !sights.is_empty()).collect()
    }

    /// The claim of the volume, and whether it lived all the time.
    fn claim(&self) -> Option<(&'a str, bool)> {
        let made_for = self.call_that_made().and_then(Told::claim_uid);
        let bound = self.volume().into_iter().find(|sights| always(sights, |it| it.phase == "Bound"));
        let bound_to = bound.and_then(|sights| sights.last().map(|(_, it)| &*it.other));
        let uid = bound_to.or(made_for)?;
        let known: Vec<_> = self.reading.of_kind("claim").filter(|(_, of, _)| *of == uid).collect();
        let lives =
            |sights: &[Sight<'a>]| always(&self.in_time(sights.iter()), |it| !it.gone && !it.deleting);
        let alive = known.iter().any(|(_, _, sights)| lives(sights));
        // Nobody was seen to delete the claim of a bound volume that nobody saw.
        Some((uid, alive || (known.is_empty() && bound_to.is_some())))
    }

    fn call_that_made(&self) -> Option<&'r Told<'a>> {
        let made =
            |it: &&Told<'_>| it.begin.operation == "provision" && it.begin.volume == self.call.begin.volume;
        self.reading.calls.iter().take_while(|it| it.begin.at <= self.call.begin.at).filter(made).last()
    }

    fn was_used(&self) -> bool {
        let before = self.reading.entries.iter().take_while(|entry| entry.at <= self.call.begin.at);
        let mut used =
            before.filter_map(|it| if let What::Used { volume } = &it.what { Some(volume) } else { None });
        used.any(|volume| *volume == self.call.begin.volume)
    }

    fn was_kept(&self) -> bool {
        let keeps =
            |it: &&Told<'_>| it.begin.operation == "keep" && it.begin.volume == self.call.begin.volume;
        let kept = self.reading.calls.iter().filter(keeps).filter_map(Told::changed);
        kept.into_iter().any(|kept| kept < self.call.begin.at)
    }

    /// What the object was in the time around the beginning: the last sight before it, and all within.
    fn in_time<'s>(&self, sights: impl Iterator<Item = &'s Sight<'a>>) -> Vec<Sight<'a>>
    where
        'a: 's,
    {
        let counts = |(at, _): &&Sight<'a>| (self.age_began..=self.to).contains(at);
        let sights: Vec<Sight<'a>> = sights.filter(counts).copied().collect();
        let start = sights.partition_point(|(at, _)| *at <= self.from).saturating_sub(1);
        sights.into_iter().skip(start).collect()
    }
}

fn always(sights: &[Sight<'_>], is: impl Fn(&Object) -> bool) -> bool {
    !sights.is_empty() && sights.iter().all(|(_, it)| is(it))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tale::*;
    use super::*;
    use crate::history::Entry;

    /// Provisioned, saved, bound; deleted at 60 s.
    fn life(volume: Object, claim: Object) -> Vec<Entry> {
        let mut history = call(S, Some(2 * S), "provision", "pvc-1", 5);
        history.extend([seen(10 * S, volume), seen(10 * S, claim)]);
        history.extend(call(60 * S, Some(61 * S), "delete", "pvc-1", 5));
        history
    }

    fn audit(policy: &str) -> Vec<Entry> {
        let claim = json!({ "metadata": { "uid": "1" } });
        let made = json!({ "claim": claim, "reclaimPolicy": policy });
        let mut history = call_with(S, Some(2 * S), "provision", "pvc-1", 5, made);
        history.extend(call_with(
            60 * S,
            Some(61 * S),
            "delete",
            "pvc-1",
            5,
            json!({ "volumeName": "pvc-1" }),
        ));
        history
    }

    #[test]
    fn a_released_volume_whose_claim_is_gone_may_go() {
        good(
            &life(volume("1", 9, "Released", "Delete"), gone(claim("1", 8, "Bound"))),
            NothingPreciousDeleted,
        );
        good(&audit("Delete"), NothingPreciousDeleted);
    }

    #[test]
    fn an_asset_of_a_bound_volume_or_a_living_claim_is_missed() {
        let bound = life(volume("1", 9, "Bound", "Delete"), claim("1", 8, "Bound"));
        bad(&bound, NothingPreciousDeleted, &["epoch 5", "pvc-1", "claim 1 lived"]);
        let unsaved = life(Object::default(), claim("1", 8, "Pending"));
        bad(&unsaved, NothingPreciousDeleted, &["pvc-1", "claim 1 lived"]);
        let unseen = life(volume("1", 9, "Bound", "Delete"), Object::default());
        bad(&unseen, NothingPreciousDeleted, &["pvc-1", "claim 1 lived"]);
    }

    #[test]
    fn an_asset_under_a_name_that_somebody_else_has_taken_is_surplus() {
        let refused = audited(3 * S, "r0", "create", "persistentvolumes", "pvc-1", 409);
        let mut history = life(Object::default(), claim("1", 8, "Pending"));
        history.push(refused.clone());
        good(&history, NothingPreciousDeleted);
        let mut own = life(volume("1", 9, "Pending", "Delete"), claim("1", 8, "Pending"));
        own.push(refused);
        bad(&own, NothingPreciousDeleted, &["pvc-1", "claim 1 lived"]);
    }

    #[test]
    fn what_retains_is_missed_even_when_its_volume_goes_with_it() {
        let mut history = life(volume("1", 9, "Released", "Retain"), gone(claim("1", 8, "Bound")));
        history.push(seen(60 * S + MS, gone(volume("1", 10, "Released", "Retain"))));
        bad(&history, NothingPreciousDeleted, &["pvc-1", "retains"]);
        bad(&audit("Retain"), NothingPreciousDeleted, &["the audit", "pvc-1", "provisioned to be retained"]);
    }

    #[test]
    fn what_was_kept_or_deleted_by_hand_while_it_retained_is_missed_when_the_audit_takes_it() {
        let mut history = audit("Delete");
        history.push(seen(10 * S, gone(volume("1", 10, "Released", "Retain"))));
        good(&history, NothingPreciousDeleted);
        history.push(seen(9 * S, volume("1", 9, "Released", "Retain")));
        bad(&history, NothingPreciousDeleted, &["the audit", "retains"]);
        let mut history = audit("Delete");
        history.extend(call(10 * S, Some(11 * S), "keep", "pvc-1", 5));
        bad(&history, NothingPreciousDeleted, &["the audit", "kept"]);
    }

    #[test]
    fn what_changes_around_the_deletion_may_have_been_seen_late() {
        for late in [59 * S + S / 2, 60 * S + S / 2] {
            let mut history = life(volume("1", 9, "Bound", "Delete"), claim("1", 8, "Bound"));
            history.push(seen(late, volume("1", 12, "Released", "Delete")));
            history.push(seen(late, gone(claim("1", 11, "Bound"))));
            good(&history, NothingPreciousDeleted);
            let mut history = life(volume("1", 9, "Released", "Delete"), gone(claim("1", 8, "Bound")));
            history.push(seen(late, volume("1", 12, "Released", "Retain")));
            good(&history, NothingPreciousDeleted);
        }
    }

    #[test]
    fn after_a_restore_the_audit_takes_nothing_that_held_data_and_deletions_go_on() {
        let used = harness(5 * S, What::Used { volume: "pvc-1".to_owned() });
        let restored = harness(20 * S, What::Restored);
        let mut history = audit("Delete");
        history.push(restored.clone());
        good(&history, NothingPreciousDeleted);
        history.push(used.clone());
        bad(&history, NothingPreciousDeleted, &["the audit", "held data"]);
        let mut ordinary = life(volume("1", 9, "Bound", "Delete"), claim("1", 8, "Bound"));
        ordinary.extend([used, restored, seen(30 * S, volume("1", 4, "Released", "Delete"))]);
        good(&ordinary, NothingPreciousDeleted);
    }
}
