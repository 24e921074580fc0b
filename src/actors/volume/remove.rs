//! Deleting a volume and its asset, and the two ways to let go of one.
//!
//! A volume of ours with our finalizer: a DELETE with UID and version is the fence (the decision was
//! taken on exactly this version), then the backend, then the finalizer goes. All others: a live read,
//! the backend, the DELETE.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;

use super::Job;
use super::{Answer, Effect, Failure, Outcome, RemoveTask, Setting, Step, failed, out_of_turn};
use crate::{
    cluster::{CallError, decode},
    known_bugs::{self, Bug},
    lifecycle::{
        objects::{Claim, Volume},
        retry::Backoff,
        tell::{Note, Reason},
        volume::{self, Decision, Proof},
    },
    provisioner::DeleteError,
};

/// A volume on its way out.
#[derive(Debug)]
pub struct Remove {
    task: RemoveTask,
    setting: Setting,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The claim is being read live: the phase alone does not prove that it is gone.
    ReadingClaim,
    /// The volume is being read live.
    Reading,
    /// The volume is being marked for deletion, if it still is what was decided on.
    Fencing,
    /// The backend is deleting. `strip` says how the object goes afterwards.
    Calling { ending: Ending },
    /// The backend is recording that the asset is people's.
    Keeping,
    /// The object is being deleted. Our finalizer is on it, or not.
    Deleting { finalizer: bool, failures: u32 },
    /// Our finalizer is being taken off.
    Stripping { failures: u32 },
    /// Our finalizer is being taken off or put on, if nothing has changed.
    Tending,
}

/// How the volume object goes once its asset is gone.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// It is marked for deletion: only the finalizer is left.
    Strip,
    /// It is deleted; then the finalizer goes, if it is there.
    Delete { finalizer: bool },
}

impl Remove {
    pub(super) fn begin(task: RemoveTask, setting: Setting) -> (Self, Effect) {
        let mut remove = Self { task, setting, state: State::Reading };
        let effect = match remove.task.job {
            Job::Delete(Proof::ReadClaim) => remove.read_claim(),
            Job::Delete(Proof::Released) => remove.fence_or_read(),
            Job::Keep => Effect::ReadVolume,
            Job::Spare => remove.read_claim(),
            Job::Strip => remove.strip(0),
            Job::Adopt => remove.adopt(),
        };
        (remove, effect)
    }

    pub(super) fn answer(&mut self, answer: Answer, jitter: f64) -> Step {
        match (std::mem::replace(&mut self.state, State::Reading), answer) {
            (State::ReadingClaim, Answer::Claim(claim)) => self.claim_read(claim),
            (State::Fencing, Answer::Volume(answer)) => self.fenced(answer),
            (State::Reading, Answer::Volume(answer)) => self.read(answer),
            (State::Calling { ending }, Answer::Deleted(result)) => self.called(ending, result),
            (State::Keeping, Answer::Kept(result)) => self.kept(result),
            (State::Deleting { finalizer, failures }, Answer::Volume(answer)) => {
                self.deleted(finalizer, failures, answer, jitter)
            }
            (State::Deleting { finalizer, failures }, Answer::Waited) => {
                Step::Do(self.delete(finalizer, failures))
            }
            (State::Stripping { failures }, Answer::Volume(answer)) => {
                self.stripped(failures, answer, jitter)
            }
            (State::Stripping { failures }, Answer::Waited) => Step::Do(self.strip(failures)),
            (State::Tending, Answer::Volume(answer)) => self.tended(answer),
            (_, answer) => out_of_turn(Reason::VolumeFailedDelete, &answer),
        }
    }

    fn read_claim(&mut self) -> Effect {
        let claim = self.task.volume.claim.clone().unwrap_or_default();
        self.state = State::ReadingClaim;
        Effect::ReadClaim { namespace: claim.namespace, name: claim.name }
    }

    fn claim_read(&mut self, claim: Result<Option<Box<Claim>>, CallError>) -> Step {
        let uid = self.task.volume.claim.as_ref().map(|claim| &claim.uid);
        let lives = match claim {
            Ok(claim) => claim.filter(|claim| Some(&claim.uid) == uid),
            Err(error) => return stop_or_fail(error),
        };
        match (lives, self.task.job) {
            (Some(claim), Job::Spare) => self.spare(&claim),
            (Some(claim), _) => superseded(format!("claim {} of this volume lives", claim.path())),
            (None, Job::Spare) => {
                Step::Done(Outcome::Ignored("its claim is gone: it waits to be released".to_owned()))
            }
            (None, _) => Step::Do(self.fence_or_read()),
        }
    }

    /// The asset stays without a word to the backend: the audit spares assets of living claims.
    fn spare(&mut self, claim: &Claim) -> Step {
        self.state = State::Tending;
        let volume = &self.task.volume;
        let message = format!(
            "the volume was deleted before claim {} was bound to it; the claim gets a new one with the same data",
            claim.path()
        );
        let note = Note::new(&**volume, Reason::VolumeDelete, message);
        let effect = Effect::StripFinalizer { uid: volume.uid.clone(), version: Some(volume.version) };
        Step::TellAndDo(note, effect)
    }

    fn adopt(&mut self) -> Effect {
        self.state = State::Tending;
        let volume = &self.task.volume;
        Effect::AddFinalizer { uid: volume.uid.clone(), version: volume.version }
    }

    fn tended(&self, answer: Result<Option<Box<PersistentVolume>>, CallError>) -> Step {
        match answer {
            Ok(now) => self.let_go(now),
            Err(CallError::Conflict { .. }) => superseded("the volume has changed"),
            Err(error) => stop_or_fail(error),
        }
    }

    fn fence_or_read(&mut self) -> Effect {
        let volume = &self.task.volume;
        let ours = volume.provisioned_by.as_deref().is_some_and(|name| self.setting.served.is_ours(name));
        if ours && volume.finalizer && !self.setting.selective {
            self.fence()
        } else {
            self.state = State::Reading;
            Effect::ReadVolume
        }
    }

    fn fence(&mut self) -> Effect {
        self.state = State::Fencing;
        let volume = &self.task.volume;
        Effect::DeleteVolume { uid: volume.uid.clone(), version: Some(volume.version) }
    }

    fn fenced(&mut self, answer: Result<Option<Box<PersistentVolume>>, CallError>) -> Step {
        match answer {
            Ok(Some(volume)) => self.call(volume.into(), Ending::Strip),
            Ok(None) | Err(CallError::NotFound { .. }) => superseded("the volume is gone"),
            Err(CallError::Conflict { .. }) => superseded("the volume has changed"),
            Err(error) => stop_or_fail(error),
        }
    }

    /// Decides once more, on the live object.
    fn read(&mut self, answer: Result<Option<Box<PersistentVolume>>, CallError>) -> Step {
        let whole = match answer {
            Ok(Some(whole)) => whole,
            Ok(None) => return superseded("the volume is gone"),
            Err(error) => return stop_or_fail(error),
        };
        let now = decode::volume(&whole);
        if now.uid != self.task.volume.uid {
            return superseded("the volume was made anew");
        }
        match (volume::decide(&now, &self.setting.served), self.task.job) {
            (Decision::Delete(_), Job::Delete(_)) => self.call_live(now, whole.into()),
            (Decision::Keep, Job::Keep) if known_bugs::is(Bug::NoKeep) => Step::Do(self.strip(0)),
            (Decision::Keep, Job::Keep) => {
                self.state = State::Keeping;
                Step::Do(Effect::CallKeep(whole.into()))
            }
            _ => superseded("the volume has changed"),
        }
    }

    fn call_live(&mut self, now: Volume, whole: Arc<PersistentVolume>) -> Step {
        self.call(whole, Ending::Delete { finalizer: now.finalizer })
    }

    fn call(&mut self, volume: Arc<PersistentVolume>, ending: Ending) -> Step {
        self.state = State::Calling { ending };
        Step::Do(Effect::CallDelete(volume))
    }

    fn called(&mut self, ending: Ending, result: Result<(), DeleteError>) -> Step {
        match (result, ending) {
            (Ok(()), Ending::Strip) => Step::Do(self.strip(0)),
            (Ok(()), Ending::Delete { finalizer }) => Step::Do(self.delete(finalizer, 0)),
            (Err(DeleteError::Ignored(ignored)), _) => Step::Done(Outcome::Ignored(ignored.reason)),
            (Err(DeleteError::InUse(cause)), _) => failed(Reason::VolumeDelete, cause),
            (Err(DeleteError::Failed(cause)), _) => failed(Reason::VolumeFailedDelete, cause),
        }
    }

    fn kept(&mut self, result: Result<(), String>) -> Step {
        match result {
            Ok(()) => Step::Do(self.strip(0)),
            Err(message) => failed(
                Reason::VolumeFailedDelete,
                format!("the backend could not record that the volume is kept: {message}"),
            ),
        }
    }

    fn delete(&mut self, finalizer: bool, failures: u32) -> Effect {
        self.state = State::Deleting { finalizer, failures };
        Effect::DeleteVolume { uid: self.task.volume.uid.clone(), version: None }
    }

    fn deleted(
        &mut self,
        finalizer: bool,
        failures: u32,
        answer: Result<Option<Box<PersistentVolume>>, CallError>,
        jitter: f64,
    ) -> Step {
        match answer {
            Ok(_) if finalizer => Step::Do(self.strip(0)),
            Ok(_) | Err(CallError::NotFound { .. } | CallError::Conflict { .. }) => {
                Step::Done(Outcome::Removed)
            }
            Err(CallError::NotLeading(_)) => Step::Done(Outcome::Stopped { unknown: false }),
            Err(error) => {
                let failures = failures.saturating_add(1);
                self.state = State::Deleting { finalizer, failures };
                self.later(failures, &error, jitter)
            }
        }
    }

    fn strip(&mut self, failures: u32) -> Effect {
        self.state = State::Stripping { failures };
        Effect::StripFinalizer { uid: self.task.volume.uid.clone(), version: None }
    }

    fn stripped(
        &mut self,
        failures: u32,
        answer: Result<Option<Box<PersistentVolume>>, CallError>,
        jitter: f64,
    ) -> Step {
        match answer {
            Ok(now) => self.let_go(now),
            Err(CallError::NotFound { .. } | CallError::Conflict { .. }) => self.let_go(None),
            Err(CallError::NotLeading(_)) => Step::Done(Outcome::Stopped { unknown: false }),
            Err(error) => {
                let failures = failures.saturating_add(1);
                self.state = State::Stripping { failures };
                self.later(failures, &error, jitter)
            }
        }
    }

    fn let_go(&self, now: Option<Box<PersistentVolume>>) -> Step {
        Step::Done(match self.task.job {
            Job::Delete(_) => Outcome::Removed,
            _ => Outcome::Tended(now.map(|volume| decode::volume(&volume).into())),
        })
    }

    /// The asset is gone or kept, only the object is left: its write is repeated until it gets through.
    fn later(&self, failures: u32, error: &CallError, jitter: f64) -> Step {
        let wait = Effect::Wait(Backoff::API_WRITE.wait(failures, jitter));
        if failures == 1 {
            let note = Note::new(&*self.task.volume, Reason::VolumeFailedDelete, error.to_string());
            Step::TellAndDo(note, wait)
        } else {
            Step::Do(wait)
        }
    }
}

fn superseded(why: impl Into<String>) -> Step {
    Step::Done(Outcome::Superseded(why.into()))
}

fn stop_or_fail(error: CallError) -> Step {
    match error {
        CallError::NotLeading(_) => Step::Done(Outcome::Stopped { unknown: false }),
        CallError::NotFound { .. } => superseded("the volume is gone"),
        error => Step::Done(Outcome::Failed(Failure {
            message: error.to_string(),
            reason: Reason::VolumeFailedDelete,
            unknown: false,
            slow: false,
        })),
    }
}
