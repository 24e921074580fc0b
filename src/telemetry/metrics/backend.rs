//! Calls of the backend, and the orphans that the audit finds there.

use std::time::Duration;

use opentelemetry::trace::TraceId;

use super::family::{Count, Durations, Labelled, Level, Registrar, observe};

/// From 5 ms to the default limit of a call, 5 min.
const CALL_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// Backend calls and orphans.
#[derive(Debug)]
pub struct BackendMetrics {
    calls: Labelled<2, Count>,
    duration: Labelled<2, Durations>,
    running: Labelled<1, Level>,
    orphans: Labelled<2, Level>,
    orphans_found: Labelled<2, Count>,
    orphans_removed: Labelled<1, Count>,
}

impl BackendMetrics {
    pub(crate) fn register(into: &mut Registrar) -> Self {
        const BY_CALL: &[&str; 2] = &["operation", "outcome"];
        Self {
            calls: into.counts(
                "kube_provisioner_backend_calls",
                BY_CALL,
                "Calls of the backend that ended, by what was asked and what came of it",
            ),
            duration: into.durations(
                "kube_provisioner_backend_call_duration_seconds",
                BY_CALL,
                CALL_BUCKETS,
                "How long the backend's calls took",
            ),
            running: into.levels(
                "kube_provisioner_backend_calls_running",
                &["operation"],
                "Calls of the backend that run now",
            ),
            orphans: into.levels(
                "kube_provisioner_orphans",
                &["provisioner", "state"],
                "Assets that belong to no volume and no claim, as the last audit saw them",
            ),
            orphans_found: into.counts(
                "kube_provisioner_orphans_found",
                &["provisioner", "state"],
                "Assets that an audit proved to be orphans",
            ),
            orphans_removed: into.counts(
                "kube_provisioner_orphans_removed",
                &["provisioner"],
                "Orphans that were deleted",
            ),
        }
    }

    /// A call of this operation began.
    pub fn call_started(&self, operation: &'static str) {
        self.running.at([operation.into()]).inc();
    }

    /// A call that had begun ended, or was cut off.
    pub fn call_finished(
        &self,
        operation: &'static str,
        outcome: &'static str,
        taken: Duration,
        trace: Option<TraceId>,
    ) {
        self.running.at([operation.into()]).dec();
        self.calls.at([operation.into(), outcome.into()]).inc();
        observe(&self.duration.at([operation.into(), outcome.into()]), taken, trace);
    }

    /// An audit ended and sees so many orphans in this state (`unused`, `used`, `suspect`).
    pub fn orphans_seen(&self, provisioner: &str, state: &'static str, assets: usize) {
        self.orphans.at([provisioner.to_owned().into(), state.into()]).set(assets as f64);
    }

    /// An asset was proven to be an orphan.
    pub fn orphan_found(&self, provisioner: &str, state: &'static str) {
        self.orphans_found.at([provisioner.to_owned().into(), state.into()]).inc();
    }

    /// An orphan was deleted.
    pub fn orphan_removed(&self, provisioner: &str) {
        self.orphans_removed.at([provisioner.to_owned().into()]).inc();
    }
}
