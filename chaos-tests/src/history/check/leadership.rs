//! Nobody leads beside somebody else: judged by what the replicas believed, whether or not it was true.

use super::{Belief, Bounds, Invariant::OneLeader, Reading, Verdict};

/// No two beliefs of different replicas overlap, and no two replicas have the same epoch.
pub(super) fn one_leader(reading: &Reading<'_>, _: &Bounds, verdict: &mut Verdict) {
    verdict.saw(OneLeader, reading.beliefs.len());
    for (place, later) in reading.beliefs.iter().enumerate() {
        let earlier = reading.beliefs.iter().take(place).filter(|earlier| earlier.party != later.party);
        for earlier in earlier {
            if let Some(words) = conflict(earlier, later, reading) {
                verdict.found(OneLeader, later.from, words);
            }
        }
    }
}

fn conflict(earlier: &Belief<'_>, later: &Belief<'_>, reading: &Reading<'_>) -> Option<String> {
    let of = |belief: &Belief<'_>| format!("{} (epoch {})", belief.party, belief.epoch);
    if later.from < earlier.to && later.from < later.to {
        let both = (earlier.to.min(later.to) - later.from) as f64 / 1e6;
        return Some(format!("{} and {} both believed to lead for {both:.3} ms", of(earlier), of(later)));
    }
    // After a restore of etcd the same numbers may come again.
    let same = earlier.epoch == later.epoch && reading.age(earlier.from) == reading.age(later.from);
    same.then(|| format!("{} and {} had the same epoch", of(earlier), of(later)))
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;
    use crate::history::What;

    #[test]
    fn one_after_the_other_is_fine() {
        good(&[believes(0, "r0", 5, 10), believes(10, "r1", 9, 10), believes(20, "r0", 12, 10)], OneLeader);
        good(&[believes(0, "r0", 5, 10), believes(4, "r0", 5, 0), believes(4, "r1", 9, 10)], OneLeader);
    }

    #[test]
    fn two_at_a_time_are_found() {
        let history = [believes(0, "r0", 5, 10), believes(9, "r1", 9, 10)];
        bad(&history, OneLeader, &["r0 (epoch 5)", "r1 (epoch 9)"]);
    }

    #[test]
    fn a_stopped_leader_believes_no_longer_than_its_guard_and_a_late_word_of_it_extends_nothing() {
        let pause = fault(5, "pause", "r0");
        good(&[believes(0, "r0", 5, 10), pause.clone(), believes(11, "r1", 9, 10)], OneLeader);
        bad(&[believes(0, "r0", 5, 10), pause, believes(9, "r1", 9, 10)], OneLeader, &["r0", "r1"]);
        let revived = [believes(0, "r0", 5, 10), believes(11, "r1", 9, 10), believes(12, "r0", 5, 10)];
        bad(&revived, OneLeader, &["r1 (epoch 9) and r0 (epoch 5)"]);
    }

    #[test]
    fn an_epoch_belongs_to_one_replica_until_etcd_is_put_back() {
        let (first, second) = (believes(0, "r0", 5, 10), believes(20, "r1", 5, 10));
        bad(&[first.clone(), second.clone()], OneLeader, &["same epoch"]);
        good(&[first, harness(15, What::Restored), second], OneLeader);
    }
}
