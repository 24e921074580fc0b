//! All metrics of the program: one struct per subsystem, told what happened in methods named after it.
//!
//! Names and labels of the Go library and of client-go where they have the metric, `kube_provisioner_*`
//! where they don't. No label ever holds the name of a claim or a volume. Serving them is `server`'s.

mod backend;
mod cluster;
mod family;
mod leadership;
mod queue;
mod reporting;
mod volumes;

use std::{fmt::Write as _, sync::Arc};

use prometheus_client::{
    encoding::{prometheus_text, text},
    metrics::info::Info,
    registry::Registry,
};

pub use self::{
    backend::BackendMetrics,
    cluster::ClusterMetrics,
    leadership::LeadershipMetrics,
    queue::QueueMetrics,
    reporting::{EventDropped, ReportingMetrics, SpanDropped},
    volumes::{Operation, Verdict, VolumeMetrics},
};
use self::{family::Registrar, queue::Queues};
use crate::clock::Clock;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4, understood by everything.
    Prometheus,
    /// OpenMetrics text 1.0, which also carries the exemplars.
    OpenMetrics,
}

impl Format {
    /// The format that an HTTP `Accept` header asks for.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(types) if types.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// The HTTP `Content-Type` of what [`Metrics::encode`] writes.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The metrics of one process. Clones share the numbers.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<All>);

/// Everything there is, by subsystem.
#[derive(Debug)]
pub struct All {
    /// Provisioning and deleting.
    pub volumes: VolumeMetrics,
    /// The queue of claims to provision.
    pub claims_queue: QueueMetrics,
    /// The queue of volumes to delete.
    pub volumes_queue: QueueMetrics,
    /// Leases and epochs.
    pub leadership: LeadershipMetrics,
    /// API requests, watches, caches.
    pub cluster: ClusterMetrics,
    /// Backend calls and orphans.
    pub backend: BackendMetrics,
    /// Events and spans.
    pub reporting: ReportingMetrics,
    registry: Registry,
    reference: String,
}

impl std::ops::Deref for Metrics {
    type Target = All;

    fn deref(&self) -> &All {
        &self.0
    }
}

impl Metrics {
    /// All metrics, at zero.
    #[must_use]
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        let mut into = Registrar::default();
        let volumes = VolumeMetrics::register(&mut into);
        let queues = Queues::register(&mut into);
        let leadership = LeadershipMetrics::register(&mut into);
        let cluster = ClusterMetrics::register(&mut into, Arc::clone(clock));
        let backend = BackendMetrics::register(&mut into);
        let reporting = ReportingMetrics::register(&mut into);
        register_build(&mut into);
        Self(Arc::new(All {
            volumes,
            claims_queue: QueueMetrics::new("claims", &queues, Arc::clone(clock)),
            volumes_queue: QueueMetrics::new("volumes", &queues, Arc::clone(clock)),
            leadership,
            cluster,
            backend,
            reporting,
            reference: reference_of(&into),
            registry: into.registry,
        }))
    }

    /// Writes all metrics. Ages are brought up to date first.
    ///
    /// # Errors
    /// Never in practice: the text goes to memory.
    pub fn encode(&self, format: Format) -> Result<String, std::fmt::Error> {
        self.claims_queue.refresh();
        self.volumes_queue.refresh();
        self.cluster.refresh();
        let mut text = String::new();
        match format {
            Format::Prometheus => prometheus_text::encode(&mut text, &self.registry)?,
            Format::OpenMetrics => text::encode(&mut text, &self.registry)?,
        }
        Ok(text)
    }

    /// The reference page in Markdown: every metric with type, labels and meaning.
    #[must_use]
    pub fn render_reference(&self) -> String {
        self.reference.clone()
    }
}

fn register_build(into: &mut Registrar) {
    const HELP: &str = "Always 1; the label tells the version of this program";
    into.registry.register(
        "kube_provisioner_build",
        HELP,
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    let name = "kube_provisioner_build_info".to_owned();
    into.rows.push(family::Row { name, kind: "info", labels: &["version"], help: HELP });
}

fn reference_of(made: &Registrar) -> String {
    let mut page = String::from(INTRODUCTION);
    for row in &made.rows {
        let labels: Vec<_> = row.labels.iter().map(|label| format!("`{label}`")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{}` | {} | {} | {}. |", row.name, row.kind, labels.join(", "), row.help);
    }
    page
}

const INTRODUCTION: &str = "\
# Metrics

Every replica serves its metrics at `/metrics`, leader or not, as Prometheus text, or as OpenMetrics
to a scraper that asks for it in its `Accept` header. OpenMetrics carries exemplars: a bucket of a
duration then names the trace (`trace_id`) of the last volume that fell into it.

Metrics named `controller_*`, `workqueue_*`, `leader_election_*` and `rest_client_*` have the names,
labels and buckets of the Go provisioner library and of client-go, so existing dashboards go on
working. No label holds the name of a claim or of a volume: the number of series stays bounded by the
number of storage classes.

This page is generated from the code, and a test holds it: write it anew with
`UPDATE_REFERENCE=1 cargo test the_reference_page_is_what_the_code_says`.

| metric | type | labels | meaning |
|---|---|---|---|
";

#[cfg(test)]
mod tests;
