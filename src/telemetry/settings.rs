//! What the standard `OTEL_*` variables say about traces, read once. Those that the OpenTelemetry SDK
//! reads by itself (headers, batches, resource attributes) are left to it.

use std::{path::PathBuf, time::Duration};

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use super::TelemetryError;

/// Places for spans that wait for the collector; the SDK's 2048 lose half of a burst of 10,000.
const QUEUE_SIZE: usize = 32_768;

/// How long a span waits for others before they are sent together. The SDK's 5 s would all be lost with a
/// leader that dies, which is when people look.
const DELAY: Duration = Duration::from_secs(1);

/// How long the collector may take to answer; the specification's.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The name under which traces are found, unless it is configured.
const SERVICE_NAME: &str = "kube-provisioner";

/// Where spans go, how many, and under which name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OtlpSettings {
    /// The whole URL that batches are posted to.
    pub(crate) endpoint: String,
    /// The file with the authorities that the collector's certificate must come from, instead of the machine's.
    pub(crate) certificate: Option<PathBuf>,
    /// How long the collector may take to answer.
    pub(crate) timeout: Duration,
    /// The share of traces that is kept, from 0 to 1.
    pub(crate) ratio: f64,
    /// How many spans may wait.
    pub(crate) queue_size: usize,
    /// How long spans wait to be sent together.
    pub(crate) delay: Duration,
    /// What spans say about this process, where the environment does not.
    pub(crate) resource_defaults: Vec<(&'static str, String)>,
}

impl OtlpSettings {
    /// `None` when nothing is to be exported: no endpoint is set, or tracing is switched off.
    ///
    /// `endpoint` is the program's own option and wins over the environment; like
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` it is the collector's base URL. `instance` tells this replica from the others.
    pub(crate) fn read(
        endpoint: Option<&str>,
        instance: Option<&str>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TelemetryError> {
        let set = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let disabled = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let none = set("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        if disabled || none {
            return Ok(None);
        }
        let Some((source, endpoint)) = find_endpoint(endpoint, &set) else { return Ok(None) };
        Ok(Some(Self {
            endpoint: checked_endpoint(source, endpoint)?,
            certificate: set("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE")
                .or_else(|| set("OTEL_EXPORTER_OTLP_CERTIFICATE"))
                .map(PathBuf::from),
            timeout: timeout(&set)?,
            ratio: ratio(&set)?,
            queue_size: positive("OTEL_BSP_MAX_QUEUE_SIZE", &set)?.unwrap_or(QUEUE_SIZE),
            delay: delay(&set)?,
            resource_defaults: resource_defaults(instance, &set),
        }))
    }

    /// Whether spans go out over TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.endpoint.starts_with("https:")
    }

    /// What the spans say about this process.
    pub(crate) fn resource(&self) -> Resource {
        let defaults = self.resource_defaults.iter().map(|(key, value)| KeyValue::new(*key, value.clone()));
        Resource::builder().with_attributes(defaults).build()
    }
}

/// The whole URL, and where it was set.
fn find_endpoint(
    option: Option<&str>,
    set: &dyn Fn(&str) -> Option<String>,
) -> Option<(&'static str, String)> {
    let below = |base: String| format!("{}/v1/traces", base.trim_end_matches('/'));
    if let Some(base) = option.filter(|base| !base.is_empty()) {
        return Some(("the OTLP endpoint option", below(base.to_owned())));
    }
    if let Some(whole) = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
        return Some(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", whole));
    }
    set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| ("OTEL_EXPORTER_OTLP_ENDPOINT", below(base)))
}

fn checked_endpoint(source: &'static str, endpoint: String) -> Result<String, TelemetryError> {
    let uri: Option<http::Uri> = endpoint.parse().ok();
    let is_http = |uri: &&http::Uri| matches!(uri.scheme_str(), Some("http" | "https"));
    let host = uri.as_ref().filter(is_http).and_then(http::Uri::host);
    match host {
        Some(_) => Ok(endpoint),
        None => Err(TelemetryError::Setting {
            source_name: source,
            value: endpoint,
            wanted: "a URL of the form http://host:4318 or https://host:4318",
        }),
    }
}

/// The samplers with and without `parentbased_` come to the same: every parent is a derived root, and
/// its fate hangs on the trace id as well.
fn ratio(set: &dyn Fn(&str) -> Option<String>) -> Result<f64, TelemetryError> {
    let name = set("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
    match name.trim().trim_start_matches("parentbased_") {
        "always_on" => Ok(1.0),
        "always_off" => Ok(0.0),
        "traceidratio" => ratio_argument(set),
        _ => Err(TelemetryError::Setting {
            source_name: "OTEL_TRACES_SAMPLER",
            value: name,
            wanted: "always_on, always_off or traceidratio, with or without parentbased_ before it",
        }),
    }
}

fn ratio_argument(set: &dyn Fn(&str) -> Option<String>) -> Result<f64, TelemetryError> {
    let Some(text) = set("OTEL_TRACES_SAMPLER_ARG") else { return Ok(1.0) };
    match text.trim().parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err(TelemetryError::Setting {
            source_name: "OTEL_TRACES_SAMPLER_ARG",
            value: text,
            wanted: "a number from 0 to 1",
        }),
    }
}

fn delay(set: &dyn Fn(&str) -> Option<String>) -> Result<Duration, TelemetryError> {
    let milliseconds = positive("OTEL_BSP_SCHEDULE_DELAY", set)?;
    Ok(milliseconds.map_or(DELAY, |milliseconds| Duration::from_millis(milliseconds as u64)))
}

/// The variable for traces wins over the general one.
fn timeout(set: &dyn Fn(&str) -> Option<String>) -> Result<Duration, TelemetryError> {
    let of_traces = positive("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", set)?;
    let milliseconds = of_traces.or(positive("OTEL_EXPORTER_OTLP_TIMEOUT", set)?);
    Ok(milliseconds.map_or(TIMEOUT, |milliseconds| Duration::from_millis(milliseconds as u64)))
}

fn positive(
    name: &'static str,
    set: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<usize>, TelemetryError> {
    let Some(text) = set(name) else { return Ok(None) };
    match text.trim().parse::<usize>() {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => {
            Err(TelemetryError::Setting { source_name: name, value: text, wanted: "a whole number above 0" })
        }
    }
}

/// What spans say about this process, but for what the environment says itself.
fn resource_defaults(
    instance: Option<&str>,
    set: &dyn Fn(&str) -> Option<String>,
) -> Vec<(&'static str, String)> {
    let attributes = set("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let given: Vec<_> =
        attributes.split(',').filter_map(|pair| pair.split('=').next()).map(str::trim).collect();
    let named = set("OTEL_SERVICE_NAME").is_some();
    [
        ("service.name", (!named).then(|| SERVICE_NAME.to_owned())),
        ("service.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ("service.instance.id", instance.map(str::to_owned)),
    ]
    .into_iter()
    .filter(|(key, _)| !given.contains(key))
    .filter_map(|(key, value)| Some((key, value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(option: Option<&str>, env: &[(&str, &str)]) -> Result<Option<OtlpSettings>, TelemetryError> {
        OtlpSettings::read(option, Some("pod-a"), &|name| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn settings(env: &[(&str, &str)]) -> OtlpSettings {
        read(Some("http://jaeger:4318"), env).unwrap().unwrap()
    }

    #[test]
    fn nothing_is_exported_unless_an_endpoint_is_set() {
        assert_eq!(read(None, &[]).unwrap(), None);
        assert_eq!(read(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap(), None);
    }

    #[test]
    fn the_standard_switches_turn_it_off() {
        let endpoint = Some("http://jaeger:4318");
        assert_eq!(read(endpoint, &[("OTEL_SDK_DISABLED", "TRUE")]).unwrap(), None);
        assert_eq!(read(endpoint, &[("OTEL_TRACES_EXPORTER", "none")]).unwrap(), None);
        assert!(read(endpoint, &[("OTEL_SDK_DISABLED", "false")]).unwrap().is_some());
    }

    #[test]
    fn the_option_wins_then_the_variable_for_traces_then_the_general_one() {
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4318/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4318/own/path");
        let endpoint = |option, env: &[_]| read(option, env).unwrap().unwrap().endpoint;
        assert_eq!(endpoint(Some("http://option:4318"), &[general, traces]), "http://option:4318/v1/traces");
        assert_eq!(endpoint(None, &[general, traces]), "http://traces:4318/own/path");
        assert_eq!(endpoint(None, &[general]), "http://general:4318/v1/traces");
    }

    #[test]
    fn an_https_endpoint_is_encrypted_and_the_variables_for_traces_win() {
        let read = |env: &[_]| read(Some("https://jaeger:4318"), env).unwrap().unwrap();
        assert!(read(&[]).is_encrypted() && !settings(&[]).is_encrypted());
        assert_eq!((read(&[]).certificate, read(&[]).timeout), (None, Duration::from_secs(10)));
        let general = [("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000")];
        assert_eq!(read(&general).certificate, Some("/ca".into()));
        assert_eq!(read(&general).timeout, Duration::from_secs(2));
        let own =
            [("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/own"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "50")];
        let both = [general, own].concat();
        assert_eq!(read(&both).certificate, Some("/own".into()));
        assert_eq!(read(&both).timeout, Duration::from_millis(50));
    }

    #[test]
    fn every_standard_sampler_is_a_share_of_the_traces() {
        let sampler = |name| settings(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", "0.25")]);
        assert_eq!(settings(&[]).ratio, 1.0);
        assert_eq!(sampler("always_on").ratio, 1.0);
        assert_eq!(sampler("parentbased_always_off").ratio, 0.0);
        assert_eq!(sampler("traceidratio").ratio, 0.25);
        assert_eq!(sampler("parentbased_traceidratio").ratio, 0.25);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_source() {
        let told = |option, env: &[_]| read(option, env).unwrap_err().to_string();
        let endpoint = Some("http://jaeger:4318");
        assert!(told(Some("ftp://jaeger:4318"), &[]).starts_with("the OTLP endpoint option is \"ftp://"));
        assert!(told(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "jaeger:4317")]).contains("http://host:4318"));
        assert!(
            told(endpoint, &[("OTEL_TRACES_SAMPLER", "xray")]).starts_with("OTEL_TRACES_SAMPLER is \"xray\"")
        );
        let ratio = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        assert!(told(endpoint, &ratio).starts_with("OTEL_TRACES_SAMPLER_ARG is \"2\""));
        assert!(told(endpoint, &[("OTEL_BSP_MAX_QUEUE_SIZE", "0")]).contains("OTEL_BSP_MAX_QUEUE_SIZE"));
    }

    #[test]
    fn the_environments_words_about_the_process_win_over_ours() {
        let keys =
            |env: &[_]| -> Vec<_> { settings(env).resource_defaults.into_iter().map(|it| it.0).collect() };
        assert_eq!(keys(&[]), ["service.name", "service.version", "service.instance.id"]);
        assert_eq!(settings(&[]).resource_defaults[0].1, "kube-provisioner");
        assert_eq!(settings(&[]).resource_defaults[2].1, "pod-a");
        assert_eq!(keys(&[("OTEL_SERVICE_NAME", "x")]), ["service.version", "service.instance.id"]);
        let attributes = [("OTEL_RESOURCE_ATTRIBUTES", "a=b, service.name=x,service.instance.id=y")];
        assert_eq!(keys(&attributes), ["service.version"]);
    }
}
