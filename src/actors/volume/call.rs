//! What is counted and traced of one backend call: its outcome as one word of a fixed set, and its time.

use std::{fmt::Display, time::Instant};

use k8s_openapi::api::core::v1::PersistentVolume;
use tracing::Span;

use crate::{
    provisioner::{DeleteError, ProvisionError},
    telemetry::{metrics::Metrics, trace},
};

/// How a backend call ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// In one word.
    pub outcome: &'static str,
    /// What went wrong, if something did.
    pub message: Option<String>,
}

impl Ended {
    const WELL: Self = Self { outcome: "ok", message: None };

    fn badly(outcome: &'static str, message: impl Display) -> Self {
        Self { outcome, message: Some(message.to_string()) }
    }
}

pub(super) fn provisioned(answer: &Result<Box<PersistentVolume>, ProvisionError>) -> Ended {
    let Err(error) = answer else { return Ended::WELL };
    match error {
        ProvisionError::Finished(cause) => Ended::badly("failed", cause),
        ProvisionError::Background(cause) => Ended::badly("background", cause),
        ProvisionError::NoChange(cause) => Ended::badly("no_change", cause),
        ProvisionError::Reschedule(cause) => Ended::badly("reschedule", cause),
        ProvisionError::Infeasible(cause) => Ended::badly("infeasible", cause),
        ProvisionError::Ignored(_) => Ended { outcome: "ignored", message: None },
    }
}

pub(super) fn deleted(answer: &Result<(), DeleteError>) -> Ended {
    let Err(error) = answer else { return Ended::WELL };
    match error {
        DeleteError::Failed(cause) => Ended::badly("failed", cause),
        DeleteError::InUse(cause) => Ended::badly("in_use", cause),
        DeleteError::Ignored(_) => Ended { outcome: "ignored", message: None },
    }
}

pub(super) fn kept(answer: &Result<(), String>) -> Ended {
    answer.as_ref().map_or_else(|error| Ended::badly("failed", error), |()| Ended::WELL)
}

/// A call under way. Its end is told at its drop, so that one that is cut off is told as well.
pub(super) struct Observed<'a> {
    metrics: &'a Metrics,
    operation: &'static str,
    span: Span,
    since: Instant,
    /// How it ended, if it did.
    pub(super) ended: Ended,
}

impl<'a> Observed<'a> {
    pub(super) fn begin(metrics: &'a Metrics, operation: &'static str, span: Span) -> Self {
        metrics.backend.call_started(operation);
        let ended = Ended::badly("cut_off", "cut off: the leadership ended");
        Self { metrics, operation, span, since: Instant::now(), ended }
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        let Ended { outcome, message } = &self.ended;
        self.metrics.backend.call_finished(
            self.operation,
            outcome,
            self.since.elapsed(),
            trace::exported(&self.span),
        );
        if let Some(message) = message {
            trace::failed(&self.span, outcome, message);
        }
    }
}
