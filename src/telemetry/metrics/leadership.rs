//! Who leads, since when, and how long a takeover takes.

use std::time::Duration;

use super::family::{Count, Durations, Labelled, Level, Registrar, observe};

/// From 5 ms (a handover) to a minute (a lease that had to run out, and more).
const TAKEOVER_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0];

/// Leadership, by the name of the Lease.
#[derive(Debug)]
pub struct LeadershipMetrics {
    leads: Labelled<1, Level>,
    epoch: Labelled<1, Level>,
    changes: Labelled<1, Count>,
    takeover: Labelled<1, Durations>,
    restored: Labelled<1, Level>,
}

impl LeadershipMetrics {
    pub(crate) fn register(into: &mut Registrar) -> Self {
        const BY_NAME: &[&str; 1] = &["name"];
        Self {
            leads: into.levels(
                "leader_election_master_status",
                BY_NAME,
                "1 while this replica leads, else 0; the name is the Lease's",
            ),
            epoch: into.levels(
                "kube_provisioner_epoch",
                BY_NAME,
                "The epoch under which this replica leads, 0 while it does not",
            ),
            changes: into.counts(
                "kube_provisioner_epoch_changes",
                BY_NAME,
                "How often this replica began to lead",
            ),
            takeover: into.durations(
                "kube_provisioner_takeover_duration_seconds",
                BY_NAME,
                TAKEOVER_BUCKETS,
                "Time from the instant at which the Lease was free (released, or run out) to this replica's leadership",
            ),
            restored: into.levels(
                "kube_provisioner_store_restored",
                BY_NAME,
                "1 while the Lease tells that the API server's store was restored from a backup: orphans are only reported",
            ),
        }
    }

    /// This replica contests the Lease and does not lead (yet, or any more).
    pub fn stands_by(&self, lease: &str) {
        self.leads.at([lease.to_owned().into()]).set(0.0);
        self.epoch.at([lease.to_owned().into()]).set(0.0);
        drop(self.restored.at([lease.to_owned().into()]));
        drop(self.changes.at([lease.to_owned().into()]));
    }

    /// This replica leads under a new epoch.
    pub fn leads(&self, lease: &str, epoch: u64) {
        self.leads.at([lease.to_owned().into()]).set(1.0);
        // A resourceVersion above 2^53 would lose its last digits here; etcd is far from it.
        self.epoch.at([lease.to_owned().into()]).set(epoch as f64);
        self.changes.at([lease.to_owned().into()]).inc();
    }

    /// Whether the Lease tells of a restore.
    pub fn restored(&self, lease: &str, restored: bool) {
        self.restored.at([lease.to_owned().into()]).set(if restored { 1.0 } else { 0.0 });
    }

    /// Work was permitted, `taken` after the Lease had become free.
    pub fn took_over(&self, lease: &str, taken: Duration) {
        observe(&self.takeover.at([lease.to_owned().into()]), taken, None);
    }
}
