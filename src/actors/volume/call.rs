//! What is counted and traced of one backend call: its outcome as one word of a fixed set, and its time.

use std::{
    any::Any,
    fmt::Display,
    future::Future,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::task::{JoinError, JoinSet};
use tracing::{Instrument, Span};

use crate::{
    provisioner::{DeleteError, ProvisionError},
    telemetry::{metrics::Metrics, trace},
};

/// How much longer than its deadline a call may take: a backend that keeps it says in its own words what was
/// under way, and those are better than ours.
const OWN_ENDING: Duration = Duration::from_millis(500);

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

/// Runs a backend call as a task of its own, so that one that blocks its thread delays no timer. A panic or
/// a time-out is told as a message; what the call did is unknown then.
pub(super) async fn timed<T: Send + 'static>(
    metrics: &Metrics,
    operation: &'static str,
    limit: Duration,
    span: Span,
    call: impl Future<Output = T> + Send + 'static,
    judge: impl Fn(&T) -> Ended,
) -> Result<T, String> {
    let mut observed = Observed::begin(metrics, operation, span.clone());
    let mut calls = JoinSet::new();
    calls.spawn(call.instrument(span));
    let (answer, ended) = match tokio::time::timeout(limit + OWN_ENDING, calls.join_next()).await {
        Ok(Some(Ok(answer))) => {
            let ended = judge(&answer);
            (Ok(answer), ended)
        }
        Ok(Some(Err(error))) => failed("panicked", panicked(operation, error)),
        Ok(None) => failed("panicked", format!("the backend's {operation} vanished")),
        Err(_) => failed("timed_out", format!("the backend's {operation} did not end within {limit:?}")),
    };
    observed.ended = ended;
    answer
}

fn failed<T>(outcome: &'static str, message: String) -> (Result<T, String>, Ended) {
    (Err(message.clone()), Ended { outcome, message: Some(message) })
}

fn panicked(operation: &str, error: JoinError) -> String {
    let Ok(payload) = error.try_into_panic() else {
        return format!("the backend's {operation} was cancelled");
    };
    format!("the backend's {operation} panicked: {}", words(&*payload))
}

/// What a panic said.
fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// What `work` comes to, or the words of its panic. A backend has code that runs outside of its timed calls
/// (`should_provision`), and a task that vanished would hold its claim for ever.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|payload| words(&*payload).to_owned())
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::clock::SystemClock;

    const SHORT: Duration = Duration::from_millis(10);

    async fn outcome(limit: Duration, call: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
        let metrics = Metrics::new(&SystemClock::shared());
        timed(&metrics, "provision", limit, Span::none(), call, |()| Ended::WELL).await
    }

    #[tokio::test]
    async fn a_panic_is_an_outcome_of_the_call_in_its_own_words() {
        let told = outcome(SHORT, async { panic!("no such pool") }).await.unwrap_err();
        assert_eq!(told, "the backend's provision panicked: no such pool");
    }

    #[tokio::test]
    async fn a_panic_outside_of_a_call_is_told_in_its_own_words_too() {
        let panics = async { panic!("{} hooks", "no") };
        assert_eq!(caught(panics).await.map(|(): ()| ()), Err("no hooks".to_owned()));
        assert_eq!(caught(async { 1 }).await, Ok(1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_call_that_blocks_its_thread_is_cut_off_in_time_all_the_same() {
        let (release, gate) = mpsc::channel::<()>();
        let told = outcome(SHORT, async move { gate.recv().unwrap_or_default() }).await.unwrap_err();
        assert_eq!(told, "the backend's provision did not end within 10ms");
        release.send(()).unwrap();
    }
}
