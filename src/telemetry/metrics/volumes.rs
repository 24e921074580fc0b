//! What happens to volumes: the Go library's six `controller_*` metrics, and what users wait for.

use std::time::Duration;

use opentelemetry::trace::TraceId;

use super::family::{Count, DEFAULT_BUCKETS, Durations, Labelled, Level, Registrar, observe};

/// From a tenth of a second to an hour: a claim may wait for a pod, a node or a person.
const WAIT_BUCKETS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// How an attempt on a volume ended, as far as the metrics care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The volume is there, or gone.
    Succeeded,
    /// It will be tried again, or was given up.
    Failed,
    /// Another's, or still in use: neither success nor failure.
    Neither,
}

/// Which of the two operations is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Making a volume.
    Provision,
    /// Removing one.
    Delete,
}

impl Operation {
    /// The label's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Delete => "delete",
        }
    }
}

/// Provisioning and deleting, attempt by attempt.
#[derive(Debug)]
pub struct VolumeMetrics {
    provisioned: Labelled<2, Count>,
    provision_failed: Labelled<2, Count>,
    provision_duration: Labelled<2, Durations>,
    deleted: Labelled<1, Count>,
    delete_failed: Labelled<1, Count>,
    delete_duration: Labelled<1, Durations>,
    claim_to_volume: Labelled<1, Durations>,
    pending: Labelled<2, Level>,
    given_up: Labelled<1, Count>,
}

impl VolumeMetrics {
    pub(crate) fn register(into: &mut Registrar) -> Self {
        const BY_CLAIM: &[&str; 2] = &["class", "source"];
        const BY_CLASS: &[&str; 1] = &["class"];
        Self {
            provisioned: into.counts(
                "controller_persistentvolumeclaim_provision",
                BY_CLAIM,
                "Volumes provisioned, by the claim's class and the kind of its data source (empty without one)",
            ),
            provision_failed: into.counts(
                "controller_persistentvolumeclaim_provision_failed",
                BY_CLAIM,
                "Attempts to provision that failed; attempts that the backend ignored are not among them",
            ),
            provision_duration: into.durations(
                "controller_persistentvolumeclaim_provision_duration_seconds",
                BY_CLAIM,
                DEFAULT_BUCKETS,
                "How long the attempts to provision that succeeded took",
            ),
            deleted: into.counts(
                "controller_persistentvolume_delete",
                BY_CLASS,
                "Volumes deleted, by the volume's class",
            ),
            delete_failed: into.counts(
                "controller_persistentvolume_delete_failed",
                BY_CLASS,
                "Attempts to delete that failed; a volume still in use is not among them",
            ),
            delete_duration: into.durations(
                "controller_persistentvolume_delete_duration_seconds",
                BY_CLASS,
                DEFAULT_BUCKETS,
                "How long the attempts to delete that succeeded took",
            ),
            claim_to_volume: into.durations(
                "kube_provisioner_claim_to_volume_seconds",
                BY_CLASS,
                WAIT_BUCKETS,
                "Time from the creation of a claim to its saved volume: what its user waits for",
            ),
            pending: into.levels(
                "kube_provisioner_pending_claims",
                &["provisioner", "reason"],
                "Claims of ours without a volume, by what they wait for",
            ),
            given_up: into.counts(
                "kube_provisioner_given_up",
                &["operation"],
                "Objects whose retries ended at the configured threshold",
            ),
        }
    }

    /// An attempt to provision ended after `taken`.
    pub fn provision_finished(
        &self,
        class: &str,
        source: &str,
        verdict: Verdict,
        taken: Duration,
        trace: Option<TraceId>,
    ) {
        let labels = || [class.to_owned().into(), source.to_owned().into()];
        match verdict {
            Verdict::Succeeded => {
                self.provisioned.at(labels()).inc();
                observe(&self.provision_duration.at(labels()), taken, trace);
            }
            Verdict::Failed => {
                self.provision_failed.at(labels()).inc();
            }
            Verdict::Neither => {}
        }
    }

    /// An attempt to delete ended after `taken`.
    pub fn delete_finished(&self, class: &str, verdict: Verdict, taken: Duration, trace: Option<TraceId>) {
        let labels = || [class.to_owned().into()];
        match verdict {
            Verdict::Succeeded => {
                self.deleted.at(labels()).inc();
                observe(&self.delete_duration.at(labels()), taken, trace);
            }
            Verdict::Failed => {
                self.delete_failed.at(labels()).inc();
            }
            Verdict::Neither => {}
        }
    }

    /// A claim's volume was saved, `waited` after the claim was created.
    pub fn volume_saved(&self, class: &str, waited: Duration, trace: Option<TraceId>) {
        observe(&self.claim_to_volume.at([class.to_owned().into()]), waited, trace);
    }

    /// So many claims of `provisioner` wait for this reason now; a reason nobody waits for is told as 0.
    pub fn pending(&self, provisioner: &str, reason: &'static str, claims: usize) {
        self.pending.at([provisioner.to_owned().into(), reason.into()]).set(claims as f64);
    }

    /// The retries of one object ended at the threshold.
    pub fn gave_up(&self, operation: Operation) {
        self.given_up.at([operation.as_str().into()]).inc();
    }
}
