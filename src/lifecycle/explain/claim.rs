//! Why a claim is pending.

use std::sync::Arc;

use super::{
    Attempt, Case, Explanation, Finding, Leader, Object, State, consumer,
    facts::{ClaimFacts, Moment, NotRead, Pod},
    leader::Leadership,
    missing_parts,
};
use crate::{
    lifecycle::{
        claim::{Decision, PendingReason, Served, decide},
        objects::{Claim, Class, Volume},
    },
    nearest::nearest,
    provisioner::Capabilities,
};

/// The provisioner of classes that make no volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What a backend can do is not written anywhere in the cluster: supposed, until an event denies it.
fn everything() -> Capabilities {
    Capabilities { block: true, selector: true, data_source: true, ..Capabilities::default() }
}

/// Explains a claim.
#[must_use]
pub fn claim(facts: &ClaimFacts) -> Explanation {
    let class = class(facts);
    let names = names(facts, class.as_ref());
    let told = told(&facts.claim);
    let events = facts.around.events.as_deref().unwrap_or_default();
    let attempt = Attempt::last(events, &told);
    let leader = leader(facts, &names, attempt.as_ref());
    let question = Question { facts, class, names, case: Case { around: &facts.around, leader, attempt } };
    let finding = question.finding();
    let object = Object {
        kind: "PersistentVolumeClaim",
        namespace: Some(facts.claim.namespace.to_string()),
        name: facts.claim.name.to_string(),
        uid: facts.claim.uid.to_string(),
    };
    let provisioner = question.names.first().map(ToString::to_string);
    let parts = [facts.class.as_ref().err(), facts.volume.as_ref().err()];
    question.case.explain(object, provisioner, finding, missing_parts(&facts.around, &parts))
}

/// The class, or what stands in for one that could not be read: all that is known is its provisioner.
fn class(facts: &ClaimFacts) -> Option<Class> {
    match &facts.class {
        Ok(class) => class.clone(),
        Err(_) => facts.claim.provisioner.clone().map(|provisioner| Class {
            name: facts.claim.class.clone().unwrap_or_default(),
            provisioner,
            ..Class::default()
        }),
    }
}

/// The names that are asked about: those given, else the one on the claim, else the class's.
fn names(facts: &ClaimFacts, class: Option<&Class>) -> Vec<Arc<str>> {
    let asked: Vec<Arc<str>> = facts.around.asked.iter().map(|name| name.as_str().into()).collect();
    let named = || facts.claim.provisioner.clone().or_else(|| class.map(|class| class.provisioner.clone()));
    if asked.is_empty() { named().into_iter().collect() } else { asked }
}

/// The Lease of those names; failing that, of whoever told of an attempt: then the name is an additional one.
fn leader(facts: &ClaimFacts, names: &[Arc<str>], attempt: Option<&Attempt>) -> Leader {
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let leader = Leader::find(&facts.around, &names, None);
    match attempt {
        Some(attempt) if leader.leadership == Leadership::Absent => {
            let teller = Leader::find(&facts.around, &[&attempt.told_by], None);
            if teller.leadership == Leadership::Absent { leader } else { teller }
        }
        _ => leader,
    }
}

/// What events say that tell of no attempt.
fn told(claim: &Claim) -> Vec<String> {
    let reasons = [
        PendingReason::ClassMissing { class: claim.class.clone() },
        PendingReason::ClassMissing { class: None },
        PendingReason::BlockUnsupported,
        PendingReason::SelectorUnsupported,
        PendingReason::DataSourceUnsupported,
    ];
    reasons.iter().map(ToString::to_string).collect()
}

struct Question<'a> {
    facts: &'a ClaimFacts,
    class: Option<Class>,
    names: Vec<Arc<str>>,
    case: Case<'a>,
}

impl Question<'_> {
    fn finding(&self) -> Finding {
        let claim = &self.facts.claim;
        if claim.deleting {
            return self.being_deleted();
        }
        if let Some(volume) = &claim.volume_name {
            return self.has_volume_name(volume);
        }
        if let (Err(missing), None) = (&self.facts.class, &self.class) {
            return unknown(missing);
        }
        if self.facts.static_only {
            return static_only(
                "the claim asks for no storage class (storageClassName is empty), so nothing is provisioned for it",
            );
        }
        if self.class.as_ref().is_some_and(|class| &*class.provisioner == NO_PROVISIONER) {
            return static_only(
                "the claim's class makes no volumes (kubernetes.io/no-provisioner): it only binds existing ones",
            );
        }
        match self.decision() {
            Decision::NotOurs if claim.provisioner.is_none() && self.class.is_none() => {
                self.waits(&PendingReason::ClassMissing { class: claim.class.clone() })
            }
            Decision::NotOurs => self.not_ours(),
            Decision::Settled => self.binding(),
            Decision::Wait(reason) | Decision::Refuse(reason) => self.waits(&reason),
            Decision::Provision => self.mistyped().unwrap_or_else(|| self.provision()),
        }
    }

    /// The controller's decision. What a backend can't do counts only if an event of its provisioner says so.
    fn decision(&self) -> Decision {
        match self.decide_for(Capabilities::default()) {
            Decision::Refuse(reason) if self.refused(&reason).is_none() => self.decide_for(everything()),
            decision => decision,
        }
    }

    fn decide_for(&self, capabilities: Capabilities) -> Decision {
        let served = Served { names: self.names.clone(), capabilities, finalizer: true, ..Served::default() };
        let claim = &self.facts.claim;
        let volume = self.facts.volume.as_ref().ok().and_then(Option::as_ref);
        let is_owner = |volume: &&Volume| volume.claim.as_ref().is_some_and(|owner| owner.uid == claim.uid);
        decide(claim, self.class.as_ref(), volume.filter(is_owner), &served)
    }

    /// When the provisioner said so, if it did.
    fn refused(&self, reason: &PendingReason) -> Option<Moment> {
        let text = reason.to_string();
        let events = self.case.around.events.as_deref().unwrap_or_default();
        events.iter().find(|event| event.note == text).and_then(|event| event.first.or(event.last))
    }

    fn created(&self) -> Moment {
        Moment::from_second(self.facts.claim.created)
    }

    fn waits(&self, reason: &PendingReason) -> Finding {
        match reason {
            PendingReason::ClassMissing { class } => self.class_missing(class.as_deref(), reason),
            PendingReason::ClassForeign { class, provisioner } => {
                self.class_foreign(class, provisioner, reason)
            }
            PendingReason::WaitingForConsumer => self.mistyped().unwrap_or_else(|| self.consumer(reason)),
            PendingReason::NotNamedYet => self.mistyped().unwrap_or_else(|| self.not_named(reason)),
            PendingReason::BlockUnsupported => self.unsupported(State::BlockUnsupported, reason),
            PendingReason::SelectorUnsupported => self.unsupported(State::SelectorUnsupported, reason),
            PendingReason::DataSourceUnsupported => self.unsupported(State::DataSourceUnsupported, reason),
            // A backend's filter leaves no trace, and decide() does not know of it.
            PendingReason::Filtered => Finding::new(State::NotOurs, reason.to_string()),
            PendingReason::VolumeTerminating { volume } => self.volume_terminating(volume, reason),
        }
    }
}

/// Bound, reserved, going away.
impl Question<'_> {
    fn volume_terminating(&self, volume: &str, reason: &PendingReason) -> Finding {
        let claim = &self.facts.claim;
        Finding::new(State::VolumeTerminating, reason.to_string())
            .waits_for("a person")
            .since(self.created())
            .advise(format!(
                "If the data is needed: kubectl patch pv {volume} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}'. It then outlives the claim and the volume."
            ))
            .advise(format!(
                "Then, or if it is not needed: kubectl delete pvc -n {} {}. Create the claim anew for a new volume.",
                claim.namespace, claim.name
            ))
    }

    fn being_deleted(&self) -> Finding {
        let finding = Finding::new(
            State::BeingDeleted,
            "the claim is marked for deletion, so no volume is made for it",
        )
        .since(self.facts.deleted);
        let pods = self.pod_names();
        if !pods.is_empty() {
            return finding
                .waits_for(format!("the Pods that use it to end: {}", pods.join(", ")))
                .advise("Delete or finish those Pods; the claim goes with the last of them.");
        }
        if self.facts.finalizers.is_empty() {
            return finding.waits_for("the API server to remove it");
        }
        let finalizers = self.facts.finalizers.join(", ");
        finding
            .waits_for(format!("its finalizers to go: {finalizers}"))
            .advise("See that whoever put them there runs; kubernetes.io/pvc-protection is kube-controller-manager's.")
    }

    fn has_volume_name(&self, volume: &str) -> Finding {
        match self.facts.phase.as_str() {
            "Bound" => Finding::new(State::Bound, format!("the claim is bound to volume {volume}; there is nothing to wait for")),
            "Lost" => Finding::new(State::VolumeLost, format!("volume {volume}, to which the claim was bound, is gone"))
                .advise("Its data is not reachable through this claim any more. Restore the volume under that name, or delete the claim and make it anew."),
            _ => self.reserved(volume),
        }
    }

    /// It names a volume, but is not bound: a person chose the volume, or binding is under way.
    fn reserved(&self, name: &str) -> Finding {
        let finding = |summary: String| Finding::new(State::Binding, summary).since(self.created());
        let owner = match &self.facts.volume {
            Ok(None) => {
                return finding(format!("the claim chooses volume {name}, which does not exist"))
                    .waits_for(format!("volume {name}"))
                    .advise(format!("Create volume {name}, or create the claim without spec.volumeName."));
            }
            Ok(Some(volume)) => volume.claim.as_ref(),
            Err(_) => None,
        };
        match owner {
            Some(owner) if !owner.uid.is_empty() && owner.uid != self.facts.claim.uid => finding(format!(
                "the claim chooses volume {name}, which belongs to claim {}/{}",
                owner.namespace, owner.name
            ))
            .waits_for(format!("volume {name} to be free"))
            .advise("Choose another volume, or create the claim without spec.volumeName."),
            _ => finding(format!("the claim chooses volume {name}; kube-controller-manager is to bind them"))
                .waits_for("kube-controller-manager")
                .advise(
                    "See the claim's events: size, access modes, class or labels of the volume may not fit.",
                ),
        }
    }

    fn binding(&self) -> Finding {
        let volume = self.facts.volume.as_ref().ok().and_then(Option::as_ref);
        let name = volume.map_or("its volume", |volume| &volume.name);
        Finding::new(
            State::Binding,
            format!("the claim's volume {name} is made; kube-controller-manager is to bind them"),
        )
        .waits_for("kube-controller-manager")
        .since(self.created())
        .advise("That takes seconds. If it does not happen, see whether kube-controller-manager runs.")
    }
}

/// Classes and provisioner names.
impl Question<'_> {
    fn class_missing(&self, class: Option<&str>, reason: &PendingReason) -> Finding {
        let finding = Finding::new(State::ClassMissing, reason.to_string()).since(self.created());
        let Some(class) = class else {
            return finding
                .waits_for("a default storage class, or one that the claim names")
                .advise("See the classes there are: kubectl get storageclass.")
                .advise("Create the claim anew with spec.storageClassName, or make one class the default.");
        };
        let near = nearest(class, self.facts.classes.iter().map(String::as_str));
        let finding = finding.waits_for(format!("storage class {class}"));
        match near {
            Some(near) => finding.advise(format!(
                "Did you mean {near:?}? A claim's class can't be changed: delete the claim and create it with that class."
            )),
            None => finding,
        }
        .advise(format!("Create storage class {class}: the claim is then provisioned by itself."))
    }

    fn class_foreign(&self, class: &str, provisioner: &str, reason: &PendingReason) -> Finding {
        let named = self.facts.claim.provisioner.as_deref().unwrap_or_default();
        Finding::new(State::ClassForeign, format!("the claim was handed to {named}, but {reason}"))
            .waits_for(format!("storage class {class} to name {named} again"))
            .since(self.created())
            .advise(format!("If {provisioner} is right, delete the claim and create it anew; it is then handed to {provisioner}."))
            .advise("If it is wrong, delete the class and create it with the right provisioner: that field can't be changed.")
    }

    /// The one name in question, if nobody serves it and it resembles one that is served.
    fn mistyped(&self) -> Option<Finding> {
        let around = self.case.around;
        let name: &str = self.names.first()?;
        let class = &self.class.as_ref()?.name;
        if self.case.attempt.is_some()
            || self.case.leader.lease.is_some()
            || around.names.iter().any(|known| known == name)
        {
            return None;
        }
        let leases = around.leases.iter().map(|lease| lease.provisioner.as_str());
        let known = leases.chain(around.names.iter().map(String::as_str));
        let near = nearest(name, known)?;
        Some(
            Finding::new(
                State::WrongProvisionerName,
                format!("storage class {class:?} names provisioner {name:?}, which nobody serves; {near:?} is served and resembles it"),
            )
            .waits_for(format!("somebody to serve {name}"))
            .since(self.created())
            .advise(format!(
                "If {near:?} was meant: delete class {class} and create it with provisioner: {near} (that field can't be changed), then delete the claim and create it anew."
            ))
            .advise(format!("If {name:?} is right: deploy what serves it.")),
        )
    }

    fn not_ours(&self) -> Finding {
        let class = self.class.as_ref().map(|class| &*class.provisioner);
        let owner = self.facts.claim.provisioner.as_deref().or(class).unwrap_or_default();
        let asked: Vec<&str> = self.names.iter().map(|name| &**name).collect();
        let summary = format!("the claim is for provisioner {owner:?}, not for {}", asked.join(" or "));
        match nearest(owner, asked.iter().copied()) {
            Some(near) => Finding::new(State::WrongProvisionerName, format!("{summary}; the names resemble each other"))
                .waits_for(format!("somebody to serve {owner}"))
                .since(self.created())
                .advise(format!(
                    "If {near:?} was meant: delete the class and create it with provisioner: {near}, then delete the claim and create it anew."
                )),
            None => Finding::new(State::NotOurs, summary)
                .since(self.created())
                .advise(format!("Ask about it without --provisioner-name, or look at what serves {owner:?}.")),
        }
    }

    fn not_named(&self, reason: &PendingReason) -> Finding {
        Finding::new(State::NotNamedYet, reason.to_string())
            .waits_for("kube-controller-manager")
            .since(self.created())
            .advise("That takes seconds. If it does not happen, see whether kube-controller-manager runs, and the claim's events: a volume that exists may be meant for it.")
    }

    fn unsupported(&self, state: State, reason: &PendingReason) -> Finding {
        let advice = match reason {
            PendingReason::BlockUnsupported => {
                "Delete the claim and create it with volumeMode: Filesystem, or with a class that makes block volumes."
            }
            PendingReason::SelectorUnsupported => {
                "Delete the claim and create it without spec.selector, or create a volume of its class with those labels."
            }
            _ => {
                "Delete the claim and create it without spec.dataSource, then fill the volume by other means."
            }
        };
        Finding::new(state, reason.to_string())
            .waits_for("a change; it is not tried again as it is")
            .since(self.refused(reason).unwrap_or_else(|| self.created()))
            .advise(advice)
    }

    fn provision(&self) -> Finding {
        self.case.turn_of_leader("provision a volume", Some(self.created()))
    }
}

/// `WaitForFirstConsumer`.
impl Question<'_> {
    fn pods(&self) -> &[Pod] {
        self.case.around.pods.as_deref().unwrap_or_default()
    }

    fn pod_names(&self) -> Vec<&str> {
        self.pods().iter().map(|pod| pod.name.as_str()).collect()
    }

    fn consumer(&self, reason: &PendingReason) -> Finding {
        if let Some(finding) = consumer::trouble(self.pods()) {
            return finding;
        }
        let finding = Finding::new(State::WaitingForConsumer, reason.to_string())
            .waits_for("a Pod that uses the claim")
            .since(self.created());
        let (namespace, name) = (&self.facts.claim.namespace, &self.facts.claim.name);
        match self.case.around.pods {
            Ok(_) => finding
                .advise(format!("This is no fault. Create a Pod in namespace {namespace} with claim {name} among its volumes; its node decides where the volume is made."))
                .advise("If volumes should be made without a Pod, use a class with volumeBindingMode: Immediate."),
            Err(_) => finding.advise(format!("See whether a Pod in namespace {namespace} uses the claim, and whether it is scheduled: they could not be read.")),
        }
    }
}

fn static_only(summary: &str) -> Finding {
    Finding::new(State::StaticOnly, summary)
        .waits_for("a volume that fits it, made by hand")
        .advise("Create a volume of the same class that is large enough and has the access modes; or create the claim anew with a class that provisions.")
}

fn unknown(missing: &NotRead) -> Finding {
    Finding::new(
        State::Unknown,
        format!("the claim names no provisioner, and its class could not be read: {}", missing.why),
    )
    .advise(format!("Ask again with the permission to read {}.", missing.what))
}
