//! Logs: their two formats, and the filter that can be changed while the program runs.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter,
        format::{JsonFields, Writer},
    },
    registry::LookupSpan,
    reload,
};

use super::TelemetryError;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line, with the keys of the spans around it (`trace_id`, `claim`, `volume`,
    /// `epoch`, `attempt`) beside the event's own.
    Json,
    /// For people.
    #[default]
    Human,
}

/// What applies unless a directive says otherwise: libraries speak only when something is wrong. (A
/// broken watch is told by the Watcher, once, so kube_runtime's line a second is not.) The
/// OpenTelemetry SDK is silent, because it would report every failed batch; `export` tells it once. A target is a mere
/// prefix: `kube=warn` would silence this program as well.
const BASE: &str = "info,actix=warn,h2=warn,hyper=warn,hyper_util=warn,kube_client=warn,kube_core=warn,\
                    kube_leader_election=warn,kube_runtime=error,reqwest=warn,rustls=warn,tower=warn,\
                    opentelemetry=off,opentelemetry_sdk=off,opentelemetry_otlp=off,opentelemetry-otlp=off";

/// Changes what is logged while the program runs.
#[derive(Clone)]
pub struct LogFilter(Arc<Inner>);

struct Inner {
    handle: reload::Handle<EnvFilter, Registry>,
    directives: Mutex<String>,
}

impl LogFilter {
    /// From now on logs by these directives (`debug`, `info,kube_provisioner::lease=trace`). What
    /// they don't name stays as it is by default.
    ///
    /// # Errors
    /// When they can't be read; nothing changes then.
    pub fn set(&self, directives: &str) -> Result<(), TelemetryError> {
        let filter = filter(directives)?;
        // Fails only when the subscriber is gone, and then there are no logs to filter.
        let _ = self.0.handle.reload(filter);
        *self.0.directives.lock().unwrap_or_else(PoisonError::into_inner) = directives.to_owned();
        Ok(())
    }

    /// The directives last set.
    #[must_use]
    pub fn current(&self) -> String {
        self.0.directives.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogFilter").field(&self.current()).finish()
    }
}

fn filter(directives: &str) -> Result<EnvFilter, TelemetryError> {
    // A later directive for the same target wins, so the user's come last.
    let all = if directives.trim().is_empty() { BASE.to_owned() } else { format!("{BASE},{directives}") };
    EnvFilter::builder()
        .parse(all)
        .map_err(|cause| TelemetryError::LogFilter { directives: directives.to_owned(), cause })
}

/// The layer that writes logs to `writer`, and the handle on its filter.
pub(crate) fn layer<W>(
    format: LogFormat,
    directives: &str,
    writer: W,
) -> Result<(Box<dyn Layer<Registry> + Send + Sync>, LogFilter), TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(directives)?);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let layer = match format {
        LogFormat::Json => {
            lines.event_format(JsonLine).fmt_fields(JsonFields::new()).with_filter(filter).boxed()
        }
        LogFormat::Human => lines.compact().with_ansi(false).with_filter(filter).boxed(),
    };
    let inner = Inner { handle, directives: Mutex::new(directives.to_owned()) };
    Ok((layer, LogFilter(Arc::new(inner))))
}

/// One flat JSON object: the keys of the outermost span first, an inner one's in their place where they
/// are the same, then the event's, then ours.
struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = span_fields(context);
        event.record(&mut Fields(&mut line));
        let metadata = event.metadata();
        line.insert("timestamp".into(), format!("{:.6}", jiff::Timestamp::now()).into());
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("target".into(), metadata.target().into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

fn span_fields<S, N>(context: &FmtContext<'_, S, N>) -> Map<String, Value>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let mut fields = Map::new();
    for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
        let extensions = span.extensions();
        let formatted = extensions.get::<FormattedFields<N>>().map(|text| text.fields.as_str());
        if let Some(Ok(Value::Object(own))) = formatted.map(serde_json::from_str) {
            fields.extend(own);
        }
        fields.insert("span".into(), span.name().into());
    }
    fields
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::telemetry::testing::Captured;

    fn logging(
        format: LogFormat,
        directives: &str,
    ) -> (Captured, LogFilter, tracing::subscriber::DefaultGuard) {
        let lines = Captured::default();
        let (layer, filter) = layer(format, directives, lines.writer()).unwrap();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        (lines, filter, guard)
    }

    #[test]
    fn a_json_line_has_the_keys_of_its_event_and_of_the_spans_around_it() {
        let (lines, _, _guard) = logging(LogFormat::Json, "");
        let span = tracing::info_span!("provision attempt", claim = "ns/data", epoch = 7_u64, attempt = 1);
        let inner = tracing::info_span!(parent: &span, "save", attempt = 2);
        inner.in_scope(|| tracing::info!(target: "kube_provisioner", taken = 1.5, "volume \"saved\""));
        let line: Value = serde_json::from_str(&lines.take()).unwrap();
        let mut line = line.as_object().unwrap().clone();
        let timestamp = line.remove("timestamp").unwrap();
        assert!(timestamp.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{timestamp}");
        let wanted = serde_json::json!({
            "level": "INFO", "target": "kube_provisioner", "message": "volume \"saved\"", "taken": 1.5,
            "claim": "ns/data", "epoch": 7, "attempt": 2, "span": "save",
        });
        assert_eq!(Value::Object(line), wanted);
    }

    #[test]
    fn a_line_for_people_names_the_claim_too() {
        let (lines, _, _guard) = logging(LogFormat::Human, "");
        tracing::info_span!("provision attempt", claim = "ns/data").in_scope(|| tracing::info!("saved"));
        let line = lines.take();
        assert!(line.contains("saved") && line.contains("ns/data") && !line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn the_filter_changes_while_the_program_runs() {
        let (lines, filter, _guard) = logging(LogFormat::Human, "warn");
        let speak = || tracing::debug!(target: "kube_provisioner::lease", "renewed");
        speak();
        assert_eq!(lines.take(), "");
        filter.set("kube_provisioner::lease=debug").unwrap();
        assert_eq!(filter.current(), "kube_provisioner::lease=debug");
        speak();
        assert!(lines.take().contains("renewed"));
    }

    #[test]
    fn a_filter_that_cant_be_read_changes_nothing_and_is_named() {
        let (_, filter, _guard) = logging(LogFormat::Human, "warn");
        let error = filter.set("kube=loud").unwrap_err();
        assert!(error.to_string().contains("\"kube=loud\""), "{error}");
        assert_eq!(filter.current(), "warn");
    }

    #[test]
    fn debug_for_all_does_not_make_the_libraries_speak() {
        let (lines, filter, _guard) = logging(LogFormat::Human, "debug");
        tracing::debug!(target: "hyper", "noise");
        tracing::error!(target: "opentelemetry_sdk", "noise");
        assert_eq!(lines.take(), "");
        filter.set("debug,hyper=debug").unwrap();
        tracing::debug!(target: "hyper", "wanted");
        assert!(lines.take().contains("wanted"));
    }
}
