//! How spans get out: OTLP over HTTP from a bounded queue, on a thread of its own. Nobody ever waits for
//! it; what gets lost is counted, and told once.

mod client;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use opentelemetry::{Context, trace::TracerProvider as _};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter,
        SpanProcessor,
    },
};

use super::{
    TelemetryError,
    metrics::{Metrics, SpanDropped},
    settings::OtlpSettings,
    trace::{VolumeIds, VolumeSampler},
};

/// Spans that wait for the collector, shared by the queue's two ends.
#[derive(Clone, Debug)]
struct Queue(Arc<QueueInner>);

#[derive(Debug)]
struct QueueInner {
    metrics: Metrics,
    capacity: usize,
    /// Spans in the queue and in the batch that is being sent.
    waiting: AtomicUsize,
    /// Nothing is sent any more: the deadline of the shutdown has passed.
    abandoned: AtomicBool,
    /// The last batch could not be sent, and it was told.
    failing: AtomicBool,
}

impl Queue {
    fn new(capacity: usize, metrics: Metrics) -> Self {
        Self(Arc::new(QueueInner {
            metrics,
            capacity,
            waiting: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
            failing: AtomicBool::new(false),
        }))
    }

    fn dropped(&self, why: SpanDropped, spans: usize) {
        self.0.metrics.reporting.spans_dropped(why, spans as u64);
    }

    /// Reserves a place; `false` when there is none, which is counted.
    fn enter(&self) -> bool {
        if self.0.waiting.fetch_add(1, Ordering::AcqRel) >= self.0.capacity {
            self.0.waiting.fetch_sub(1, Ordering::AcqRel);
            self.dropped(SpanDropped::QueueFull, 1);
            return false;
        }
        true
    }

    /// A batch came to its end. Unless it had been given up, and counted, by then.
    fn leave(&self, spans: usize, result: &OTelSdkResult) {
        if self.is_abandoned() {
            return;
        }
        self.0.waiting.fetch_sub(spans, Ordering::AcqRel);
        match result {
            Ok(()) => self.sent(spans),
            Err(error) => self.not_sent(spans, error),
        }
    }

    fn is_abandoned(&self) -> bool {
        self.0.abandoned.load(Ordering::Acquire)
    }

    fn sent(&self, spans: usize) {
        self.0.metrics.reporting.spans_exported(spans as u64);
        if self.0.failing.swap(false, Ordering::AcqRel) {
            tracing::info!("the trace collector takes spans again");
        }
    }

    fn not_sent(&self, spans: usize, error: &OTelSdkError) {
        self.0.metrics.reporting.export_failed(spans as u64);
        if !self.0.failing.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                %error,
                "traces can't be exported; further failures are only counted, in \
                 kube_provisioner_span_export_failures_total"
            );
        }
    }

    /// Gives up what still waits, and returns how much that was.
    fn abandon(&self) -> usize {
        self.0.abandoned.store(true, Ordering::Release);
        let left = self.0.waiting.swap(0, Ordering::AcqRel);
        self.dropped(SpanDropped::Shutdown, left);
        left
    }
}

/// The queue's entrance. The SDK's processor behind it has as many places, so it never drops silently.
#[derive(Debug)]
struct Entrance<P> {
    queue: Queue,
    inner: P,
}

impl<P: SpanProcessor> SpanProcessor for Entrance<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.queue.enter() {
            self.inner.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// The queue's exit.
#[derive(Debug)]
struct Exit<E> {
    queue: Queue,
    inner: E,
}

impl<E: SpanExporter> SpanExporter for Exit<E> {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        let spans = batch.len();
        async move {
            // A thread that outlives the deadline has nothing more to try.
            if self.queue.is_abandoned() {
                return Err(OTelSdkError::AlreadyShutdown);
            }
            let result = self.inner.export(batch).await;
            self.queue.leave(spans, &result);
            result
        }
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// Spans that were still waiting when the time to send them was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{spans} spans were not exported before the deadline")]
pub struct Unflushed {
    /// How many.
    pub spans: usize,
}

/// A running export.
#[derive(Debug)]
pub(crate) struct Export {
    provider: SdkTracerProvider,
    queue: Queue,
    pub(crate) sampler: VolumeSampler,
}

impl Export {
    /// Exports to the collector that `settings` name.
    pub(crate) fn over_http(settings: &OtlpSettings, metrics: &Metrics) -> Result<Self, TelemetryError> {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(client::client(settings)?)
            // Also where OTEL_EXPORTER_OTLP_PROTOCOL says grpc: this program speaks nothing else.
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&settings.endpoint)
            .build()
            .map_err(|cause| TelemetryError::Exporter { endpoint: settings.endpoint.clone(), cause })?;
        Ok(Self::to(exporter, settings, metrics))
    }

    /// Exports to any exporter.
    pub(crate) fn to(
        exporter: impl SpanExporter + 'static,
        settings: &OtlpSettings,
        metrics: &Metrics,
    ) -> Self {
        let queue = Queue::new(settings.queue_size, metrics.clone());
        // The batch size comes from OTEL_BSP_MAX_EXPORT_BATCH_SIZE or is the SDK's.
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(settings.queue_size)
            .with_scheduled_delay(settings.delay)
            .build();
        let exit = Exit { queue: queue.clone(), inner: exporter };
        let inner = BatchSpanProcessor::builder(exit).with_batch_config(batches).build();
        let sampler = VolumeSampler { ratio: settings.ratio };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Entrance { queue: queue.clone(), inner })
            .with_sampler(sampler)
            .with_id_generator(VolumeIds::default())
            .with_resource(settings.resource())
            .build();
        Self { provider, queue, sampler }
    }

    pub(crate) fn tracer(&self) -> SdkTracer {
        self.provider.tracer("kube-provisioner")
    }

    /// Sends what waits and ends the export. Blocks up to `deadline`.
    pub(crate) fn shutdown(&self, deadline: Duration) -> Result<(), Unflushed> {
        // Its result is no help: it is also Ok when nothing could be sent.
        let _ = self.provider.shutdown_with_timeout(deadline);
        match self.queue.abandon() {
            0 => Ok(()),
            spans => Err(Unflushed { spans }),
        }
    }
}

#[cfg(test)]
mod tests;
