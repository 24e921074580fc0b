//! Deletions end: judged by what is left at rest.

use super::{Bounds, Invariant::DeletionsEnd, Reading, Verdict};
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

    #[test]
    fn without_a_rest_nothing_is_proved() {
        let history = [seen(S, volume("1", 8, "Released", "Delete"))];
        assert_eq!(judged(&history, DeletionsEnd), (0, vec![]));
    }
}
