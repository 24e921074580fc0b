//! One operation on one volume, as a state machine: answers in, effects out.
//!
//! No actor, clock or network here: [`Operation`] asks for one effect at a time and is told its answer.
//! `actor.rs` carries the effects out.

mod actor;
mod call;
mod orphan;
mod provision;
mod remove;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::PersistentVolume;

pub use self::actor::{Begin, Desk, Stop, VolumeActor};
use self::{orphan::Orphan, provision::Provision, remove::Remove};
use crate::{
    cluster::CallError,
    lifecycle::{
        claim::Served,
        objects::{Claim, Class, Version, Volume},
        orphan::Spared,
        tell::{Note, Reason},
        volume::Proof,
    },
    provisioner::{Asset, DeleteError, ProvisionError, SelectedNode},
};

/// What an operation is to achieve.
#[derive(Clone, Debug)]
pub enum Task {
    /// Give the claim a volume.
    Provision(ProvisionTask),
    /// Deal with a volume whose claim is gone, or whose policy or finalizer changed.
    Remove(RemoveTask),
    /// Remove an asset that belongs to nothing.
    Orphan(Arc<OrphanTask>),
}

/// A claim to be provisioned, with all that the backend will be told.
#[derive(Clone, Debug)]
pub struct ProvisionTask {
    /// The volume's name.
    pub name: Arc<str>,
    /// The claim.
    pub claim: Arc<Claim>,
    /// Its class.
    pub class: Arc<Class>,
    /// The node that the scheduler chose.
    pub node: Option<SelectedNode>,
    /// The cached claim may be stale: read it live before anything else.
    pub read_claim: bool,
    /// An earlier call may have made something: the call is repeated until that is known, whether the
    /// claim lives or not.
    pub unknown: bool,
    /// The claim is gone or going: whatever the backend answers is saved, so that it is deleted like any volume
    /// whose claim is gone.
    pub claim_gone: bool,
}

/// A volume to be dealt with.
#[derive(Clone, Debug)]
pub struct RemoveTask {
    /// The volume as it was when this was decided.
    pub volume: Arc<Volume>,
    /// What is to be done.
    pub job: Job,
}

/// An asset that was found to belong to nothing.
#[derive(Debug)]
pub struct OrphanTask {
    /// The name of the volume that it was made for.
    pub name: Arc<str>,
    /// The asset.
    pub asset: Asset,
}

/// What is to be done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Remove the asset, then the volume.
    Delete(Proof),
    /// Tell the backend that the asset is people's, then take our finalizer off.
    Keep,
    /// Take our finalizer off, if the claim lives: its volume was deleted before it was bound.
    Spare,
    /// Take our finalizer off.
    Strip,
    /// Put our finalizer on.
    Adopt,
}

impl Task {
    /// The volume's name, which is the key of all work on it.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Provision(task) => &task.name,
            Self::Remove(task) => &task.volume.name,
            Self::Orphan(task) => &task.name,
        }
    }

    /// Whose trace the work belongs to: the UID of the claim, or of the volume that is removed. Empty for an
    /// orphan, which has none.
    #[must_use]
    pub fn uid(&self) -> &str {
        match self {
            Self::Provision(task) => &task.claim.uid,
            Self::Remove(task) => &task.volume.uid,
            Self::Orphan(_) => "",
        }
    }

    /// The class, for fairness and metrics.
    #[must_use]
    pub fn class(&self) -> Option<&Arc<str>> {
        match self {
            Self::Provision(task) => Some(&task.class.name),
            Self::Remove(task) => task.volume.class.as_ref(),
            Self::Orphan(_) => None,
        }
    }
}

/// Something that an operation wants done next. Exactly one is under way at a time.
#[derive(Debug)]
pub enum Effect {
    /// Read the claim from the API server.
    ReadClaim {
        /// Its namespace.
        namespace: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// Look whether any volume of the cluster uses the asset, and whether its claim lives.
    FindUsers,
    /// Call the backend's provision.
    CallProvision,
    /// Create the volume.
    CreateVolume(Arc<PersistentVolume>),
    /// Read the volume of this operation's name.
    ReadVolume,
    /// Delete the volume object: only this UID, and only this version if one is given.
    DeleteVolume {
        /// The UID that must match.
        uid: Box<str>,
        /// The version that must match.
        version: Option<Version>,
    },
    /// Call the backend's delete.
    CallDelete(Arc<PersistentVolume>),
    /// Call the backend's keep.
    CallKeep(Arc<PersistentVolume>),
    /// Take our finalizer off the volume: only this UID, and only this version if one is given.
    StripFinalizer {
        /// The UID that must match.
        uid: Box<str>,
        /// The version that must match.
        version: Option<Version>,
    },
    /// Put our finalizer on the volume with this UID in this version.
    AddFinalizer {
        /// The UID that must match.
        uid: Box<str>,
        /// The version that must match.
        version: Version,
    },
    /// Take the chosen node off the claim, so that the scheduler chooses again.
    Unselect,
    /// Do nothing for so long.
    Wait(Duration),
}

/// What came of an effect.
#[derive(Debug)]
pub enum Answer {
    /// The claim as it is now; `None` if there is none.
    Claim(Result<Option<Box<Claim>>, CallError>),
    /// Why the asset belongs to something after all, if it does.
    Users(Result<Option<Spared>, CallError>),
    /// The backend's provision ended.
    Provisioned(Result<Box<PersistentVolume>, ProvisionError>),
    /// The volume as the server has it now: after a create, a read, a delete or a patch. `None` if
    /// there is none (any more).
    Volume(Result<Option<Box<PersistentVolume>>, CallError>),
    /// The backend's delete ended.
    Deleted(Result<(), DeleteError>),
    /// The backend's keep ended.
    Kept(Result<(), String>),
    /// The claim after its node was taken off; `None` if there is none any more.
    Unselected(Result<Option<Box<Claim>>, CallError>),
    /// The wait is over.
    Waited,
    /// The guard had ended before the backend was called.
    NotLeading,
}

/// How an operation ended.
#[derive(Debug)]
pub enum Outcome {
    /// The claim has its volume.
    Saved(Box<Volume>),
    /// Asset and volume are gone.
    Removed,
    /// Our finalizer is off, or on; the volume as it is now, if it is still there.
    Tended(Option<Box<Volume>>),
    /// The node was taken off the claim, which is now so.
    Rescheduled(Option<Box<Claim>>),
    /// What was decided on is no longer so: decide anew on what the watches bring. In words, why.
    Superseded(String),
    /// The backend says that it is not its business, for this reason.
    Ignored(String),
    /// It did not work.
    Failed(Failure),
    /// The leadership ended under it. What it had begun is repeated by whoever leads next; `unknown` says
    /// that the backend may have made something.
    Stopped {
        /// Whether an asset may exist that no volume stands for.
        unknown: bool,
    },
}

/// Why an operation failed, and what is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In words, for people.
    pub message: String,
    /// The reason of the event that tells it.
    pub reason: Reason,
    /// An asset may exist: the call is to be repeated until that is known.
    pub unknown: bool,
    /// The same thing is unlikely to work soon.
    pub slow: bool,
}

/// What an operation does next.
#[derive(Debug)]
pub enum Step {
    /// Carry this out and answer.
    Do(Effect),
    /// Tell this, then carry that out and answer.
    TellAndDo(Note, Effect),
    /// The end.
    Done(Outcome),
}

/// What every operation knows besides its task.
#[derive(Clone, Debug)]
pub struct Setting {
    /// For whom we work.
    pub served: Arc<Served>,
    /// Whether the backend picks among volumes (`should_delete`), so that each is read before the first
    /// write.
    pub selective: bool,
    /// The trace context of this attempt.
    pub traceparent: Option<String>,
}

/// An operation under way.
#[derive(Debug)]
pub enum Operation {
    /// Provisioning.
    Provision(Provision),
    /// Deleting, keeping or tending.
    Remove(Remove),
    /// Removing an orphan.
    Orphan(Orphan),
}

impl Operation {
    /// Begins `task`: the operation, and its first effect.
    #[must_use]
    pub fn begin(task: Task, setting: Setting) -> (Self, Effect) {
        match task {
            Task::Provision(task) => {
                let (operation, effect) = Provision::begin(task, setting);
                (Self::Provision(operation), effect)
            }
            Task::Remove(task) => {
                let (operation, effect) = Remove::begin(task, setting);
                (Self::Remove(operation), effect)
            }
            Task::Orphan(task) => (Self::Orphan(Orphan::new(task)), Effect::FindUsers),
        }
    }

    /// Takes the answer to the last effect. `jitter` in 0..=1 spreads waits.
    pub fn answer(&mut self, answer: Answer, jitter: f64) -> Step {
        match (self, answer) {
            (Self::Provision(operation), Answer::NotLeading) => Step::Done(operation.not_called()),
            (Self::Remove(_) | Self::Orphan(_), Answer::NotLeading) => {
                Step::Done(Outcome::Stopped { unknown: false })
            }
            (Self::Provision(operation), answer) => operation.answer(answer, jitter),
            (Self::Remove(operation), answer) => operation.answer(answer, jitter),
            (Self::Orphan(operation), answer) => operation.answer(answer),
        }
    }
}

impl Operation {
    /// How it ends when it is cut off now, with an effect under way.
    #[must_use]
    pub fn cut_off(&self) -> Outcome {
        match self {
            Self::Provision(operation) => operation.cut_off(),
            Self::Remove(_) | Self::Orphan(_) => Outcome::Stopped { unknown: false },
        }
    }

    /// How it ends when something panicked while an effect was carried out, outside of the backend's call.
    #[must_use]
    pub fn broken(&self, panic: &str) -> Outcome {
        let reason = match self {
            Self::Provision(_) => Reason::ProvisioningFailed,
            Self::Remove(_) | Self::Orphan(_) => Reason::VolumeFailedDelete,
        };
        let unknown = matches!(self.cut_off(), Outcome::Stopped { unknown: true });
        let message = format!("internal error: the operation panicked: {panic}");
        Outcome::Failed(Failure { message, reason, unknown, slow: true })
    }
}

/// Ends with a failure after which nothing is left behind.
fn failed(reason: Reason, message: impl ToString) -> Step {
    Step::Done(Outcome::Failed(Failure { message: message.to_string(), reason, unknown: false, slow: false }))
}

/// An answer that does not belong to the effect under way: a fault in the actor, told instead of hidden.
fn out_of_turn(reason: Reason, answer: &Answer) -> Step {
    let message = format!("internal error: an answer came out of turn: {answer:?}");
    Step::Done(Outcome::Failed(Failure { message, reason, unknown: true, slow: false }))
}
