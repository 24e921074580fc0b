//! What the Arbiter tells metrics, traces and the log of what its operations come to.

use std::time::{Duration, SystemTime};

use tracing::Span;

use super::{
    super::{Ended, Kind, Lane, Story, Verdict, Waited},
    ArbiterActor, BEAT,
};
use crate::{
    actors::volume::{Job, ProvisionTask, RemoveTask, Task},
    clock::BootTime,
    lifecycle::objects::{Claim, Volume},
    telemetry::{
        metrics::{Operation, QueueMetrics, Verdict as Counted},
        trace,
    },
};

impl ArbiterActor {
    pub(super) fn queue(&self, lane: Lane) -> &QueueMetrics {
        match lane {
            Lane::Provision => &self.setup.metrics.claims_queue,
            Lane::Remove | Lane::Tend => &self.setup.metrics.volumes_queue,
        }
    }

    pub(super) fn span(&self, task: &Task, epoch: u64, number: u32) -> Span {
        let attempt = trace::Attempt { epoch, identity: &self.setup.identity, number };
        let traces = &self.setup.traces;
        match task {
            Task::Provision(task) => traces.attempt_span(&traced_claim(task), &attempt),
            Task::Remove(RemoveTask { volume, job: Job::Delete(_) }) => {
                traces.deletion_span(&traced_volume(volume), &attempt)
            }
            Task::Remove(task) => traces.upkeep_span(&task.volume.name, &attempt),
            Task::Orphan(task) => {
                tracing::info_span!(parent: None, "remove orphan", volume = &*task.name, epoch)
            }
        }
    }

    /// Spans are exported when they end. So that what a leader had begun is seen even if it dies, an attempt
    /// that lasts is told of once while it is under way.
    pub(super) fn tell_underway(&mut self) {
        let now = self.setup.clock.now();
        let Self { running, setup, .. } = self;
        for underway in running.values_mut() {
            if underway.told || now.saturating_since(underway.began) < BEAT {
                continue;
            }
            underway.told = true;
            let began = wall(now, underway.began);
            let attempt =
                trace::Attempt { epoch: underway.epoch, identity: &setup.identity, number: underway.attempt };
            match &underway.task {
                Task::Provision(task) => setup.traces.underway(&traced_claim(task), &attempt, began),
                Task::Remove(RemoveTask { volume, job: Job::Delete(_) }) => {
                    setup.traces.deletion_underway(&traced_volume(volume), &attempt, began);
                }
                Task::Remove(_) | Task::Orphan(_) => {}
            }
        }
    }

    pub(super) fn waited(&self, waited: &Waited) {
        let now = self.setup.clock.now();
        let (start, end) = (wall(now, waited.start), wall(now, waited.end));
        self.setup.traces.waited(&waited.uid, &trace::Wait { start, end, reason: waited.reason });
    }

    pub(super) fn ended(&mut self, ended: &Ended) {
        let span = self.running.remove(ended.task.name()).map_or_else(Span::none, |underway| underway.span);
        // The span says which claim, volume, epoch and trace a line is about. It ends before its root.
        span.in_scope(|| self.log(ended));
        drop(span);
        match &ended.task {
            Task::Provision(task) => self.provision_ended(task, ended),
            Task::Remove(task) => self.remove_ended(task, ended),
            Task::Orphan(task) => self.orphan_ended(&task.name, ended),
        }
    }

    fn log(&mut self, ended: &Ended) {
        let (key, what) = (ended.task.name(), Words::of(&ended.task));
        match &ended.verdict {
            Verdict::Succeeded => {
                self.repeats.healed(key);
                if what.is_outcome {
                    tracing::info!(took = ?ended.took, "{}", what.done);
                } else {
                    tracing::debug!(took = ?ended.took, "{}", what.done);
                }
            }
            Verdict::Failed(message, again) => {
                let repeats = self.repeats.failed(key, message, self.setup.clock.now());
                if let Some(repeats) = repeats.or_else(|| again.is_none().then_some(0)) {
                    tracing::warn!(error = message, ?again, repeats, "{} failed", what.doing);
                }
            }
            Verdict::InUse(why, again) => {
                if self.repeats.failed(key, why, self.setup.clock.now()).is_some() {
                    tracing::info!(why, ?again, "{} waits: the volume is in use", what.doing);
                }
            }
            Verdict::Moot(why) if matches!(ended.task, Task::Orphan(_)) => {
                tracing::info!(why, "an orphan was left alone");
            }
            Verdict::Moot(why) => tracing::debug!(why, "{} ended without effect", what.doing),
        }
    }

    fn orphan_ended(&self, asset: &str, ended: &Ended) {
        self.setup.metrics.volumes_queue.finished(asset);
        if ended.verdict == Verdict::Succeeded {
            self.setup.metrics.backend.orphan_removed(&self.setup.provisioner);
        }
    }

    fn provision_ended(&self, task: &ProvisionTask, ended: &Ended) {
        let metrics = &self.setup.metrics;
        metrics.claims_queue.finished(&task.name);
        let trace = self.setup.traces.exported(&task.claim.uid);
        let (source, verdict) = (source_of(&task.claim), counted(&ended.verdict));
        metrics.volumes.provision_finished(&task.class.name, source, verdict, ended.took, trace);
        match &ended.verdict {
            Verdict::Succeeded => {
                let waited = SystemTime::now().duration_since(created(task)).unwrap_or_default();
                metrics.volumes.volume_saved(&task.class.name, waited, trace);
            }
            Verdict::Failed(_, Some(_)) => metrics.claims_queue.retried(),
            Verdict::Failed(_, None) => metrics.volumes.gave_up(Operation::Provision),
            Verdict::InUse(..) | Verdict::Moot(_) => {}
        }
    }

    pub(super) fn end_trace(&self, story: &Story) {
        let now = self.setup.clock.now();
        let saved = wall(now, story.saved);
        let ended = story.bound.map_or(saved, |bound| wall(now, bound));
        let binding = trace::Wait { start: saved, end: ended, reason: "Binding" };
        let waits = if story.bound.is_some() { &[binding][..] } else { &[] };
        let life = trace::Life { began: created(&story.task), ended, outcome: trace::Outcome::Done, waits };
        self.setup.traces.emit_root(&traced_claim(&story.task), &life);
    }

    fn remove_ended(&self, task: &RemoveTask, ended: &Ended) {
        let (metrics, removed) = (&self.setup.metrics, &*task.volume);
        metrics.volumes_queue.finished(&removed.name);
        if matches!(ended.verdict, Verdict::Failed(_, Some(_)) | Verdict::InUse(_, Some(_))) {
            metrics.volumes_queue.retried();
        }
        if !matches!(task.job, Job::Delete(_)) {
            return;
        }
        let class = removed.class.as_deref().unwrap_or_default();
        let trace = self.setup.traces.exported(&removed.uid);
        metrics.volumes.delete_finished(class, counted(&ended.verdict), ended.took, trace);
        match &ended.verdict {
            Verdict::Succeeded => {
                let began = wall(self.setup.clock.now(), ended.wanted);
                let (ended, outcome) = (SystemTime::now(), trace::Outcome::Done);
                let life = trace::Life { began, ended, outcome, waits: &[] };
                self.setup.traces.emit_deletion_root(&traced_volume(removed), &life);
            }
            Verdict::Failed(_, None) | Verdict::InUse(_, None) => metrics.volumes.gave_up(Operation::Delete),
            Verdict::Failed(_, Some(_)) | Verdict::InUse(_, Some(_)) | Verdict::Moot(_) => {}
        }
    }

    pub(super) fn show(&mut self) {
        let (metrics, name) = (&self.setup.metrics, &*self.setup.provisioner);
        for (kind, objects) in self.arbiter.world().sizes() {
            metrics.cluster.cached(kind.as_str(), objects, objects * bytes_of(kind));
        }
        let counts = self.arbiter.pending_by_reason();
        self.shown.extend(counts.keys());
        for reason in &self.shown {
            metrics.volumes.pending(name, reason, counts.get(reason).copied().unwrap_or_default());
        }
    }
}

/// How a kind of operation is called in the log.
struct Words {
    done: &'static str,
    doing: &'static str,
    /// Its success is worth a line for everybody.
    is_outcome: bool,
}

impl Words {
    const fn of(task: &Task) -> Self {
        let (done, doing, is_outcome) = match task {
            Task::Provision(_) => ("provisioned", "provisioning", true),
            Task::Orphan(_) => ("removed an orphan", "removing an orphan", true),
            Task::Remove(RemoveTask { job, .. }) => match job {
                Job::Delete(_) => ("removed", "removing", true),
                Job::Keep => ("kept the asset", "keeping the asset", true),
                Job::Spare => ("spared the asset", "sparing the asset", true),
                Job::Strip => ("took the finalizer off", "taking the finalizer off", false),
                Job::Adopt => ("put the finalizer on", "putting the finalizer on", false),
            },
        };
        Self { done, doing, is_outcome }
    }
}

/// An instant on our clock as the wall clock tells it.
fn wall(now: BootTime, at: BootTime) -> SystemTime {
    let wall = SystemTime::now();
    wall.checked_sub(now.saturating_since(at)).unwrap_or(wall)
}

fn created(task: &ProvisionTask) -> SystemTime {
    SystemTime::UNIX_EPOCH + seconds(task.claim.created)
}

/// What one cached object takes, measured; the metric of bytes is made from it.
const fn bytes_of(kind: Kind) -> usize {
    match kind {
        Kind::Claims => 600,
        Kind::Volumes => 560,
        Kind::Classes => 2500,
        Kind::Nodes => 1500,
    }
}

const fn counted(verdict: &Verdict) -> Counted {
    match verdict {
        Verdict::Succeeded => Counted::Succeeded,
        Verdict::Failed(..) => Counted::Failed,
        Verdict::InUse(..) | Verdict::Moot(_) => Counted::Neither,
    }
}

fn seconds(since_1970: i64) -> Duration {
    Duration::from_secs(u64::try_from(since_1970).unwrap_or_default())
}

/// The kind of a claim's data source, as the Go library labels its metrics.
fn source_of(claim: &Claim) -> &str {
    let spec = claim.whole.as_ref().and_then(|whole| whole.spec.as_ref());
    spec.and_then(|spec| spec.data_source.as_ref()).map_or("", |source| &source.kind)
}

fn traced_claim(task: &ProvisionTask) -> trace::Claim<'_> {
    trace::Claim {
        namespace: &task.claim.namespace,
        name: &task.claim.name,
        uid: &task.claim.uid,
        class: &task.class.name,
        volume: &task.name,
    }
}

fn traced_volume(volume: &Volume) -> trace::Volume<'_> {
    trace::Volume {
        name: &volume.name,
        uid: &volume.uid,
        class: volume.class.as_deref().unwrap_or_default(),
        provisioning: volume.traceparent.as_deref(),
    }
}
