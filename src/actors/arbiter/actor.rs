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

use super::{Arbiter, Effect, Ended, Key, Kind, Rules, Verdict};
use crate::{
    actors::{
        recorder::Record,
        volume::{Begin, Desk, Outcome, ProvisionTask, Stop, Task, VolumeActor},
    },
    clock::{self, Clock},
    cluster::watch,
    lease::LeaderGuard,
    lifecycle::objects::{Claim, Class, Node, Version, Volume},
    provisioner::Asset,
    telemetry::{
        health::Health,
        metrics::{Metrics, Operation, Verdict as Counted},
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
    running: HashMap<Key, Addr<VolumeActor>>,
    alarm: Option<SpawnHandle>,
    drained: Vec<oneshot::Sender<()>>,
    /// Reasons that were shown in the gauge, to show them as 0 once nobody waits for them.
    shown: HashSet<&'static str>,
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
                    if let Some(actor) = self.running.get(&key) {
                        actor.do_send(Stop);
                    }
                }
                Effect::Tell(note) => self.desk.recorder.do_send(Record(note)),
                Effect::ReadMark(guard) => self.read_mark(guard, ctx),
                Effect::Ended(ended) => self.ended(&ended),
            }
        }
        self.set_alarm(ctx);
        self.tell_drained();
    }

    fn start(&mut self, task: Task, guard: LeaderGuard, attempt: u32, waited: Duration) {
        let key = task.name().clone();
        match &task {
            Task::Provision(_) => self.setup.metrics.claims_queue.started(&key, waited),
            Task::Remove(_) | Task::Orphan(_) => self.setup.metrics.volumes_queue.started(&key, waited),
        }
        let span = self.span(&task, &guard, attempt);
        let begin = Begin { desk: self.desk.clone(), task, guard, span };
        self.running.insert(key, VolumeActor::begin(begin));
    }

    fn span(&self, task: &Task, guard: &LeaderGuard, number: u32) -> Span {
        let attempt = trace::Attempt { epoch: guard.epoch().number, identity: &self.setup.identity, number };
        match task {
            Task::Provision(task) => self.setup.traces.attempt_span(&traced_claim(task), &attempt),
            Task::Remove(task) => self.setup.traces.deletion_span(&traced_volume(&task.volume), &attempt),
            Task::Orphan(task) => tracing::info_span!("remove orphan", volume = &*task.name),
        }
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

    fn ended(&self, ended: &Ended) {
        match &ended.task {
            Task::Provision(task) => self.provision_ended(task, ended),
            Task::Remove(task) => self.remove_ended(&task.volume, ended),
            Task::Orphan(task) => self.orphan_ended(&task.name, ended),
        }
    }

    fn orphan_ended(&self, asset: &str, ended: &Ended) {
        self.setup.metrics.volumes_queue.finished(asset);
        match &ended.verdict {
            Verdict::Succeeded => {
                self.setup.metrics.backend.orphan_removed(&self.setup.provisioner);
                tracing::info!(asset, took = ?ended.took, "removed an orphan");
            }
            Verdict::Failed(message, _) => tracing::warn!(asset, error = message, "an orphan was not removed"),
            Verdict::Moot(why) => tracing::info!(asset, why, "an orphan was left alone"),
        }
    }

    fn provision_ended(&self, task: &ProvisionTask, ended: &Ended) {
        let (metrics, claim) = (&self.setup.metrics, task.claim.path());
        metrics.claims_queue.finished(&task.name);
        let trace = self.setup.traces.exported(&task.claim.uid);
        let (source, verdict) = (source_of(&task.claim), counted(&ended.verdict));
        metrics.volumes.provision_finished(&task.class.name, source, verdict, ended.took, trace);
        let volume = &*task.name;
        match &ended.verdict {
            Verdict::Succeeded => {
                let created = SystemTime::UNIX_EPOCH + seconds(task.claim.created);
                let waited = SystemTime::now().duration_since(created).unwrap_or_default();
                metrics.volumes.volume_saved(&task.class.name, waited, trace);
                self.end_trace(task, created);
                tracing::info!(claim, volume, took = ?ended.took, "provisioned");
            }
            Verdict::Failed(message, again) => {
                metrics.claims_queue.retried();
                if again.is_none() {
                    metrics.volumes.gave_up(Operation::Provision);
                }
                tracing::warn!(claim, volume, error = message, ?again, "provisioning failed");
            }
            Verdict::Moot(why) => tracing::debug!(claim, volume, why, "provisioning ended without effect"),
        }
    }

    fn end_trace(&self, task: &ProvisionTask, began: SystemTime) {
        let life = trace::Life { began, ended: SystemTime::now(), outcome: trace::Outcome::Done, waits: &[] };
        self.setup.traces.emit_root(&traced_claim(task), &life);
    }

    fn remove_ended(&self, removed: &Volume, ended: &Ended) {
        let (metrics, volume) = (&self.setup.metrics, &*removed.name);
        metrics.volumes_queue.finished(volume);
        let class = removed.class.as_deref().unwrap_or_default();
        let trace = self.setup.traces.exported(&removed.uid);
        metrics.volumes.delete_finished(class, counted(&ended.verdict), ended.took, trace);
        match &ended.verdict {
            Verdict::Succeeded => {
                let now = SystemTime::now();
                let began = now.checked_sub(ended.took).unwrap_or(now);
                let life = trace::Life { began, ended: now, outcome: trace::Outcome::Done, waits: &[] };
                self.setup.traces.emit_deletion_root(&traced_volume(removed), &life);
                tracing::info!(volume, took = ?ended.took, "removed");
            }
            Verdict::Failed(message, again) => {
                metrics.volumes_queue.retried();
                if again.is_none() {
                    metrics.volumes.gave_up(Operation::Delete);
                }
                tracing::warn!(volume, error = message, ?again, "removing failed");
            }
            Verdict::Moot(why) => tracing::debug!(volume, why, "removing ended without effect"),
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

/// A leadership begins (with its guard) or ends.
#[derive(Clone, Message)]
#[rtype(result = "()")]
pub struct LeadershipChanged(pub Option<LeaderGuard>);

impl Handler<LeadershipChanged> for ArbiterActor {
    type Result = ();

    fn handle(&mut self, LeadershipChanged(guard): LeadershipChanged, ctx: &mut Self::Context) {
        self.arbiter.leadership(guard, self.setup.clock.now());
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
        self.running.remove(&key);
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
