//! How a metric is made: name, help and label names in one place, from which the registry and the
//! reference page are both filled. Which metrics there are lives in the files beside this one.

use std::{
    borrow::Cow,
    fmt::Debug,
    ops::Deref,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use opentelemetry::trace::TraceId;
use prometheus_client::{
    encoding::EncodeMetric,
    metrics::{
        MetricType, TypedMetric,
        counter::Counter,
        exemplar::HistogramWithExemplars,
        family::{Family, MetricConstructor},
        gauge::Gauge,
    },
    registry::Registry,
};

/// A label's value: a word of ours, or a name that the cluster's administrator gave (a class, a host).
pub(crate) type Value = Cow<'static, str>;

/// A number of things that only grows.
pub(crate) type Count = Counter<u64, AtomicU64>;

/// A level that goes up and down, in the unit its name says.
pub(crate) type Level = Gauge<f64, AtomicU64>;

/// A distribution of durations, each bucket with the trace of the last one that fell into it.
pub(crate) type Durations = HistogramWithExemplars<[(&'static str, String); 1]>;

/// client_golang's default buckets, which the Go library uses.
pub(crate) const DEFAULT_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// One metric broken down by `N` labels.
pub(crate) struct Labelled<const N: usize, M> {
    names: [&'static str; N],
    family: Family<[(&'static str, Value); N], M, Make<M>>,
}

/// Makes the metric of a label set that is seen for the first time.
pub(crate) struct Make<M>(Arc<dyn Fn() -> M + Send + Sync>);

impl<M> Clone for Make<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> MetricConstructor<M> for Make<M> {
    fn new_metric(&self) -> M {
        (self.0)()
    }
}

impl<const N: usize, M: Debug> Debug for Labelled<N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Labelled").field(&self.names).finish()
    }
}

impl<const N: usize, M> Labelled<N, M> {
    /// The metric of these label values, in the order of the names; made at its first use.
    pub(crate) fn at(&self, values: [Value; N]) -> impl Deref<Target = M> + '_ {
        let mut names = self.names.iter().copied();
        self.family.get_or_create(&values.map(|value| (names.next().unwrap_or_default(), value)))
    }
}

/// Adds a duration to a distribution, with the trace it belongs to.
pub(crate) fn observe(durations: &Durations, taken: Duration, trace: Option<TraceId>) {
    let exemplar = trace.map(|id| [("trace_id", id.to_string())]);
    durations.observe(taken.as_secs_f64(), exemplar, None);
}

/// One line of the reference page.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

/// Where metrics are made: fills the registry and the reference page.
#[derive(Debug, Default)]
pub(crate) struct Registrar {
    pub(crate) registry: Registry,
    pub(crate) rows: Vec<Row>,
}

impl Registrar {
    /// A count. `name` is without `_total`, which the encoder appends.
    pub(crate) fn counts<const N: usize>(
        &mut self,
        name: &str,
        labels: &'static [&'static str; N],
        help: &'static str,
    ) -> Labelled<N, Count> {
        self.labelled(name, labels, help, Count::default)
    }

    /// A level.
    pub(crate) fn levels<const N: usize>(
        &mut self,
        name: &str,
        labels: &'static [&'static str; N],
        help: &'static str,
    ) -> Labelled<N, Level> {
        self.labelled(name, labels, help, Level::default)
    }

    /// A distribution of durations in seconds over `buckets`.
    pub(crate) fn durations<const N: usize>(
        &mut self,
        name: &str,
        labels: &'static [&'static str; N],
        buckets: &[f64],
        help: &'static str,
    ) -> Labelled<N, Durations> {
        let buckets = buckets.to_vec();
        self.labelled(name, labels, help, move || Durations::new(buckets.iter().copied()))
    }

    fn labelled<const N: usize, M>(
        &mut self,
        name: &str,
        labels: &'static [&'static str; N],
        help: &'static str,
        make: impl Fn() -> M + Send + Sync + 'static,
    ) -> Labelled<N, M>
    where
        M: EncodeMetric + TypedMetric + Debug + Send + Sync + 'static,
    {
        let family = Family::new_with_constructor(Make(Arc::new(make)));
        self.registry.register(name, help, family.clone());
        self.describe::<M>(name, labels, help);
        Labelled { names: *labels, family }
    }

    fn describe<M: TypedMetric>(&mut self, name: &str, labels: &'static [&'static str], help: &'static str) {
        let (kind, suffix) = match M::TYPE {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Histogram => ("histogram", ""),
            _ => ("gauge", ""),
        };
        self.rows.push(Row { name: format!("{name}{suffix}"), kind, labels, help });
    }
}
