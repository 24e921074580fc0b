//! Removing an orphan: the live reads once more, right before the backend's call.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::PersistentVolume, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{Answer, Effect, OrphanTask, Outcome, Step, failed, out_of_turn};
use crate::{cluster::CallError, lifecycle::tell::Reason, provisioner::DeleteError};

/// An asset on its way out.
#[derive(Debug)]
pub struct Orphan {
    task: Arc<OrphanTask>,
}

impl Orphan {
    pub(super) const fn new(task: Arc<OrphanTask>) -> Self {
        Self { task }
    }

    pub(super) fn answer(&self, answer: Answer) -> Step {
        match answer {
            Answer::Users(Ok(None)) => Step::Do(Effect::CallDelete(self.nameless())),
            Answer::Users(Ok(Some(why))) => Step::Done(Outcome::Superseded(why.to_string())),
            Answer::Users(Err(CallError::NotLeading(_))) => Step::Done(Outcome::Stopped { unknown: false }),
            Answer::Users(Err(error)) => failed(Reason::ProvisioningCleanupFailed, error),
            Answer::Deleted(Ok(())) => Step::Done(Outcome::Removed),
            Answer::Deleted(Err(DeleteError::Ignored(ignored))) => {
                Step::Done(Outcome::Ignored(ignored.reason))
            }
            Answer::Deleted(Err(error)) => failed(Reason::ProvisioningCleanupFailed, error),
            answer => out_of_turn(Reason::ProvisioningCleanupFailed, &answer),
        }
    }

    /// There is no volume: one without a spec stands for the name alone.
    fn nameless(&self) -> Arc<PersistentVolume> {
        let metadata = ObjectMeta { name: Some(self.task.name.to_string()), ..ObjectMeta::default() };
        Arc::new(PersistentVolume { metadata, ..PersistentVolume::default() })
    }
}
