//! Traffic with the API server and what is cached of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::family::{Count, Durations, Labelled, Level, Registrar, observe};
use crate::clock::{BootTime, Clock};

/// The buckets of Kubernetes' own components.
const REQUEST_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Requests to the API server, watches, and the objects kept in memory.
#[derive(Debug)]
pub struct ClusterMetrics {
    requests: Labelled<3, Count>,
    request_duration: Labelled<2, Durations>,
    cached_objects: Labelled<1, Level>,
    cached_bytes: Labelled<1, Level>,
    watch_age: Labelled<1, Level>,
    relists: Labelled<1, Count>,
    /// When each watch was last heard of, from which the ages are made at a scrape.
    heard: Mutex<BTreeMap<&'static str, BootTime>>,
    clock: Arc<dyn Clock>,
}

impl ClusterMetrics {
    pub(crate) fn register(into: &mut Registrar, clock: Arc<dyn Clock>) -> Self {
        const BY_KIND: &[&str; 1] = &["kind"];
        Self {
            requests: into.counts(
                "rest_client_requests",
                &["code", "method", "host"],
                "Requests to the API server, but for those about the Lease; the code is `<error>` when no answer came",
            ),
            request_duration: into.durations(
                "rest_client_request_duration_seconds",
                &["verb", "host"],
                REQUEST_BUCKETS,
                "How long the API server took to answer; a watch counts until its first bytes",
            ),
            cached_objects: into.levels(
                "kube_provisioner_cache_objects",
                BY_KIND,
                "Objects kept in memory, by kind",
            ),
            cached_bytes: into.levels(
                "kube_provisioner_cache_bytes",
                BY_KIND,
                "Estimate of the memory that the cached objects take, by kind",
            ),
            watch_age: into.levels(
                "kube_provisioner_watch_age_seconds",
                BY_KIND,
                "Time since the watch of this kind was last heard of: an event, a bookmark, or its start",
            ),
            relists: into.counts(
                "kube_provisioner_relists",
                BY_KIND,
                "How often a kind was listed from scratch, the first time included",
            ),
            heard: Mutex::default(),
            clock,
        }
    }

    /// A request ended: with this status, or with `None` when no answer came.
    pub fn request_finished(&self, method: &'static str, host: &str, code: Option<u16>, taken: Duration) {
        let code = code.map_or("<error>".into(), |code| code.to_string().into());
        self.requests.at([code, method.into(), host.to_owned().into()]).inc();
        observe(&self.request_duration.at([method.into(), host.to_owned().into()]), taken, None);
    }

    /// The watch of this kind gave a sign of life.
    pub fn watch_heard(&self, kind: &'static str) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).insert(kind, self.clock.now());
    }

    /// The objects of this kind are listed from scratch.
    pub fn relisted(&self, kind: &'static str) {
        self.relists.at([kind.into()]).inc();
    }

    /// So many objects of this kind are cached now, taking about so much memory.
    pub fn cached(&self, kind: &'static str, objects: usize, bytes: usize) {
        self.cached_objects.at([kind.into()]).set(objects as f64);
        self.cached_bytes.at([kind.into()]).set(bytes as f64);
    }

    /// Brings the ages up to date; called before each scrape.
    pub(crate) fn refresh(&self) {
        let now = self.clock.now();
        for (kind, at) in self.heard.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.watch_age.at([(*kind).into()]).set(now.saturating_since(*at).as_secs_f64());
        }
    }
}
