//! The Arbiter actor: feeds the [`Arbiter`] and carries its effects out. What it tells of them is in
//! `telling`.

mod telling;

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::Span;

use super::{Arbiter, Effect, Key, Rules, repeats::Repeats};
use crate::{
    actors::{
        recorder::Record,
        volume::{Begin, Desk, Outcome, Stop, Task, VolumeActor},
    },
    clock::{self, BootTime, Clock},
    cluster::watch,
    lease::LeaderGuard,
    lifecycle::objects::{Claim, Class, Node, Version, Volume},
    provisioner::Asset,
    telemetry::{health::Health, metrics::Metrics, trace::Traces},
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

/// The API server's store went back in time: forget what was known of it, and wait until it was listed anew.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Forget;

impl Handler<Forget> for ArbiterActor {
    type Result = ();

    fn handle(&mut self, _: Forget, ctx: &mut Self::Context) {
        self.arbiter.forget_all(self.setup.clock.now());
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
