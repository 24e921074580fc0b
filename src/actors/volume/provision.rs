//! Provisioning: the claim read where the cache may be stale, the backend's call, the volume saved.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;

use super::{Answer, Effect, Failure, Outcome, ProvisionTask, Setting, Step, failed, out_of_turn};
use crate::{
    cluster::{CallError, decode},
    known_bugs::{self, Bug},
    lifecycle::{
        objects::Claim,
        pv::{self, Existing, Frame},
        retry::Backoff,
        tell::{Note, Reason},
    },
    provisioner::ProvisionError,
};

/// A claim on its way to its volume.
#[derive(Debug)]
pub struct Provision {
    task: ProvisionTask,
    setting: Setting,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The claim is being read live.
    Reading,
    /// The backend is at work.
    Calling,
    /// The asset is there; the volume is being saved, for as long as it takes.
    Saving(Save),
    /// A volume of the name exists and is being read.
    Comparing(Save),
    /// The asset of a name that another claim's volume took is being removed.
    RemovingSurplus,
    /// The chosen node is being taken off the claim.
    Unselecting(String),
}

#[derive(Debug)]
struct Save {
    volume: Arc<PersistentVolume>,
    failures: u32,
    /// What was last told about it.
    told: String,
}

impl Provision {
    pub(super) fn begin(task: ProvisionTask, setting: Setting) -> (Self, Effect) {
        let without_its_node = task.node.as_ref().is_some_and(|node| node.labels.is_empty());
        let (state, effect) = if without_its_node && known_bugs::is(Bug::RescheduleOnNodeGone) {
            (State::Unselecting("the node is gone".to_owned()), Effect::Unselect)
        } else if task.read_claim && !task.unknown {
            let claim = &task.claim;
            let (namespace, name) = ((&*claim.namespace).into(), claim.name.clone());
            (State::Reading, Effect::ReadClaim { namespace, name })
        } else {
            (State::Calling, Effect::CallProvision)
        };
        (Self { task, setting, state }, effect)
    }

    pub(super) fn answer(&mut self, answer: Answer, jitter: f64) -> Step {
        match (std::mem::replace(&mut self.state, State::Calling), answer) {
            (State::Reading, Answer::Claim(claim)) => self.read(claim),
            (State::Calling, Answer::Provisioned(answer)) => self.provisioned(answer),
            (State::Saving(save), Answer::Volume(answer)) => self.saved(save, answer, jitter),
            (State::Saving(save), Answer::Waited) => self.save(save),
            (State::Comparing(save), Answer::Volume(answer)) => self.compared(save, answer, jitter),
            (State::RemovingSurplus, Answer::Deleted(result)) => self.surplus_removed(result),
            (State::Unselecting(reason), Answer::Unselected(answer)) => self.unselected(&reason, answer),
            (_, answer) => out_of_turn(Reason::ProvisioningFailed, &answer),
        }
    }

    /// The guard had ended before the backend was called.
    pub(super) fn not_called(&self) -> Outcome {
        Outcome::Stopped { unknown: self.task.unknown }
    }

    pub(super) fn cut_off(&self) -> Outcome {
        let called = !matches!(self.state, State::Reading);
        Outcome::Stopped { unknown: called || self.task.unknown }
    }

    /// Goes on only with a claim that still is what was decided on.
    fn read(&mut self, claim: Result<Option<Box<Claim>>, CallError>) -> Step {
        match claim {
            Ok(Some(now)) if self.still_wanted(&now) => {
                self.task.claim = now.into();
                Step::Do(Effect::CallProvision)
            }
            Ok(_) => superseded("the claim is gone, has changed, or has a volume already"),
            Err(error) => failed(Reason::ProvisioningFailed, error),
        }
    }

    fn still_wanted(&self, now: &Claim) -> bool {
        !now.differs_for_decisions(&self.task.claim)
    }

    fn provisioned(&mut self, answer: Result<Box<PersistentVolume>, ProvisionError>) -> Step {
        match answer.map(|volume| self.complete(*volume)) {
            Ok(Ok(volume)) => self.save(Save { volume: Arc::new(volume), failures: 0, told: String::new() }),
            Ok(Err(message)) => self.failed(message, true),
            Err(ProvisionError::Ignored(ignored)) => Step::Done(Outcome::Ignored(ignored.reason)),
            Err(ProvisionError::Finished(cause)) => self.failed(cause.to_string(), false),
            Err(ProvisionError::Background(cause)) => {
                self.failed(cause.to_string(), !known_bugs::is(Bug::ForgetBackground))
            }
            Err(ProvisionError::NoChange(cause)) => self.failed(cause.to_string(), self.task.unknown),
            Err(ProvisionError::Infeasible(cause)) => Step::Done(Outcome::Failed(Failure {
                message: cause.to_string(),
                reason: Reason::ProvisioningFailed,
                unknown: false,
                slow: true,
            })),
            Err(ProvisionError::Reschedule(cause)) => self.reschedule(cause.to_string()),
        }
    }

    fn complete(&self, answer: PersistentVolume) -> Result<PersistentVolume, String> {
        let frame = Frame {
            name: &self.task.name,
            claim: &self.task.claim,
            class: &self.task.class,
            finalizer: self.setting.served.finalizer,
            traceparent: self.setting.traceparent.as_deref(),
            instance: self.setting.served.instance.as_deref(),
        };
        let volume = pv::complete(answer, &frame)?;
        match pv::check(&volume, &self.task.claim) {
            Err(misfit) if !self.task.claim_gone => Err(misfit),
            _ => Ok(volume),
        }
    }

    fn save(&mut self, save: Save) -> Step {
        let effect = Effect::CreateVolume(save.volume.clone());
        self.state = State::Saving(save);
        Step::Do(effect)
    }

    fn saved(
        &mut self,
        save: Save,
        answer: Result<Option<Box<PersistentVolume>>, CallError>,
        jitter: f64,
    ) -> Step {
        match answer {
            Ok(Some(volume)) => Step::Done(Outcome::Saved(decode::volume(&volume).into())),
            Ok(None) => self.save_later(save, "the API server did not answer with the volume", jitter),
            Err(CallError::AlreadyExists { .. }) => {
                self.state = State::Comparing(save);
                Step::Do(Effect::ReadVolume)
            }
            Err(CallError::NotLeading(_)) => stopped_with_asset(),
            Err(error @ CallError::Rejected { .. }) => self.failed(error.to_string(), true),
            Err(error) => self.save_later(save, &error.to_string(), jitter),
        }
    }

    /// Saves again after a while. The asset stays: one that can't be saved now is found again by name.
    fn save_later(&mut self, mut save: Save, message: &str, jitter: f64) -> Step {
        if known_bugs::is(Bug::DeleteOnFailedSave) {
            self.state = State::RemovingSurplus;
            return Step::Do(Effect::CallDelete(save.volume));
        }
        save.failures = save.failures.saturating_add(1);
        let wait = Effect::Wait(Backoff::API_WRITE.wait(save.failures, jitter));
        let news = save.told != message;
        message.clone_into(&mut save.told);
        self.state = State::Saving(save);
        if news {
            Step::TellAndDo(self.note(Reason::ProvisioningFailed, message), wait)
        } else {
            Step::Do(wait)
        }
    }

    fn compared(
        &mut self,
        save: Save,
        answer: Result<Option<Box<PersistentVolume>>, CallError>,
        jitter: f64,
    ) -> Step {
        let existing = match answer {
            Ok(Some(existing)) => existing,
            Ok(None) => return self.save_later(save, "the volume of this name has just vanished", jitter),
            Err(CallError::NotLeading(_)) => return stopped_with_asset(),
            Err(error) => return self.save_later(save, &error.to_string(), jitter),
        };
        if known_bugs::is(Bug::NoClaimRefComparison) {
            return Step::Done(Outcome::Saved(decode::volume(&existing).into()));
        }
        match pv::judge(&existing, &save.volume) {
            Existing::Ours => Step::Done(Outcome::Saved(decode::volume(&existing).into())),
            Existing::Terminating => {
                self.failed(format!("volume {} of this claim is being deleted", self.task.name), true)
            }
            Existing::Foreign { uses_asset: true } => failed(Reason::ProvisioningFailed, self.conflict()),
            Existing::Foreign { uses_asset: false } => {
                self.state = State::RemovingSurplus;
                Step::TellAndDo(
                    self.note(Reason::ProvisioningFailed, &self.conflict()),
                    Effect::CallDelete(save.volume),
                )
            }
        }
    }

    fn conflict(&self) -> String {
        format!(
            "volume {} exists and belongs to another claim; delete or rename it, then this claim is provisioned",
            self.task.name
        )
    }

    fn surplus_removed(&self, result: Result<(), crate::provisioner::DeleteError>) -> Step {
        match result {
            Ok(()) => failed(Reason::ProvisioningFailed, self.conflict()),
            Err(error) => Step::Done(Outcome::Failed(Failure {
                message: format!("the surplus asset {} could not be removed: {error}", self.task.name),
                reason: Reason::ProvisioningCleanupFailed,
                unknown: true,
                slow: false,
            })),
        }
    }

    fn reschedule(&mut self, reason: String) -> Step {
        if self.task.node.is_none() {
            return self.failed(reason, false);
        }
        self.state = State::Unselecting(reason);
        Step::Do(Effect::Unselect)
    }

    fn unselected(&self, reason: &str, answer: Result<Option<Box<Claim>>, CallError>) -> Step {
        match answer {
            Ok(claim) => Step::Done(Outcome::Rescheduled(claim)),
            Err(CallError::NotLeading(_)) => Step::Done(Outcome::Stopped { unknown: false }),
            Err(CallError::Conflict { .. }) => superseded("the claim changed while its node was taken off"),
            Err(error) => failed(Reason::ProvisioningFailed, format!("{reason}; {error}")),
        }
    }

    fn failed(&self, message: String, unknown: bool) -> Step {
        let reason = Reason::ProvisioningFailed;
        Step::Done(Outcome::Failed(Failure { message, reason, unknown, slow: false }))
    }

    fn note(&self, reason: Reason, message: &str) -> Note {
        Note::new(&*self.task.claim, reason, message)
    }
}

/// The asset is there, and this replica may no longer save its volume.
const fn stopped_with_asset() -> Step {
    Step::Done(Outcome::Stopped { unknown: true })
}

fn superseded(why: &str) -> Step {
    Step::Done(Outcome::Superseded(why.to_owned()))
}
