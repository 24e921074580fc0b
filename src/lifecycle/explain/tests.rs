//! Every finding, from plain data.

use super::{
    facts::{ClaimFacts, Event, Lease, Moment, NotRead, Pod, Surroundings, Unscheduled, VolumeFacts},
    *,
};
use crate::{
    lifecycle::{
        claim::PendingReason,
        names,
        objects::{Claim, ClaimRef, Class, Phase, Volume},
    },
    provisioner::ReclaimPolicy,
};

fn at(second: i64) -> Moment {
    Moment::from_second(1_800_000_000 + second)
}

fn lease() -> Lease {
    Lease {
        namespace: "infra".into(),
        name: "ours.dev-disk".into(),
        provisioner: "ours.dev/disk".into(),
        holder: Some("pod-0_uid_nonce".into()),
        renewed: Some(at(-2)),
        seconds: Some(15),
    }
}

fn around() -> Surroundings {
    Surroundings { leases: vec![lease()], ..Surroundings::empty(at(0)) }
}

fn class() -> Class {
    Class { name: "fast".into(), provisioner: "ours.dev/disk".into(), ..Class::default() }
}

fn claim_facts() -> ClaimFacts {
    ClaimFacts {
        claim: Claim {
            namespace: "team".into(),
            name: "data".into(),
            uid: "claim-uid".into(),
            created: at(-100).as_second(),
            class: Some("fast".into()),
            provisioner: Some("ours.dev/disk".into()),
            ..Claim::default()
        },
        phase: "Pending".into(),
        static_only: false,
        deleted: None,
        finalizers: vec!["kubernetes.io/pvc-protection".into()],
        class: Ok(Some(class())),
        classes: Vec::new(),
        volume: Ok(None),
        around: around(),
    }
}

fn failure(note: &str) -> Event {
    Event {
        reason: "ProvisioningFailed".into(),
        note: note.into(),
        controller: "ours.dev/disk".into(),
        instance: "pod-0".into(),
        first: Some(at(-10)),
        last: Some(at(-10)),
        count: 1,
    }
}

fn events(facts: &mut ClaimFacts, events: impl IntoIterator<Item = Event>) {
    facts.around.events = Ok(events.into_iter().collect());
}

fn waiting(facts: &mut ClaimFacts, pods: impl IntoIterator<Item = Pod>) {
    facts.class = Ok(Some(Class { wait_for_consumer: true, ..class() }));
    facts.around.pods = Ok(pods.into_iter().collect());
}

fn pod() -> Pod {
    Pod {
        name: "web-0".into(),
        scheduler: "default-scheduler".into(),
        created: Some(at(-50)),
        ..Pod::default()
    }
}

fn unscheduled(reason: &str, message: &str) -> Pod {
    let why = Unscheduled { reason: reason.into(), message: message.into(), since: Some(at(-40)) };
    Pod { unscheduled: Some(why), ..pod() }
}

/// One row: what is changed in a claim that is the leader's turn, and what has to be found: the state, since
/// when, and words that must be there (in `what | waited for | advice`).
struct Row<F> {
    what: &'static str,
    change: fn(&mut F),
    state: State,
    since: Option<i64>,
    says: &'static [&'static str],
}

fn check<F: Clone>(facts: &F, explain: fn(&F) -> Explanation, rows: &[Row<F>]) {
    for Row { what, change, state, since, says } in rows {
        let mut changed = facts.clone();
        change(&mut changed);
        let found = explain(&changed);
        assert_eq!(found.state, *state, "{what}: {found}");
        assert_eq!(found.since, since.map(at), "{what}: since when: {found}");
        let waiting_for = found.waiting_for.clone().unwrap_or_default();
        let words = format!("{} | {waiting_for} | {}", found.summary, found.advice.join(" "));
        for word in *says {
            assert!(words.contains(word), "{what}: {word:?} is missing in {words:?}");
        }
    }
}

#[test]
fn each_reason_of_a_pending_claim_is_found() {
    let rows: &[Row<ClaimFacts>] = &[
        Row {
            what: "the leader's turn",
            change: |_| (),
            state: State::InProgress,
            since: Some(-100),
            says: &["provision a volume", "kubectl -n infra logs pod-0"],
        },
        Row {
            what: "class missing",
            change: |facts| {
                facts.class = Ok(None);
                facts.claim.provisioner = None;
                facts.classes = vec!["slow".into(), "fats".into()];
            },
            state: State::ClassMissing,
            since: Some(-100),
            says: &["storage class \"fast\" does not exist", "Create storage class fast"],
        },
        Row {
            what: "class mistyped",
            change: |facts| {
                facts.class = Ok(None);
                facts.claim.class = Some("fasst".into());
                facts.classes = vec!["slow".into(), "fast".into()];
            },
            state: State::ClassMissing,
            since: Some(-100),
            says: &["Did you mean \"fast\"?"],
        },
        Row {
            what: "no class",
            change: |facts| {
                facts.class = Ok(None);
                facts.claim.class = None;
                facts.claim.provisioner = None;
            },
            state: State::ClassMissing,
            since: Some(-100),
            says: &["a default storage class", "kubectl get storageclass"],
        },
        Row {
            what: "no class on purpose",
            change: |facts| {
                facts.class = Ok(None);
                facts.claim.class = None;
                facts.claim.provisioner = None;
                facts.static_only = true;
            },
            state: State::StaticOnly,
            since: None,
            says: &["storageClassName is empty", "made by hand"],
        },
        Row {
            what: "a class that makes no volumes",
            change: |facts| {
                facts.claim.provisioner = None;
                facts.class =
                    Ok(Some(Class { provisioner: "kubernetes.io/no-provisioner".into(), ..class() }));
            },
            state: State::StaticOnly,
            since: None,
            says: &["kubernetes.io/no-provisioner"],
        },
        Row {
            what: "class of another provisioner",
            change: |facts| {
                facts.class = Ok(Some(Class { provisioner: "theirs.dev".into(), ..class() }));
            },
            state: State::ClassForeign,
            since: Some(-100),
            says: &["handed to ours.dev/disk", "\"theirs.dev\"", "create it anew"],
        },
        Row {
            what: "provisioner mistyped in the class",
            change: |facts| {
                facts.class = Ok(Some(Class { provisioner: "ours.dev/dsik".into(), ..class() }));
                facts.claim.provisioner = Some("ours.dev/dsik".into());
            },
            state: State::WrongProvisionerName,
            since: Some(-100),
            says: &["\"ours.dev/dsik\", which nobody serves", "provisioner: ours.dev/disk"],
        },
        Row {
            what: "provisioner mistyped in a class that waits for a consumer",
            change: |facts| {
                waiting(facts, []);
                facts.claim.provisioner = Some("ours.dev/dis".into());
                facts.class = Ok(Some(Class {
                    provisioner: "ours.dev/dis".into(),
                    wait_for_consumer: true,
                    ..class()
                }));
            },
            state: State::WrongProvisionerName,
            since: Some(-100),
            says: &["ours.dev/disk"],
        },
        Row {
            what: "provisioner mistyped, the right one known from a CSI driver",
            change: |facts| {
                facts.around.leases.clear();
                facts.around.names = vec!["ours.dev/disc".into()];
            },
            state: State::WrongProvisionerName,
            since: Some(-100),
            says: &["\"ours.dev/disc\" is served"],
        },
        Row {
            what: "asked about a provisioner whose name resembles the claim's",
            change: |facts| facts.around.asked = vec!["ours.dev/disks".into()],
            state: State::WrongProvisionerName,
            since: Some(-100),
            says: &["not for ours.dev/disks", "resemble"],
        },
        Row {
            what: "asked about another provisioner",
            change: |facts| facts.around.asked = vec!["theirs.io".into()],
            state: State::NotOurs,
            since: Some(-100),
            says: &["for provisioner \"ours.dev/disk\", not for theirs.io"],
        },
        Row {
            what: "not handed over yet",
            change: |facts| facts.claim.provisioner = None,
            state: State::NotNamedYet,
            since: Some(-100),
            says: &["kube-controller-manager"],
        },
        Row {
            what: "no pod",
            change: |facts| waiting(facts, []),
            state: State::WaitingForConsumer,
            since: Some(-100),
            says: &["a Pod that uses the claim", "no fault", "volumeBindingMode: Immediate"],
        },
        Row {
            what: "pods not readable",
            change: |facts| {
                waiting(facts, []);
                facts.around.pods = Err(NotRead { what: "pods".into(), why: "forbidden".into() });
            },
            state: State::WaitingForConsumer,
            since: Some(-100),
            says: &["could not be read"],
        },
        Row {
            what: "a pod past the scheduler",
            change: |facts| waiting(facts, [Pod { node: Some("node-a".into()), ..pod() }]),
            state: State::SchedulerBypassed,
            since: Some(-50),
            says: &["Pod web-0 is put on node node-a by spec.nodeName", "kubernetes.io/hostname: node-a"],
        },
        Row {
            what: "a pod without a node",
            change: |facts| waiting(facts, [unscheduled("Unschedulable", "0/3 nodes are available")]),
            state: State::PodUnscheduled,
            since: Some(-40),
            says: &["0/3 nodes are available (Unschedulable)"],
        },
        Row {
            what: "a gated pod",
            change: |facts| waiting(facts, [unscheduled("SchedulingGated", "gated")]),
            state: State::PodUnscheduled,
            since: Some(-40),
            says: &["scheduling gates"],
        },
        Row {
            what: "a pod of a scheduler that does not run",
            change: |facts| waiting(facts, [Pod { scheduler: "mine".into(), ..pod() }]),
            state: State::PodUnscheduled,
            since: Some(-50),
            says: &["a scheduler of the name \"mine\" runs"],
        },
        Row {
            what: "block, refused",
            change: |facts| {
                facts.claim.block = true;
                events(facts, [failure(&PendingReason::BlockUnsupported.to_string())]);
            },
            state: State::BlockUnsupported,
            since: Some(-10),
            says: &["does not make block volumes", "volumeMode: Filesystem"],
        },
        Row {
            what: "block, not refused",
            change: |facts| facts.claim.block = true,
            state: State::InProgress,
            since: Some(-100),
            says: &[],
        },
        Row {
            what: "selector, refused",
            change: |facts| {
                facts.claim.selector = true;
                events(facts, [failure(&PendingReason::SelectorUnsupported.to_string())]);
            },
            state: State::SelectorUnsupported,
            since: Some(-10),
            says: &["spec.selector"],
        },
        Row {
            what: "data source, refused",
            change: |facts| {
                facts.claim.data_source = true;
                events(facts, [failure(&PendingReason::DataSourceUnsupported.to_string())]);
            },
            state: State::DataSourceUnsupported,
            since: Some(-10),
            says: &["spec.dataSource"],
        },
        Row {
            what: "no Lease",
            change: |facts| facts.around.leases.clear(),
            state: State::NobodyLeads,
            since: Some(-100),
            says: &["there is no Lease for ours.dev/disk", "a replica that leads", "Deploy a provisioner"],
        },
        Row {
            what: "a Lease that was given up",
            change: |facts| facts.around.leases = vec![Lease { holder: None, ..lease() }],
            state: State::NobodyLeads,
            since: Some(-2),
            says: &["nobody holds Lease infra/ours.dev-disk", "kubectl -n infra get pods"],
        },
        Row {
            what: "a Lease that is not renewed",
            change: |facts| facts.around.leases = vec![Lease { renewed: Some(at(-90)), ..lease() }],
            state: State::NobodyLeads,
            since: Some(-90),
            says: &["pod-0_uid_nonce still stands in Lease", "90 s ago"],
        },
        Row {
            what: "no leader, and no pod",
            change: |facts| {
                waiting(facts, []);
                facts.around.leases = vec![Lease { holder: None, ..lease() }];
            },
            state: State::WaitingForConsumer,
            since: Some(-100),
            says: &["Besides: nobody holds Lease infra/ours.dev-disk"],
        },
        Row {
            what: "failed",
            change: |facts| events(facts, [failure("disk shelf is on fire")]),
            state: State::BackingOff,
            since: Some(-10),
            says: &["disk shelf is on fire", "the next attempt"],
        },
        Row {
            what: "failed at a quota, which Kubernetes calls forbidden",
            change: |facts| events(facts, [failure("\"x\" is forbidden: exceeded quota: storage")]),
            state: State::QuotaExceeded,
            since: Some(-10),
            says: &["Raise the quota"],
        },
        Row {
            what: "failed for want of a permission",
            change: |facts| events(facts, [failure("cannot make /data: Permission denied (os error 13)")]),
            state: State::PermissionDenied,
            since: Some(-10),
            says: &["the right that the error names"],
        },
        Row {
            what: "failed once, made since",
            change: |facts| {
                let made =
                    Event { reason: "ProvisioningSucceeded".into(), last: Some(at(-5)), ..failure("") };
                events(facts, [failure("no"), made]);
            },
            state: State::InProgress,
            since: Some(-100),
            says: &[],
        },
        Row {
            what: "the class was missing, and is there since",
            change: |facts| {
                let missing = PendingReason::ClassMissing { class: Some("fast".into()) };
                let theirs =
                    Event { controller: "persistentvolume-controller".into(), ..failure("no class") };
                events(facts, [failure(&missing.to_string()), theirs]);
            },
            state: State::InProgress,
            since: Some(-100),
            says: &[],
        },
        Row {
            what: "made, not bound",
            change: |facts| facts.volume = Ok(Some(volume_of("claim-uid"))),
            state: State::Binding,
            since: Some(-100),
            says: &["volume pvc-1 is made"],
        },
        Row {
            what: "bound",
            change: |facts| {
                facts.claim.volume_name = Some("pvc-1".into());
                facts.phase = "Bound".into();
            },
            state: State::Bound,
            since: None,
            says: &["bound to volume pvc-1"],
        },
        Row {
            what: "lost",
            change: |facts| {
                facts.claim.volume_name = Some("pvc-1".into());
                facts.phase = "Lost".into();
            },
            state: State::VolumeLost,
            since: None,
            says: &["pvc-1"],
        },
        Row {
            what: "names a volume that does not exist",
            change: |facts| facts.claim.volume_name = Some("mine".into()),
            state: State::Binding,
            since: Some(-100),
            says: &["chooses volume mine, which does not exist"],
        },
        Row {
            what: "names a volume of another claim",
            change: |facts| {
                facts.claim.volume_name = Some("mine".into());
                facts.volume = Ok(Some(volume_of("another-uid")));
            },
            state: State::Binding,
            since: Some(-100),
            says: &["belongs to claim team/data"],
        },
        Row {
            what: "being deleted, in use",
            change: |facts| {
                facts.claim.deleting = true;
                facts.deleted = Some(at(-7));
                facts.around.pods = Ok(vec![pod()]);
            },
            state: State::BeingDeleted,
            since: Some(-7),
            says: &["the Pods that use it to end: web-0"],
        },
        Row {
            what: "being deleted, held",
            change: |facts| {
                facts.claim.deleting = true;
                facts.deleted = Some(at(-7));
            },
            state: State::BeingDeleted,
            since: Some(-7),
            says: &["kubernetes.io/pvc-protection"],
        },
        Row {
            what: "neither class nor name known",
            change: |facts| {
                facts.claim.provisioner = None;
                facts.class = Err(NotRead { what: "storageclass fast".into(), why: "forbidden".into() });
            },
            state: State::Unknown,
            since: None,
            says: &["with the permission to read storageclass fast"],
        },
        Row {
            what: "class not readable, name on the claim",
            change: |facts| {
                facts.class = Err(NotRead { what: "storageclass fast".into(), why: "forbidden".into() });
                events(facts, [failure("no")]);
            },
            state: State::BackingOff,
            since: Some(-10),
            says: &[],
        },
    ];
    check(&claim_facts(), claim, rows);
}

fn volume_of(claim: &str) -> Volume {
    let claim = ClaimRef { namespace: "team".into(), name: "data".into(), uid: claim.into() };
    Volume { claim: Some(claim), ..volume_facts().volume }
}

fn volume_facts() -> VolumeFacts {
    VolumeFacts {
        volume: Volume {
            name: "pvc-1".into(),
            uid: "volume-uid".into(),
            phase: Phase::Released,
            finalizer: true,
            claim: Some(ClaimRef { namespace: "team".into(), name: "data".into(), uid: "claim-uid".into() }),
            provisioned_by: Some("ours.dev/disk".into()),
            ..Volume::default()
        },
        phase_since: Some(at(-60)),
        deleted: None,
        finalizers: vec![names::FINALIZER.into()],
        claim: Ok(None),
        around: around(),
    }
}

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
            what: "of an instance whose Lease is not there",
            change: |facts| facts.volume.instance = Some("east".into()),
            state: State::NobodyLeads,
            since: Some(-60),
            says: &[],
        },
    ];
    check(&volume_facts(), volume, rows);
}

#[test]
fn the_next_try_is_estimated_by_the_default_waits() {
    let next = |count, told_seconds_ago: i64| {
        let mut facts = claim_facts();
        let last = Some(at(-told_seconds_ago));
        events(&mut facts, [Event { count, first: Some(at(-5000)), last, ..failure("no") }]);
        let next = claim(&facts).next_try.unwrap();
        (next.at.as_second() - at(0).as_second(), next.overdue)
    };
    assert_eq!(next(1, 10), (5, false), "15 s after the first failure");
    assert_eq!(next(1, 40), (5, false), "the second failure, 25 s ago, was not told: its wait is 30 s");
    assert_eq!(next(4, 10), (110, false), "120 s after the fourth");
    assert_eq!(next(20, 0), (1000, false));
    assert_eq!(next(4, 150), (-30, false), "an attempt may take a while");
    assert_eq!(next(4, 300), (-180, true));
}

#[test]
fn failures_of_another_replica_do_not_count_and_other_words_of_this_one_do() {
    let mut facts = claim_facts();
    let before = Event { instance: "pod-1".into(), count: 7, last: Some(at(-600)), ..failure("no") };
    let other_words = Event { last: Some(at(-30)), first: Some(at(-30)), ..failure("no disk") };
    events(&mut facts, [before, other_words, failure("no")]);
    let attempt = claim(&facts).last_attempt.unwrap();
    assert_eq!((attempt.count, attempt.first_at, attempt.at), (2, at(-30), at(-10)));
}

#[test]
fn nothing_is_tried_again_that_nobody_tries_or_that_was_not_an_attempt() {
    let mut facts = claim_facts();
    events(&mut facts, [failure("no")]);
    facts.around.leases.clear();
    let found = claim(&facts);
    assert!(found.next_try.is_none() && found.last_attempt.is_some());
    let mut refused = claim_facts();
    refused.claim.block = true;
    events(&mut refused, [failure(&PendingReason::BlockUnsupported.to_string())]);
    let found = claim(&refused);
    assert!(found.next_try.is_none() && found.last_attempt.is_none());
}

#[test]
fn a_leader_under_another_name_that_tried_is_the_leader() {
    let mut facts = claim_facts();
    facts.claim.provisioner = Some("old.dev".into());
    facts.class = Ok(Some(Class { provisioner: "old.dev".into(), ..class() }));
    events(&mut facts, [failure("no")]);
    let found = claim(&facts);
    assert_eq!((found.state, found.leader.leadership), (State::BackingOff, Leadership::Held));
}

#[test]
fn a_lease_that_is_renewed_is_preferred_to_one_that_is_not() {
    let mut facts = claim_facts();
    let old = Lease { namespace: "old".into(), renewed: Some(at(-500)), ..lease() };
    facts.around.leases.insert(0, old);
    let leader = claim(&facts).leader;
    assert_eq!(leader.lease.as_deref(), Some("infra/ours.dev-disk"));
    assert_eq!((leader.renew_age_seconds, leader.duration_seconds), (Some(2), Some(15)));
}

#[test]
fn what_could_not_be_read_is_told_and_the_rest_is_still_answered() {
    let mut facts = claim_facts();
    let forbidden = |what: &str| NotRead { what: what.into(), why: "forbidden".into() };
    facts.around.events = Err(forbidden("events"));
    facts.around.leases.clear();
    facts.around.leases_not_read = Some(forbidden("leases"));
    facts.volume = Err(forbidden("volume"));
    let found = claim(&facts);
    assert_eq!(found.state, State::InProgress);
    assert_eq!(found.leader.leadership, Leadership::Unknown, "not read is not absent");
    let missing: Vec<&str> = found.not_read.iter().map(|part| part.what.as_str()).collect();
    assert_eq!(missing, ["volume", "events", "leases"]);
}

#[test]
fn the_text_has_every_part() {
    let mut facts = claim_facts();
    events(&mut facts, [Event { count: 3, first: Some(at(-100)), ..failure("no disk") }]);
    facts.around.pods = Err(NotRead { what: "pods".into(), why: "forbidden".into() });
    let text = claim(&facts).to_string();
    let parts = [
        "PersistentVolumeClaim team/data: BackingOff\n",
        "  waiting for   the next attempt to provision a volume\n",
        "  since         2027-01-15T07:58:20Z (1 min 40 s ago)\n",
        "  last attempt  2027-01-15T07:59:50Z (10 s ago), ProvisioningFailed, 3 times since 2027-01-15T07:58:20Z: no disk\n",
        "  next try      about 2027-01-15T08:00:50Z (an estimate by the default waits)\n",
        "  provisioner   ours.dev/disk\n",
        "  leader        pod-0_uid_nonce leads (Lease infra/ours.dev-disk, renewed 2 s ago)\n",
        "\nWhat to do:\n  - Mend what the error says",
        "\nWhat could not be read, so that it is left out above:\n  - pods: forbidden\n",
    ];
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn the_json_has_the_documented_fields() {
    let mut facts = claim_facts();
    events(&mut facts, [failure("no disk")]);
    let json = serde_json::to_value(claim(&facts)).unwrap();
    let fields =
        |value: &serde_json::Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let page = include_str!("../../../docs/reference/explain.md");
    let nested = ["object", "lastAttempt", "nextTry", "leader"];
    let all = fields(&json).into_iter().chain(
        nested
            .iter()
            .flat_map(|name| fields(&json[name]).into_iter().map(move |field| format!("{name}.{field}"))),
    );
    for field in all {
        assert!(page.contains(&format!("| `{field}` |")), "{field} is not documented");
    }
    assert_eq!(json["state"], "BackingOff");
    assert_eq!(json["lastAttempt"]["cause"], "Other");
    assert_eq!(json["since"], "2027-01-15T07:59:50Z");
}
