//! What fails again and again is tried at growing intervals: judged by the ledger's calls. The lower bound of each wait
//! follows from how many failures in a row there were, so that whatever delays a call can't make the next one look
//! early.

use std::{collections::BTreeMap, time::Duration};

use super::{Bounds, Invariant::RetriesGrow, Reading, Verdict, nanos, reading::Told};

/// Jitter takes up to a tenth off; the clocks of a machine may run faster than the history's, by a twentieth.
const LEAST: f64 = 0.85;

/// After the n-th failure in a row of one leadership, the wait is at least the n-th of the backoff. A change of the
/// claim, its node or the volume starts anew.
pub(super) fn grow(reading: &Reading<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let mut rows: BTreeMap<(u64, &str, &str), Vec<&Told<'_>>> = BTreeMap::new();
    for call in &reading.calls {
        let begin = call.begin;
        // What the audit hands over comes at its own pace.
        if ["provision", "delete"].contains(&&*begin.operation) && !call.is_of_the_audit() {
            rows.entry((begin.epoch, &begin.operation, &begin.volume)).or_default().push(call);
        }
    }
    for row in rows.into_values() {
        judge(reading, bounds, &row, verdict);
    }
}

fn judge(reading: &Reading<'_>, bounds: &Bounds, row: &[&Told<'_>], verdict: &mut Verdict) {
    let mut failures = 0;
    for (earlier, later) in row.iter().zip(row.iter().skip(1)) {
        failures += 1;
        if earlier.is_done() {
            failures = 0;
            continue;
        }
        let from = earlier.end.map_or(earlier.begin.at, |end| end.at);
        if changed(reading, earlier, later, nanos(bounds.lag)) {
            failures = 0;
            continue;
        }
        verdict.saw(RetriesGrow, 1);
        let (wait, least) =
            (later.begin.at.saturating_sub(from), wait_after(failures, bounds).mul_f64(LEAST));
        if wait < nanos(least) {
            let words = format!(
                "the leader of epoch {} tried to {} {} again {:?} after failure {failures} in a row, which is less \
                 than {least:?}",
                later.begin.epoch,
                later.begin.operation,
                later.begin.volume,
                Duration::from_nanos(wait)
            );
            verdict.found(RetriesGrow, later.begin.at, words);
        }
    }
}

fn wait_after(failures: u32, bounds: &Bounds) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    bounds.retry_initial.saturating_mul(1 << doublings).min(bounds.retry_max)
}

/// Whether the claim, its node or the volume may have changed for the leader between two calls. It hears of a change
/// within `lag`, unless a fault keeps the news from it.
fn changed(reading: &Reading<'_>, earlier: &Told<'_>, later: &Told<'_>, lag: u64) -> bool {
    let claims = reading.claims_of_volumes();
    let uid = later.claim_uid().or_else(|| claims.get(&*later.begin.volume).copied());
    let node = earlier.text("/selectedNode");
    let ours = |kind: &str, name: &str, of: &str| match kind {
        "claim" => Some(of) == uid,
        "node" => Some(name) == node,
        _ => name == later.begin.volume,
    };
    let (from, to) = (earlier.begin.at.saturating_sub(lag), later.begin.at + lag);
    let heard = |at: u64| at <= to && (at >= from || reading.news_was_late(at, from));
    let objects = reading.objects.iter().filter(|((kind, name, of), _)| ours(kind, name, of));
    objects.flat_map(|(_, sights)| sights).any(|(at, _)| heard(*at))
}

#[cfg(test)]
mod tests {
    use super::super::tale::*;
    use super::*;
    use crate::history::{Entry, Object, What};

    /// Failed calls that take a millisecond each and begin so many milliseconds after the first one.
    fn at(times: &[u64]) -> Vec<Entry> {
        let of_one =
            |time: &u64| failed_call(100 * S + time * MS, 100 * S + (time + 1) * MS, "provision", "pvc-1", 5);
        times.iter().flat_map(of_one).collect()
    }

    #[test]
    fn waits_that_double_up_to_the_longest_are_fine_whatever_comes_late() {
        good(&at(&[0, 201, 602, 1403, 3004, 5005, 7006]), RetriesGrow);
        good(&at(&[0, 182, 9000, 9742]), RetriesGrow);
    }

    #[test]
    fn waits_that_do_not_grow_are_found() {
        bad(&at(&[0, 100]), RetriesGrow, &["epoch 5", "provision pvc-1", "failure 1 in a row"]);
        bad(&at(&[0, 201, 402]), RetriesGrow, &["failure 2 in a row"]);
        bad(&at(&[0, 201, 602, 1403, 3004, 4005]), RetriesGrow, &["failure 5 in a row"]);
    }

    #[test]
    fn a_change_of_the_claim_or_the_volume_starts_anew() {
        let mut history = at(&[0, 5_201, 10_602, 10_803]);
        bad(&history, RetriesGrow, &["failure 3 in a row"]);
        history.push(seen(104_100 * MS, claim("1", 7, "Pending")));
        bad(&history, RetriesGrow, &["failure 2 in a row"]);
        assert_eq!(judged(&history, RetriesGrow).0, 2, "the wait with the change is not looked at");
        history.push(seen(110_700 * MS, claim("1", 8, "Pending")));
        assert_eq!(judged(&history, RetriesGrow), (0, vec![]));
    }

    #[test]
    fn a_node_that_goes_starts_anew_for_the_claims_that_were_sent_there() {
        let mut history = at(&[0, 100]);
        let node = |name: &str| Object {
            kind: "node".to_owned(),
            name: name.to_owned(),
            gone: true,
            ..Object::default()
        };
        for entry in &mut history {
            if let What::Call(call) = &mut entry.what
                && call.request.is_object()
            {
                call.request["selectedNode"] = "n1".into();
            }
        }
        history.push(seen(100_050 * MS, node("n2")));
        bad(&history, RetriesGrow, &["failure 1 in a row"]);
        history.push(seen(100_050 * MS, node("n1")));
        assert_eq!(judged(&history, RetriesGrow), (0, vec![]));
    }

    #[test]
    fn a_change_counts_from_when_a_broken_watch_may_have_brought_it() {
        let mut history = at(&[0, 100]);
        history.push(seen(90_000 * MS, claim("1", 7, "Pending")));
        history.push(fault(95_000 * MS, "backend-fails", "backend"));
        bad(&history, RetriesGrow, &["failure 1 in a row"]);
        history.push(fault(89_000 * MS, "freeze-claims", "r0"));
        assert_eq!(judged(&history, RetriesGrow), (0, vec![]));
    }

    #[test]
    fn another_leader_and_a_success_start_anew() {
        let mut history = at(&[0, 5_201, 10_602]);
        history.extend(failed_call(110_700 * MS, 110_701 * MS, "provision", "pvc-1", 6));
        good(&history, RetriesGrow);
        let mut history = call(99 * S, Some(99 * S + MS), "provision", "pvc-1", 5);
        history.extend(at(&[0, 201]));
        good(&history, RetriesGrow);
    }
}
