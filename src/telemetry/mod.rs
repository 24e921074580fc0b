//! Traces, metrics, logs, probes. Knows no actor, no lease and no cluster: they tell it what happens.
//!
//! [`init`] is for a program; a library's user who has a tracing subscriber needs only [`metrics`],
//! [`health`] and [`trace`].

mod export;
pub mod health;
pub mod logs;
pub mod metrics;
pub mod server;
mod settings;
pub mod trace;

#[cfg(test)]
mod testing;

use std::time::Duration;

use tracing::{Dispatch, Level, Metadata, dispatcher};
use tracing_subscriber::{
    Layer, Registry, filter::FilterFn, layer::SubscriberExt as _, registry::LookupSpan,
};

pub use self::export::Unflushed;
use self::{
    export::Export,
    logs::{LogFilter, LogFormat},
    metrics::Metrics,
    settings::OtlpSettings,
    trace::Traces,
};

/// How long a guard that is simply dropped waits for the collector.
const DROP_DEADLINE: Duration = Duration::from_secs(3);

/// What [`init`] needs to know.
#[derive(Clone, Debug)]
pub struct TelemetryOptions {
    /// How log lines look.
    pub log_format: LogFormat,
    /// Directives that refine the default filter (`debug`, `kube_provisioner::lease=trace`); may be empty.
    pub log_filter: String,
    /// The base URL of an OTLP/HTTP collector (`http://jaeger:4318`). Without it and without the standard
    /// `OTEL_EXPORTER_OTLP_*` variables nothing is exported.
    pub otlp_endpoint: Option<String>,
    /// What tells this replica from the others in traces: the pod's name, or the identity in the Lease.
    pub instance: Option<String>,
    /// Where lost spans are counted.
    pub metrics: Metrics,
}

/// Why telemetry can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter can't be read.
    #[error("the log filter {directives:?} can't be read: {cause}")]
    LogFilter {
        /// As it was given.
        directives: String,
        /// What is wrong with it.
        cause: tracing_subscriber::filter::ParseError,
    },
    /// A setting has a value that means nothing.
    #[error("{source_name} is {value:?}, but must be {wanted}")]
    Setting {
        /// The variable or option.
        source_name: &'static str,
        /// As it was given.
        value: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// The OTLP exporter can't be made.
    #[error("the exporter to {endpoint} can't be made: {cause}")]
    Exporter {
        /// Where it should send.
        endpoint: String,
        /// Why it can't.
        cause: opentelemetry_otlp::ExporterBuildError,
    },
    /// The client of the exporter can't be made.
    #[error("the connection to {endpoint} can't be prepared: {cause}")]
    Client {
        /// Where it should send.
        endpoint: String,
        /// Why it can't.
        cause: String,
    },
    /// The file with the collector's authorities can't be used.
    #[error("the certificates of the trace collector's authorities in {path} can't be used: {cause}")]
    Certificate {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// There is a global tracing subscriber already.
    #[error("logs are set up already: {0}")]
    AlreadySet(#[from] dispatcher::SetGlobalDefaultError),
}

/// Keeps telemetry running; its drop sends what still waits, within 3 s.
#[derive(Debug)]
#[must_use = "dropping the guard ends the export of traces"]
pub struct TelemetryGuard {
    filter: LogFilter,
    traces: Traces,
    /// Gone once it was shut down.
    export: Option<Export>,
}

/// Sets up logs and traces for this process, from `options` and the `OTEL_*` variables.
///
/// # Errors
/// When a setting has a wrong value, or a tracing subscriber is set already.
pub fn init(options: &TelemetryOptions) -> Result<TelemetryGuard, TelemetryError> {
    let env = |name: &str| std::env::var(name).ok();
    let settings = OtlpSettings::read(options.otlp_endpoint.as_deref(), options.instance.as_deref(), &env)?;
    let export = settings.map(|settings| Export::over_http(&settings, &options.metrics)).transpose()?;
    let (layer, filter) = logs::layer(options.log_format, &options.log_filter, std::io::stderr)?;
    let (dispatch, traces) = assemble(layer, export.as_ref());
    dispatcher::set_global_default(dispatch)?;
    Ok(TelemetryGuard { filter, traces, export })
}

/// One subscriber of both: each layer has a filter of its own, so quiet logs don't thin out traces.
fn assemble(logs: Box<dyn Layer<Registry> + Send + Sync>, export: Option<&Export>) -> (Dispatch, Traces) {
    let registry = tracing_subscriber::registry().with(logs);
    match export {
        None => (registry.into(), Traces::off()),
        Some(export) => {
            let traces = Traces::to(export.tracer(), export.sampler);
            (registry.with(span_layer(export)).into(), traces)
        }
    }
}

fn span_layer<S>(export: &Export) -> impl Layer<S> + use<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(export.tracer())
        // Where in the code, on which thread, busy or idle: not what an operator asks, and half the bytes.
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        // Nothing asks OpenTelemetry which span is current: without this, each poll of a traced future would say so.
        .with_context_activation(false)
        .with_filter(FilterFn::new(is_exported).with_max_level_hint(Level::DEBUG))
}

/// Our spans. Events are the log's: what failed is in a span's status already. Which traces are kept is the
/// sampler's decision.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
        && metadata.target().starts_with("kube_provisioner")
        && *metadata.level() <= Level::DEBUG
}

impl TelemetryGuard {
    /// Changes what is logged.
    #[must_use]
    pub fn log_filter(&self) -> LogFilter {
        self.filter.clone()
    }

    /// Makes the spans of volumes.
    #[must_use]
    pub fn traces(&self) -> Traces {
        self.traces.clone()
    }

    /// Sends what still waits and ends the export. Blocks up to `deadline`: on a runtime call it through
    /// `spawn_blocking`.
    ///
    /// # Errors
    /// When spans still waited at the deadline. They are lost.
    pub fn shutdown(mut self, deadline: Duration) -> Result<(), Unflushed> {
        self.export.take().map_or(Ok(()), |export| export.shutdown(deadline))
    }
}

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.export.take().map(|export| export.shutdown(DROP_DEADLINE)) {
            tracing::warn!(%error, "traces were lost");
        }
    }
}
