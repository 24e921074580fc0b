//! Why a volume is not deleted.

use std::sync::Arc;

use super::{Attempt, Case, Explanation, Finding, Leader, Object, State, facts::VolumeFacts, missing_parts};
use crate::{
    lifecycle::{
        claim::Served,
        names,
        objects::{Claim, Phase},
        tell::Reason,
        volume::{Decision, Proof, decide},
    },
    provisioner::ReclaimPolicy,
};

/// Explains a volume.
#[must_use]
pub fn volume(facts: &VolumeFacts) -> Explanation {
    let names = served_names(facts);
    let volume = &facts.volume;
    let attempt = Attempt::last(facts.around.events.as_deref().unwrap_or_default(), &[]);
    let known: Vec<&str> = names.iter().map(|name| &**name).collect();
    let leader = Leader::find(&facts.around, &known, volume.instance.as_deref());
    let provisioner = names.first().map(ToString::to_string);
    let question = Question { facts, names, case: Case { around: &facts.around, leader, attempt } };
    let finding = question.finding();
    let object = Object {
        kind: "PersistentVolume",
        namespace: None,
        name: volume.name.to_string(),
        uid: volume.uid.to_string(),
    };
    let not_read = missing_parts(&facts.around, &[facts.claim.as_ref().err()]);
    question.case.explain(object, provisioner, finding, not_read)
}

/// The names that are asked about: those given, else who took the volume over, made it, or drives it.
fn served_names(facts: &VolumeFacts) -> Vec<Arc<str>> {
    let volume = &facts.volume;
    if !facts.around.asked.is_empty() {
        return facts.around.asked.iter().map(|name| name.as_str().into()).collect();
    }
    let maker = [&volume.migrated_to, &volume.provisioned_by, &volume.csi_driver];
    maker.into_iter().flatten().next().cloned().into_iter().collect()
}

struct Question<'a> {
    facts: &'a VolumeFacts,
    names: Vec<Arc<str>>,
    case: Case<'a>,
}

impl Question<'_> {
    fn finding(&self) -> Finding {
        let volume = &self.facts.volume;
        if self.names.is_empty() {
            return self.hand_made();
        }
        // Another instance than the volume's own would be another deployment: the volume says which is meant.
        let instance = volume.instance.clone();
        let served = Served { names: self.names.clone(), instance, finalizer: true, ..Served::default() };
        match decide(volume, &served) {
            Decision::NotOurs => self.not_ours(),
            Decision::Delete(proof) => self.delete(proof),
            Decision::Keep if volume.phase != Phase::Bound => self.keep(),
            Decision::Spare => self.spare(),
            Decision::Keep | Decision::Leave | Decision::Strip | Decision::Adopt => self.left_alone(),
        }
    }

    fn delete(&self, proof: Proof) -> Finding {
        if proof == Proof::ReadClaim
            && let Some(claim) = self.living_claim()
        {
            return Finding::new(
                State::ClaimLives,
                format!(
                    "the volume's phase is Failed, but its claim {} lives, so its data is kept",
                    claim.path()
                ),
            )
            .waits_for(format!("claim {} to be deleted", claim.path()))
            .since(self.facts.phase_since)
            .advise("See the volume's status.message and events for what made it fail.")
            .advise("Delete the claim if its data is not needed; the volume goes then.");
        }
        let since =
            self.facts.deleted.filter(|_| self.facts.phase_since.is_none()).or(self.facts.phase_since);
        match &self.case.attempt {
            Some(attempt)
                if attempt.reason == Reason::VolumeDelete.as_str() && !self.case.leader.is_missing() =>
            {
                Finding::new(
                    State::InUse,
                    format!("the backend says that the volume is in use: {}", attempt.message),
                )
                .waits_for("whatever uses it to let go")
                .since(attempt.first_at)
                .advise(self.users())
                .advise("It is tried again by itself.")
            }
            None if self.only_others_hold_it() => self.others(),
            _ => self.case.turn_of_leader("delete the volume and its data", since),
        }
    }

    /// It is marked for deletion, and our finalizer is gone: the backend is done, or never had to do with it.
    fn only_others_hold_it(&self) -> bool {
        self.facts.volume.deleting && !self.facts.volume.finalizer && !self.others_finalizers().is_empty()
    }

    fn others_finalizers(&self) -> Vec<&str> {
        self.facts.finalizers.iter().map(String::as_str).filter(|name| *name != names::FINALIZER).collect()
    }

    fn others(&self) -> Finding {
        let finalizers = self.others_finalizers();
        let finding = Finding::new(
            State::FinalizersOfOthers,
            format!(
                "the volume is marked for deletion, and finalizers of others hold it: {}",
                finalizers.join(", ")
            ),
        )
        .waits_for("those finalizers to be taken off by whoever put them there")
        .since(self.facts.deleted);
        let advice = |name: &&str| {
            match *name {
            "kubernetes.io/pv-protection" => {
                "kubernetes.io/pv-protection is kube-controller-manager's: it goes when no claim is bound to the volume.".to_owned()
            }
            name if name.starts_with("external-attacher/") => {
                format!("{name}: the volume is still attached to a node; see kubectl get volumeattachment.")
            }
            name => format!("{name}: see that the program it belongs to runs."),
        }
        };
        finalizers.iter().map(advice).fold(finding, Finding::advise)
    }

    fn keep(&self) -> Finding {
        if self.facts.volume.policy == ReclaimPolicy::Delete {
            return self.case.turn_of_leader("let go of a volume that never had a claim", self.facts.deleted);
        }
        let policy = policy_word(self.facts.volume.policy);
        if self.facts.volume.deleting {
            return self.case.turn_of_leader(
                &format!("let the volume go without its data, which its reclaim policy {policy} keeps"),
                self.facts.deleted,
            );
        }
        match self.facts.volume.phase {
            Phase::Released | Phase::Failed => self.retained(),
            _ => self.left_alone(),
        }
    }

    fn retained(&self) -> Finding {
        let policy = policy_word(self.facts.volume.policy);
        let name = &self.facts.volume.name;
        Finding::new(State::Retained, format!("the volume's claim is gone, but its reclaim policy is {policy}: volume and data stay until a person deals with them"))
            .waits_for("a person")
            .since(self.facts.phase_since)
            .advise(format!(
                "To delete it with its data: kubectl patch pv {name} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Delete\"}}}}'."
            ))
            .advise(format!("To delete only the object and keep the data: kubectl delete pv {name}."))
            .advise(format!("To use it again: take spec.claimRef off it; it is Available then: kubectl edit pv {name}."))
    }

    fn left_alone(&self) -> Finding {
        let volume = &self.facts.volume;
        match volume.phase {
            Phase::Released | Phase::Failed if volume.policy != ReclaimPolicy::Delete => {
                if volume.deleting {
                    self.others()
                } else {
                    self.retained()
                }
            }
            Phase::Bound if volume.deleting => self.terminating_with_claim(),
            Phase::Bound => self.bound(),
            Phase::Released | Phase::Failed => self.never_bound(),
            Phase::Pending | Phase::Available if volume.deleting => self.others(),
            Phase::Pending | Phase::Available => Finding::new(
                State::Available,
                "the volume is free for a claim; it is deleted only after a claim has used it",
            )
            .since(self.facts.phase_since)
            .advise("Nothing has to be done. If it is not wanted, delete it."),
        }
    }

    fn bound(&self) -> Finding {
        let claim = self.claim_path();
        let finding = Finding::new(
            State::Bound,
            format!("the volume is bound to claim {claim}, and not marked for deletion"),
        )
        .since(self.facts.phase_since);
        if self.claim_is_gone() {
            return finding.waits_for("kube-controller-manager to notice that the claim is gone").advise(
                "That takes seconds. If it does not happen, see whether kube-controller-manager runs.",
            );
        }
        if self.facts.volume.policy == ReclaimPolicy::Delete {
            finding.advise(format!("It is deleted by itself when claim {claim} is deleted."))
        } else {
            let policy = policy_word(self.facts.volume.policy);
            finding.advise(format!("It stays when claim {claim} is deleted: its reclaim policy is {policy}."))
        }
    }

    fn terminating_with_claim(&self) -> Finding {
        let claim = self.claim_path();
        let finding = Finding::new(
            State::TerminatingWithClaim,
            format!("the volume is marked for deletion, but claim {claim} is bound to it; its data stays as long as the claim does"),
        )
        .waits_for(format!("claim {claim} to be deleted"))
        .since(self.facts.deleted)
        .advise(self.users())
        .advise(format!("If the data is not needed, delete claim {claim}: the volume goes then."));
        if self.facts.volume.policy == ReclaimPolicy::Delete {
            finding.advise(format!(
                "If the data is needed: a deletion can't be taken back, but the data can be saved: set the reclaim policy to Retain before the claim goes: kubectl patch pv {} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}'.",
                self.facts.volume.name
            ))
        } else {
            finding
        }
    }

    /// It was deleted before it was bound: kube-controller-manager neither binds nor releases it any more.
    fn spare(&self) -> Finding {
        if let Some(claim) = self.living_claim() {
            let work = format!("let the volume go and make it anew for claim {}, which lives", claim.path());
            return self.case.turn_of_leader(&work, self.facts.deleted);
        }
        Finding::new(
            State::NeverBound,
            "the volume was deleted before its claim was bound to it, and the claim is gone or could not be read",
        )
        .waits_for("kube-controller-manager to call it Released")
        .since(self.facts.deleted)
        .advise("See whether kube-controller-manager runs.")
    }

    fn never_bound(&self) -> Finding {
        Finding::new(
            State::NeverBound,
            "the volume names no claim by UID, so nothing proves that its claim is gone; it is left alone",
        )
        .waits_for("a person")
        .since(self.facts.phase_since)
        .advise("See what it holds; then delete it by hand, object and data.")
    }

    fn hand_made(&self) -> Finding {
        Finding::new(
            State::HandMade,
            "the volume was made by hand: it names no provisioner, so none deletes it",
        )
        .waits_for(if self.facts.volume.deleting { "its finalizers to go" } else { "a person" })
        .since(self.facts.deleted.or(self.facts.phase_since))
        .advise("Whoever made it deletes it: the data first, then the object.")
    }

    fn not_ours(&self) -> Finding {
        let volume = &self.facts.volume;
        let maker = [&volume.migrated_to, &volume.provisioned_by, &volume.csi_driver];
        let maker = maker.into_iter().flatten().next().map_or("nobody", |name| name);
        let asked: Vec<&str> = self.names.iter().map(|name| &**name).collect();
        Finding::new(State::NotOurs, format!("the volume is {maker}'s, not {}'s", asked.join("'s or ")))
            .since(self.facts.phase_since)
            .advise(format!("Ask about it without --provisioner-name, or look at what serves {maker}."))
    }
}

/// Its claim.
impl Question<'_> {
    fn living_claim(&self) -> Option<&Claim> {
        self.facts.claim.as_ref().ok().and_then(Option::as_ref)
    }

    fn claim_is_gone(&self) -> bool {
        matches!(self.facts.claim, Ok(None))
    }

    fn claim_path(&self) -> String {
        let claim = self.facts.volume.claim.as_ref();
        claim.map_or_else(|| "(none)".into(), |claim| format!("{}/{}", claim.namespace, claim.name))
    }

    fn users(&self) -> String {
        let pods = self.case.around.pods.as_deref().unwrap_or_default();
        let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
        if !names.is_empty() {
            return format!("These Pods use it: {}.", names.join(", "));
        }
        match self.case.around.pods {
            Ok(_) => "No Pod uses its claim; see what else has it mounted or attached (kubectl get volumeattachment).".into(),
            Err(_) => "See which Pods use its claim: they could not be read.".into(),
        }
    }
}

fn policy_word(policy: ReclaimPolicy) -> String {
    format!("{policy:?}")
}
