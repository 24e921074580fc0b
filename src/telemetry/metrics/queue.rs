//! The work queues, under the names that client-go's queues have.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::family::{Count, Durations, Labelled, Level, Registrar, observe};
use crate::clock::{BootTime, Clock};

/// client-go's buckets: ten, from 10 ns to 10 s, each ten times the one before.
const BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];

/// What all queues share: the metrics, which tell them apart by the label `name`.
#[derive(Debug)]
pub(crate) struct Queues {
    depth: Labelled<1, Level>,
    adds: Labelled<1, Count>,
    waited: Labelled<1, Durations>,
    worked: Labelled<1, Durations>,
    unfinished: Labelled<1, Level>,
    longest: Labelled<1, Level>,
    retries: Labelled<1, Count>,
}

impl Queues {
    pub(crate) fn register(into: &mut Registrar) -> Arc<Self> {
        const BY_NAME: &[&str; 1] = &["name"];
        Arc::new(Self {
            depth: into.levels("workqueue_depth", BY_NAME, "Keys that wait for a slot now"),
            adds: into.counts("workqueue_adds", BY_NAME, "Keys put into the queue, retries included"),
            waited: into.durations(
                "workqueue_queue_duration_seconds",
                BY_NAME,
                BUCKETS,
                "How long keys waited in the queue before their work began",
            ),
            worked: into.durations(
                "workqueue_work_duration_seconds",
                BY_NAME,
                BUCKETS,
                "How long the work on a key took",
            ),
            unfinished: into.levels(
                "workqueue_unfinished_work_seconds",
                BY_NAME,
                "Sum of the ages of the work that runs now; it grows without end when something is stuck",
            ),
            longest: into.levels(
                "workqueue_longest_running_processor_seconds",
                BY_NAME,
                "Age of the oldest work that runs now",
            ),
            retries: into.counts("workqueue_retries", BY_NAME, "Keys put off to be tried again later"),
        })
    }
}

/// One queue: told what happens, it keeps the numbers.
#[derive(Debug)]
pub struct QueueMetrics {
    name: &'static str,
    all: Arc<Queues>,
    clock: Arc<dyn Clock>,
    /// When the work on each key began. Never a label: only its sum and its maximum are shown.
    running: Mutex<BTreeMap<String, BootTime>>,
}

impl QueueMetrics {
    pub(crate) fn new(name: &'static str, all: &Arc<Queues>, clock: Arc<dyn Clock>) -> Self {
        let queue = Self { name, all: Arc::clone(all), clock, running: Mutex::default() };
        queue.show_from_the_start();
        queue
    }

    /// A key was put into the queue.
    pub fn enqueued(&self) {
        self.all.adds.at(self.label()).inc();
        self.all.depth.at(self.label()).inc();
    }

    /// A waiting key left the queue without being worked on.
    pub fn removed(&self) {
        self.all.depth.at(self.label()).dec();
    }

    /// The work on a key began, after it had `waited` in the queue.
    pub fn started(&self, key: &str, waited: Duration) {
        self.all.depth.at(self.label()).dec();
        observe(&self.all.waited.at(self.label()), waited, None);
        self.running().insert(key.to_owned(), self.clock.now());
    }

    /// The work on a key ended, whatever came of it.
    pub fn finished(&self, key: &str) {
        let Some(since) = self.running().remove(key) else { return };
        observe(&self.all.worked.at(self.label()), self.clock.now().saturating_since(since), None);
    }

    /// A key was put off, to be tried again later.
    pub fn retried(&self) {
        self.all.retries.at(self.label()).inc();
    }

    /// The queue was emptied: leadership ended, or the replica begins anew.
    pub fn cleared(&self) {
        self.all.depth.at(self.label()).set(0.0);
        self.running().clear();
    }

    /// Brings the ages up to date; called before each scrape.
    pub(crate) fn refresh(&self) {
        let now = self.clock.now();
        let running = self.running();
        let ages = running.values().map(|since| now.saturating_since(*since).as_secs_f64());
        let (sum, longest) = ages.fold((0.0, 0.0_f64), |(sum, longest), age| (sum + age, longest.max(age)));
        self.all.unfinished.at(self.label()).set(sum);
        self.all.longest.at(self.label()).set(longest);
    }

    /// Zeroes rather than absent series: an alert on a rate must see the first increment.
    fn show_from_the_start(&self) {
        drop(self.all.adds.at(self.label()));
        drop(self.all.retries.at(self.label()));
        drop(self.all.waited.at(self.label()));
        drop(self.all.worked.at(self.label()));
        self.cleared();
    }

    fn label(&self) -> [super::family::Value; 1] {
        [self.name.into()]
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, BootTime>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
