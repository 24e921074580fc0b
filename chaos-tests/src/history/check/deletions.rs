//! Deletions end, and take nobody else's finalizer with them: judged by what is left at rest, and by what the cluster's
//! watch showed of volumes.

use super::{Bounds, Invariant::DeletionsEnd, Reading, Verdict, reading::Sight};
use crate::{history::Object, ledger::stage::FINALIZER};

/// At rest no volume waits for its deletion, and none is kept from its end by our finalizer.
pub(super) fn end(reading: &Reading<'_>, _: &Bounds, verdict: &mut Verdict) {
    let Some(volumes) = reading.at_rest("volume") else { return };
    let asked = |sights: &[(u64, &Object)]| sights.iter().any(|(_, volume)| volume.deleting || waits(volume));
    verdict.saw(DeletionsEnd, reading.of_kind("volume").filter(|(_, _, sights)| asked(sights)).count());
    for (at, volume) in volumes {
        let Object { name, phase, finalizers, .. } = volume;
        if volume.deleting && finalizers.iter().any(|it| it == FINALIZER) {
            let words = format!("volume {name} ({phase}) is still held by our finalizer at rest");
            verdict.found(DeletionsEnd, at, words);
        } else if waits(volume) {
            verdict.found(DeletionsEnd, at, format!("volume {name} is still Released at rest"));
        }
    }
}

/// Where our finalizer goes, those of others stay: they go at a time of their own. Kubernetes' are the controller
/// manager's to take.
pub(super) fn spare_others(reading: &Reading<'_>, _: &Bounds, verdict: &mut Verdict) {
    for (name, _, sights) in reading.of_kind("volume") {
        for (before, after) in sights.iter().zip(sights.iter().skip(1)) {
            let taken = taken_with_ours(before, after);
            verdict.saw(DeletionsEnd, usize::from(taken.is_some()));
            for other in taken.unwrap_or_default() {
                let words = format!("volume {name} lost the finalizer {other} together with ours");
                verdict.found(DeletionsEnd, after.0, words);
            }
        }
    }
}

/// If our finalizer went from one sight to the next: those of others that did, too.
fn taken_with_ours<'a>((_, before): &Sight<'a>, (_, after): &Sight<'a>) -> Option<Vec<&'a str>> {
    // What a list no longer has is told as it was seen last: nobody saw which step was its last.
    let told_by_its_absence = after.gone && after.version == before.version;
    let gone = |finalizer: &&String| !after.finalizers.contains(finalizer);
    let ours = before.finalizers.iter().find(|it| *it == FINALIZER).filter(gone);
    if told_by_its_absence || ours.is_none() {
        return None;
    }
    let others = before.finalizers.iter().filter(|it| *it != FINALIZER && !it.starts_with("kubernetes.io/"));
    Some(others.filter(gone).map(|it| &**it).collect())
}

fn waits(volume: &Object) -> bool {
    volume.phase == "Released" && volume.policy == "Delete"
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;
    use crate::history::{Entry, What};

    fn at_rest(last: Object) -> Vec<Entry> {
        let released = Object { deleting: true, ..volume("1", 5, "Released", "Delete") };
        vec![seen(S, released), harness(2 * S, What::Rest), seen(3 * S, last)]
    }

    #[test]
    fn a_deletion_that_came_to_its_end_and_a_volume_that_retains_are_fine() {
        good(&at_rest(gone(volume("1", 8, "Released", "Delete"))), DeletionsEnd);
        good(&at_rest(volume("1", 8, "Released", "Retain")), DeletionsEnd);
        let held_by_others = Object {
            deleting: true,
            finalizers: vec!["kubernetes.io/pv-protection".to_owned()],
            ..volume("1", 8, "Bound", "Delete")
        };
        good(&at_rest(held_by_others), DeletionsEnd);
    }

    #[test]
    fn what_is_left_at_rest_is_found() {
        bad(&at_rest(volume("1", 8, "Released", "Delete")), DeletionsEnd, &["pvc-1", "still Released"]);
        let held = Object {
            deleting: true,
            finalizers: vec![FINALIZER.to_owned()],
            ..volume("1", 8, "Bound", "Delete")
        };
        bad(&at_rest(held), DeletionsEnd, &["pvc-1", "our finalizer"]);
    }

    fn held(version: u64, finalizers: &[&str]) -> Object {
        let finalizers = finalizers.iter().map(|it| (*it).to_owned()).collect();
        Object { deleting: true, finalizers, ..volume("1", version, "Released", "Delete") }
    }

    #[test]
    fn a_finalizer_of_somebody_else_that_goes_with_ours_is_found() {
        let both = seen(1, held(5, &["kubernetes.io/pv-protection", FINALIZER, "example.dev/hold"]));
        let one_by_one = [both.clone(), seen(2, held(6, &["example.dev/hold"])), seen(3, gone(held(6, &[])))];
        good(&one_by_one, DeletionsEnd);
        bad(&[both.clone(), seen(2, held(6, &[]))], DeletionsEnd, &["pvc-1", "example.dev/hold"]);
        bad(&[both.clone(), seen(2, gone(held(6, &[])))], DeletionsEnd, &["pvc-1", "example.dev/hold"]);
        let absent = seen(2, Object { gone: true, ..held(5, &[]) });
        assert_eq!(judged(&[both, absent], DeletionsEnd), (0, vec![]));
    }

    #[test]
    fn without_a_rest_nothing_is_proved() {
        let history = [seen(S, volume("1", 8, "Released", "Delete"))];
        assert_eq!(judged(&history, DeletionsEnd), (0, vec![]));
    }
}
