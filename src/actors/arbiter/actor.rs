//! The Arbiter actor: feeds the [`Arbiter`] and carries its effects out.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::Span;

use super::{Arbiter, Effect, Ended, Key, Kind, Lane, Rules, Story, Verdict, Waited, repeats::Repeats};
use crate::{
    actors::{
        recorder::Record,
        volume::{Begin, Desk, Job, Outcome, ProvisionTask, RemoveTask, Stop, Task, VolumeActor},
    },
    clock::{self, BootTime, Clock},
    cluster::watch,
    lease::LeaderGuard,
    lifecycle::objects::{Claim, Class, Node, Version, Volume},
    provisioner::Asset,
    telemetry::{
        health::Health,
        metrics::{Metrics, Operation, QueueMetrics, Verdict as Counted},
        trace::{self, Traces},
    },
};

/// How often the Arbiter shows that it is alive, and brings its gauges up to date.
const BEAT: Duration = Duration::from_secs(1);
/// How long it may be silent before the process counts as stuck.
const BEAT_DEADLINE: Duration = Duration::from_secs(15);

/// What an Arbiter is made from.
pub struct Setup {
    /// The provisioner name.
    pub provisioner: Arc<str>,
    /// The identity of this replica, for traces.
    pub identity: Arc<str>,
    /// The rules of work.
    pub rules: Rules,
    /// How often everything is looked at again.
    pub resync_period: Duration,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The board that probes read.
    pub health: Health,
    /// What is counted.
    pub metrics: Metrics,
    /// What is traced.
    pub traces: Traces,
}

/// See the module.
pub struct ArbiterActor {
    arbiter: Arbiter,
    desk: Arc<Desk>,
    setup: Setup,
    beat_name: String,
    running: HashMap<Key, Underway>,
    repeats: Repeats,
    alarm: Option<SpawnHandle>,
    drained: Vec<oneshot::Sender<()>>,
    /// Reasons that were shown in the gauge, to show them as 0 once nobody waits for them.
    shown: HashSet<&'static str>,
}

/// An operation under way.
struct Underway {
    actor: Addr<VolumeActor>,
    task: Task,
    span: Span,
    epoch: u64,
    attempt: u32,
    began: BootTime,
    /// Its trace tells already that it is under way.
    told: bool,
}

impl ArbiterActor {
    /// An Arbiter that has seen nothing yet, started. `desk` makes what its operations work with, given
    /// the Arbiter's own address.
    pub fn begin(setup: Setup, desk: impl FnOnce(Recipient<Finished>) -> Desk) -> Addr<Self> {
        Self::create(|ctx| {
            let desk = Arc::new(desk(ctx.address().recipient()));
            Self {
                arbiter: Arbiter::new(desk.served.clone(), setup.rules.clone()),
                desk,
                beat_name: format!("arbiter/{}", setup.provisioner),
                setup,
                running: HashMap::new(),
                repeats: Repeats::default(),
                alarm: None,
                drained: Vec::new(),
                shown: HashSet::new(),
            }
        })
    }

    fn carry_out(&mut self, ctx: &mut Context<Self>) {
        for effect in self.arbiter.take_effects() {
            match effect {
                Effect::Start { task, guard, attempt, waited } => {
                    self.start(task, guard, attempt, waited);
                }
                Effect::Stop(key) => {
                    if let Some(underway) = self.running.get(&key) {
                        underway.actor.do_send(Stop);
                    }
                }
                Effect::Tell(note) => self.desk.recorder.do_send(Record(note)),
                Effect::ReadMark(guard) => self.read_mark(guard, ctx),
                Effect::Ended(ended) => self.ended(&ended),
                Effect::Queued(lane) => self.queue(lane).enqueued(),
                Effect::Unqueued(lane) => self.queue(lane).removed(),
                Effect::Waited(waited) => self.waited(&waited),
                Effect::Over(story) => self.end_trace(&story),
            }
        }
        self.set_alarm(ctx);
        self.tell_drained();
    }

    fn queue(&self, lane: Lane) -> &QueueMetrics {
        match lane {
            Lane::Provision => &self.setup.metrics.claims_queue,
            Lane::Remove | Lane::Tend => &self.setup.metrics.volumes_queue,
        }
    }

    fn start(&mut self, task: Task, guard: LeaderGuard, attempt: u32, waited: Duration) {
        let key = task.name().clone();
        match &task {
            Task::Provision(_) => self.setup.metrics.claims_queue.started(&key, waited),
            Task::Remove(_) | Task::Orphan(_) => self.setup.metrics.volumes_queue.started(&key, waited),
        }
        let epoch = guard.epoch().number;
        let span = self.span(&task, epoch, attempt);
        tracing::debug!(parent: &span, ?waited, "begun");
        let begin = Begin { desk: self.desk.clone(), task: task.clone(), guard, span: span.clone() };
        let (actor, began) = (VolumeActor::begin(begin), self.setup.clock.now());
        self.running.insert(key, Underway { actor, task, span, epoch, attempt, began, told: false });
    }

    fn span(&self, task: &Task, epoch: u64, number: u32) -> Span {
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
    fn tell_underway(&mut self) {
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

    fn waited(&self, waited: &Waited) {
        let now = self.setup.clock.now();
        let (start, end) = (wall(now, waited.start), wall(now, waited.end));
        self.setup.traces.waited(&waited.uid, &trace::Wait { start, end, reason: waited.reason });
    }

    fn read_mark(&self, guard: LeaderGuard, ctx: &mut Context<Self>) {
        let (calls, me) = (self.desk.calls.clone(), ctx.address());
        tokio::spawn(async move {
            match calls.claims_mark().await {
                Ok(mark) => me.do_send(MarkRead { guard, mark }),
                // Without a mark every claim is read live: slower, and as safe.
                Err(error) => tracing::warn!(%error, "claims are read one by one during this leadership"),
            }
        });
    }

    fn ended(&mut self, ended: &Ended) {
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
            Verdict::Moot(_) => {}
        }
    }

    fn end_trace(&self, story: &Story) {
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
        if matches!(ended.verdict, Verdict::Failed(_, Some(_))) {
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
            Verdict::Failed(_, None) => metrics.volumes.gave_up(Operation::Delete),
            Verdict::Failed(_, Some(_)) | Verdict::Moot(_) => {}
        }
    }

    /// One timer at most is set: for the earliest wait that ends.
    fn set_alarm(&mut self, ctx: &mut Context<Self>) {
        if let Some(handle) = self.alarm.take() {
            ctx.cancel_future(handle);
        }
        if let Some(at) = self.arbiter.next_alarm() {
            let wait = at.saturating_since(self.setup.clock.now());
            self.alarm = Some(ctx.run_later(wait, |actor, ctx| {
                actor.alarm = None;
                actor.arbiter.wake(actor.setup.clock.now());
                actor.carry_out(ctx);
            }));
        }
    }

    fn tell_drained(&mut self) {
        if self.arbiter.running() == 0 {
            for waiting in self.drained.drain(..) {
                // Whoever asked may have given up waiting.
                let _ = waiting.send(());
            }
        }
    }

    fn show(&mut self) {
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
        Verdict::Moot(_) => Counted::Neither,
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

impl Actor for ArbiterActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.setup.health.expect_beats(&self.beat_name, BEAT_DEADLINE);
        ctx.run_interval(BEAT, |actor, _| {
            actor.setup.health.beat(&actor.beat_name);
            actor.show();
            actor.tell_underway();
        });
        ctx.run_interval(self.setup.resync_period, |actor, ctx| {
            actor.arbiter.resync(actor.setup.clock.now());
            actor.carry_out(ctx);
        });
    }
}

/// What a watch brought.
#[derive(Clone, Message)]
#[rtype(result = "()")]
pub enum News {
    /// Of claims.
    Claims(Arc<Vec<watch::News<Arc<Claim>>>>),
    /// Of volumes.
    Volumes(Arc<Vec<watch::News<Arc<Volume>>>>),
    /// Of classes.
    Classes(Arc<Vec<watch::News<Arc<Class>>>>),
    /// Of nodes.
    Nodes(Arc<Vec<watch::News<Arc<Node>>>>),
}

impl Handler<News> for ArbiterActor {
    type Result = ();

    fn handle(&mut self, news: News, ctx: &mut Self::Context) {
        let now = self.setup.clock.now();
        self.setup.health.beat(&self.beat_name);
        match news {
            News::Claims(news) => self.arbiter.see_claims(&news, now),
            News::Volumes(news) => self.arbiter.see_volumes(&news, now),
            News::Classes(news) => self.arbiter.see_classes(&news, now),
            News::Nodes(news) => self.arbiter.see_nodes(&news, now),
        }
        self.carry_out(ctx);
    }
}

/// Which of these assets does nothing here know of?
#[derive(Message)]
#[rtype(result = "Vec<Asset>")]
pub struct UnknownAmong(pub Vec<Asset>);

impl Handler<UnknownAmong> for ArbiterActor {
    type Result = MessageResult<UnknownAmong>;

    fn handle(&mut self, UnknownAmong(assets): UnknownAmong, _: &mut Self::Context) -> Self::Result {
        // Before the first lists are complete everything is unknown, which proves nothing.
        let synced = self.arbiter.is_synced();
        MessageResult(if synced { self.arbiter.unknown_among(assets) } else { Vec::new() })
    }
}

/// Remove these assets, which were proven to belong to nothing.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RemoveOrphans(pub Vec<Asset>);

impl Handler<RemoveOrphans> for ArbiterActor {
    type Result = ();

    fn handle(&mut self, RemoveOrphans(orphans): RemoveOrphans, ctx: &mut Self::Context) {
        self.arbiter.remove_orphans(orphans, self.setup.clock.now());
        self.carry_out(ctx);
    }
}

/// A leadership begins or ends.
#[derive(Clone, Message)]
#[rtype(result = "()")]
pub enum LeadershipChanged {
    /// It begins under this guard, after nobody has led for so long.
    Began(LeaderGuard, Duration),
    /// It has ended.
    Ended,
}

impl LeadershipChanged {
    /// The permission to act, if there is one now.
    #[must_use]
    pub fn guard(self) -> Option<LeaderGuard> {
        match self {
            Self::Began(guard, _) => Some(guard),
            Self::Ended => None,
        }
    }
}

impl Handler<LeadershipChanged> for ArbiterActor {
    type Result = ();

    fn handle(&mut self, change: LeadershipChanged, ctx: &mut Self::Context) {
        let now = self.setup.clock.now();
        match change {
            LeadershipChanged::Began(guard, gap) => self.arbiter.lead_after(gap, guard, now),
            LeadershipChanged::Ended => self.arbiter.leadership(None, now),
        }
        self.carry_out(ctx);
    }
}

/// The mark of the leadership under `guard` was read.
#[derive(Message)]
#[rtype(result = "()")]
pub struct MarkRead {
    /// The leadership.
    pub guard: LeaderGuard,
    /// The version of claims at that time.
    pub mark: Version,
}

impl Handler<MarkRead> for ArbiterActor {
    type Result = ();

    fn handle(&mut self, message: MarkRead, _: &mut Self::Context) {
        self.arbiter.mark_read(&message.guard, message.mark);
    }
}

/// An operation has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Finished {
    /// The volume's name.
    pub key: Key,
    /// How.
    pub outcome: Outcome,
}

impl Handler<Finished> for ArbiterActor {
    type Result = ();

    fn handle(&mut self, Finished { key, outcome }: Finished, ctx: &mut Self::Context) {
        self.arbiter.finished(&key, outcome, clock::jitter(), self.setup.clock.now());
        self.carry_out(ctx);
    }
}

/// Start nothing more; answer when all operations under way have ended. With `cancel` they are cut off.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain {
    /// Whether operations under way are cancelled.
    pub cancel: bool,
}

impl Handler<Drain> for ArbiterActor {
    type Result = Pin<Box<dyn Future<Output = ()>>>;

    fn handle(&mut self, Drain { cancel }: Drain, ctx: &mut Self::Context) -> Self::Result {
        let (sender, drained) = oneshot::channel();
        self.arbiter.drain();
        if cancel {
            self.arbiter.stop_all();
        }
        self.drained.push(sender);
        self.carry_out(ctx);
        Box::pin(async move { drop(drained.await) })
    }
}
