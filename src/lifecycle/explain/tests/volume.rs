//! Every finding about a volume, from plain data.

use super::*;

fn living() -> Claim {
    claim_facts().claim
}

fn told(facts: &mut VolumeFacts, reason: &str, note: &str) {
    facts.around.events = Ok(vec![Event { reason: reason.into(), ..failure(note) }]);
}

#[test]
fn each_reason_of_a_volume_that_stays_is_found() {
    let rows: &[Row<VolumeFacts>] = &[
        Row {
            what: "released",
            change: |_| (),
            state: State::InProgress,
            since: Some(-60),
            says: &["delete the volume and its data"],
        },
        Row {
            what: "released, nobody leads",
            change: |facts| facts.around.leases.clear(),
            state: State::NobodyLeads,
            since: Some(-60),
            says: &["there is no Lease"],
        },
        Row {
            what: "the backend fails",
            change: |facts| told(facts, "VolumeFailedDelete", "shelf on fire"),
            state: State::BackingOff,
            since: Some(-10),
            says: &["shelf on fire"],
        },
        Row {
            what: "the backend may not",
            change: |facts| told(facts, "VolumeFailedDelete", "Operation not permitted"),
            state: State::PermissionDenied,
            since: Some(-10),
            says: &[],
        },
        Row {
            what: "in use",
            change: |facts| {
                told(facts, "VolumeDelete", "mounted on node-a");
                facts.around.pods = Ok(vec![pod()]);
            },
            state: State::InUse,
            since: Some(-10),
            says: &["mounted on node-a", "web-0"],
        },
        Row {
            what: "bound",
            change: |facts| facts.volume.phase = Phase::Bound,
            state: State::Bound,
            since: Some(-60),
            says: &["team/data"],
        },
        Row {
            what: "bound, retained",
            change: |facts| {
                facts.volume.phase = Phase::Bound;
                facts.volume.policy = ReclaimPolicy::Retain;
                facts.claim = Ok(Some(living()));
            },
            state: State::Bound,
            since: Some(-60),
            says: &["reclaim policy is Retain"],
        },
        Row {
            what: "available",
            change: |facts| facts.volume.phase = Phase::Available,
            state: State::Available,
            since: Some(-60),
            says: &["free for a claim"],
        },
        Row {
            what: "retained",
            change: |facts| facts.volume.policy = ReclaimPolicy::Retain,
            state: State::Retained,
            since: Some(-60),
            says: &["Retain", "kubectl patch pv pvc-1"],
        },
        Row {
            what: "retained, our finalizer gone",
            change: |facts| {
                facts.volume.policy = ReclaimPolicy::Retain;
                facts.volume.finalizer = false;
            },
            state: State::Retained,
            since: Some(-60),
            says: &[],
        },
        Row {
            what: "retained and terminating",
            change: |facts| {
                facts.volume.policy = ReclaimPolicy::Retain;
                facts.volume.deleting = true;
                facts.deleted = Some(at(-5));
            },
            state: State::InProgress,
            since: Some(-5),
            says: &["without its data, which its reclaim policy Retain keeps"],
        },
        Row {
            what: "terminating, bound to a living claim",
            change: |facts| {
                facts.volume.phase = Phase::Bound;
                facts.volume.deleting = true;
                facts.deleted = Some(at(-5));
                facts.claim = Ok(Some(living()));
                facts.around.pods = Ok(vec![pod()]);
            },
            state: State::TerminatingWithClaim,
            since: Some(-5),
            says: &["claim team/data", "Pods use it: web-0", "\"Retain\""],
        },
        Row {
            what: "finalizers of others",
            change: |facts| {
                facts.volume.finalizer = false;
                facts.volume.deleting = true;
                facts.deleted = Some(at(-5));
                facts.finalizers =
                    vec!["kubernetes.io/pv-protection".into(), "external-attacher/csi-dev".into()];
            },
            state: State::FinalizersOfOthers,
            since: Some(-5),
            says: &["external-attacher/csi-dev", "volumeattachment"],
        },
        Row {
            what: "made by another",
            change: |facts| facts.around.asked = vec!["theirs.io".into()],
            state: State::NotOurs,
            since: Some(-60),
            says: &["ours.dev/disk's, not theirs.io's"],
        },
        Row {
            what: "made by hand",
            change: |facts| facts.volume.provisioned_by = None,
            state: State::HandMade,
            since: Some(-60),
            says: &["names no provisioner"],
        },
        Row {
            what: "failed, claim gone",
            change: |facts| facts.volume.phase = Phase::Failed,
            state: State::InProgress,
            since: Some(-60),
            says: &[],
        },
        Row {
            what: "failed, claim lives",
            change: |facts| {
                facts.volume.phase = Phase::Failed;
                facts.claim = Ok(Some(living()));
            },
            state: State::ClaimLives,
            since: Some(-60),
            says: &["its claim team/data lives"],
        },
        Row {
            what: "reserved by name only",
            change: |facts| facts.volume.claim = Some(ClaimRef::default()),
            state: State::NeverBound,
            since: Some(-60),
            says: &["names no claim by UID"],
        },
        Row {
            what: "terminating before it was bound, claim lives",
            change: |facts| {
                facts.volume.phase = Phase::Pending;
                facts.volume.deleting = true;
                facts.deleted = Some(at(-5));
                facts.claim = Ok(Some(living()));
            },
            state: State::InProgress,
            since: Some(-5),
            says: &["make it anew for claim team/data"],
        },
        Row {
            what: "terminating before it was bound, claim gone",
            change: |facts| {
                facts.volume.phase = Phase::Pending;
                facts.volume.deleting = true;
                facts.deleted = Some(at(-5));
            },
            state: State::NeverBound,
            since: Some(-5),
            says: &["to call it Released"],
        },
        Row {
            what: "terminating, never had a claim",
            change: |facts| {
                facts.volume.phase = Phase::Available;
                facts.volume.claim = None;
                facts.volume.deleting = true;
                facts.deleted = Some(at(-5));
            },
            state: State::InProgress,
            since: Some(-5),
            says: &["never had a claim"],
        },
        Row {
            what: "bound, without our finalizer yet",
            change: |facts| {
                facts.volume.phase = Phase::Bound;
                facts.volume.finalizer = false;
            },
            state: State::Bound,
            since: Some(-60),
            says: &[],
        },
        Row {
            what: "of an instance whose Lease is not there",
            change: |facts| facts.volume.instance = Some("east".into()),
            state: State::NobodyLeads,
            since: Some(-60),
            says: &[],
        },
    ];
    check(&volume_facts(), explain_volume, rows);
}
