//! Every finding about a claim, from plain data.

use super::*;

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
            what: "made, deleted before it was bound",
            change: |facts| {
                let phase = crate::lifecycle::objects::Phase::Bound;
                facts.volume = Ok(Some(Volume { phase, deleting: true, ..volume_of("claim-uid") }));
            },
            state: State::VolumeTerminating,
            since: Some(-100),
            says: &["pvc-1", "Retain", "kubectl delete pvc -n team data"],
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
    check(&claim_facts(), explain_claim, rows);
}
