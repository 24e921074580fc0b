//! What this program tells the world, and what of it got lost: Kubernetes events and exported spans.

use super::family::{Count, Labelled, Registrar};

/// Events and spans, written and dropped.
#[derive(Debug)]
pub struct ReportingMetrics {
    events_written: Labelled<0, Count>,
    events_dropped: Labelled<1, Count>,
    spans_exported: Labelled<0, Count>,
    spans_dropped: Labelled<1, Count>,
    export_failures: Labelled<0, Count>,
}

/// Why an event was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventDropped {
    /// Too many about one object.
    RateLimited,
    /// The bounded queue was full.
    QueueFull,
    /// The API server did not take it.
    Refused,
}

/// Why a span did not reach the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanDropped {
    /// The bounded queue was full: the collector is absent or slower than the spans come.
    QueueFull,
    /// Its batch could not be sent.
    ExportFailed,
    /// It still waited at the deadline of the shutdown.
    Shutdown,
}

impl ReportingMetrics {
    pub(crate) fn register(into: &mut Registrar) -> Self {
        let reporting = Self {
            events_written: into.counts("kube_provisioner_events", &[], "Kubernetes events written"),
            events_dropped: into.counts(
                "kube_provisioner_events_dropped",
                &["reason"],
                "Kubernetes events that were not written, by why",
            ),
            spans_exported: into.counts(
                "kube_provisioner_spans_exported",
                &[],
                "Spans that the collector took",
            ),
            spans_dropped: into.counts(
                "kube_provisioner_spans_dropped",
                &["reason"],
                "Spans that did not reach the collector, by why",
            ),
            export_failures: into.counts(
                "kube_provisioner_span_export_failures",
                &[],
                "Batches of spans that could not be sent",
            ),
        };
        for reason in [SpanDropped::QueueFull, SpanDropped::ExportFailed, SpanDropped::Shutdown] {
            reporting.spans_dropped(reason, 0);
        }
        drop(reporting.events_written.at([]));
        drop(reporting.spans_exported.at([]));
        drop(reporting.export_failures.at([]));
        for reason in [EventDropped::RateLimited, EventDropped::QueueFull, EventDropped::Refused] {
            drop(reporting.events_dropped.at([event_word(reason).into()]));
        }
        reporting
    }

    /// An event was written.
    pub fn event_written(&self) {
        self.events_written.at([]).inc();
    }

    /// An event was not written.
    pub fn event_dropped(&self, why: EventDropped) {
        self.events_dropped.at([event_word(why).into()]).inc();
    }

    /// The collector took a batch.
    pub(crate) fn spans_exported(&self, spans: u64) {
        self.spans_exported.at([]).inc_by(spans);
    }

    /// A batch could not be sent.
    pub(crate) fn export_failed(&self, spans: u64) {
        self.export_failures.at([]).inc();
        self.spans_dropped(SpanDropped::ExportFailed, spans);
    }

    /// Spans were lost before they got into a batch.
    pub(crate) fn spans_dropped(&self, why: SpanDropped, spans: u64) {
        let word = match why {
            SpanDropped::QueueFull => "queue_full",
            SpanDropped::ExportFailed => "export_failed",
            SpanDropped::Shutdown => "shutdown",
        };
        self.spans_dropped.at([word.into()]).inc_by(spans);
    }
}

const fn event_word(why: EventDropped) -> &'static str {
    match why {
        EventDropped::RateLimited => "rate_limited",
        EventDropped::QueueFull => "queue_full",
        EventDropped::Refused => "refused",
    }
}
