//! The Volume actor: carries out the effects of one [`Operation`] and reports its end.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use actix::prelude::*;
use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::task::JoinHandle;
use tracing::{Instrument, Span};

use super::{Answer, Effect, Operation, Outcome, ProvisionTask, Setting, Step, Task, call};
use crate::{
    actors::{arbiter::Finished, auditor, recorder::Record},
    clock,
    cluster::{CallError, Calls},
    known_bugs::{self, Bug},
    lease::LeaderGuard,
    lifecycle::{claim::Served, objects::Claim, orphan::Spared},
    provisioner::{
        Call, Capabilities, DeleteError, IgnoredError, ProvisionError, Provisioner, VolumeOptions,
    },
    telemetry::{metrics::Metrics, trace},
};

/// What all operations of one provisioner work with.
pub struct Desk {
    /// The backend.
    pub provisioner: Arc<dyn Provisioner>,
    /// What it said it can do.
    pub capabilities: Capabilities,
    /// For whom it works.
    pub served: Arc<Served>,
    /// Names this cluster and provisioner.
    pub installation: Arc<str>,
    /// The longest that a provision call may take.
    pub provision_timeout: Duration,
    /// The longest that a delete or keep call may take.
    pub deletion_timeout: Duration,
    /// The calls to the API server.
    pub calls: Calls,
    /// Where people are told.
    pub recorder: Recipient<Record>,
    /// Where ends are reported.
    pub arbiter: Recipient<Finished>,
    /// What is counted.
    pub metrics: Metrics,
}

/// One operation under one leadership. Lives as long as the operation.
pub struct VolumeActor {
    desk: Arc<Desk>,
    guard: LeaderGuard,
    task: Task,
    span: Span,
    operation: Operation,
    /// The effect under way. Aborting its task cancels a backend call.
    under_way: Option<JoinHandle<()>>,
    /// The leadership ended: nothing more is begun.
    stopping: bool,
}

/// What starts a [`VolumeActor`].
pub struct Begin {
    /// What all operations work with.
    pub desk: Arc<Desk>,
    /// What this one is to achieve.
    pub task: Task,
    /// The permission to act.
    pub guard: LeaderGuard,
    /// The span of this attempt.
    pub span: Span,
}

impl VolumeActor {
    /// Starts an operation; its end comes to the Arbiter as [`Finished`].
    pub fn begin(begin: Begin) -> Addr<Self> {
        let Begin { desk, task, guard, span } = begin;
        let setting = Setting {
            served: desk.served.clone(),
            selective: desk.capabilities.selective,
            traceparent: trace::traceparent_of(&span),
        };
        let (operation, first) = Operation::begin(task.clone(), setting);
        Self::create(|ctx| {
            let mut actor = Self { desk, guard, task, span, operation, under_way: None, stopping: false };
            actor.carry_out(first, ctx);
            actor
        })
    }

    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let work = Work { desk: self.desk.clone(), guard: self.guard.clone(), task: self.task.clone() };
        let me = ctx.address();
        let effect = async move { me.do_send(Answered(call::caught(work.carry_out(effect)).await)) };
        self.under_way = Some(tokio::spawn(effect.instrument(self.span.clone())));
    }

    fn finish(&mut self, outcome: Outcome, ctx: &mut Context<Self>) {
        match &outcome {
            Outcome::Failed(failure) => trace::failed(&self.span, failure.reason.as_str(), &failure.message),
            Outcome::Stopped { .. } => {
                trace::failed(&self.span, "LeadershipEnded", "cut off: the leadership ended");
            }
            _ => {}
        }
        // The attempt is over; the Arbiter says so in the log.
        trace::ended(&self.span);
        self.span = Span::none();
        self.desk.arbiter.do_send(Finished { key: self.task.name().clone(), outcome });
        ctx.stop();
    }
}

impl Actor for VolumeActor {
    type Context = Context<Self>;
}

/// The effect under way has its answer, or panicked with these words: then nobody else would report the operation.
#[derive(Message)]
#[rtype(result = "()")]
struct Answered(Result<Answer, String>);

impl Handler<Answered> for VolumeActor {
    type Result = ();

    fn handle(&mut self, Answered(answer): Answered, ctx: &mut Self::Context) {
        let step = match answer {
            Ok(answer) => self.operation.answer(answer, clock::jitter()),
            Err(panic) => Step::Done(self.operation.broken(&panic)),
        };
        match step {
            Step::Do(_) | Step::TellAndDo(..) if self.stopping => {}
            Step::Do(effect) => self.carry_out(effect, ctx),
            Step::TellAndDo(note, effect) => {
                self.desk.recorder.do_send(Record(note));
                self.carry_out(effect, ctx);
            }
            Step::Done(outcome) => self.finish(outcome, ctx),
        }
    }
}

/// The leadership ends, or the process does: cancel what is under way and report.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Stop;

impl Handler<Stop> for VolumeActor {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        self.stopping = true;
        let Some(under_way) = self.under_way.take() else { return };
        under_way.abort();
        // Reported only once the cancelled call is really gone: then its key may be worked on again.
        let gone = async move { drop(under_way.await) };
        gone.into_actor(self).map(|(), actor, ctx| actor.finish(actor.operation.cut_off(), ctx)).spawn(ctx);
    }
}

/// The effects, each an async call.
struct Work {
    desk: Arc<Desk>,
    guard: LeaderGuard,
    task: Task,
}

impl Work {
    async fn carry_out(&self, effect: Effect) -> Answer {
        let (calls, guard, name) = (&self.desk.calls, &self.guard, self.task.name());
        match effect {
            Effect::ReadClaim { .. } if known_bugs::is(Bug::NoLiveRead) => {
                Answer::Claim(Ok(self.cached_claim()))
            }
            Effect::ReadClaim { namespace, name } => {
                Answer::Claim(calls.read_claim(&namespace, &name).await.map(boxed))
            }
            Effect::ReadVolume => Answer::Volume(calls.read_volume(name).await.map(boxed)),
            Effect::CreateVolume(volume) => {
                Answer::Volume(calls.create_volume(guard, &volume).await.map(|volume| boxed(Some(volume))))
            }
            Effect::DeleteVolume { uid, version } => {
                Answer::Volume(calls.delete_volume(guard, name, &uid, version).await.map(boxed))
            }
            Effect::StripFinalizer { uid, version } => {
                let stripped = calls.strip_finalizer(guard, name, &uid, version).await;
                Answer::Volume(stripped.map(|volume| boxed(Some(volume))))
            }
            Effect::AddFinalizer { uid, version } => {
                let added = calls.add_finalizer(guard, name, &uid, version).await;
                Answer::Volume(added.map(|volume| boxed(Some(volume))))
            }
            Effect::FindUsers => Answer::Users(self.find_users().await),
            Effect::Unselect => self.unselect().await,
            Effect::CallProvision => self.provision().await,
            Effect::CallDelete(volume) => self.delete(volume).await,
            Effect::CallKeep(volume) => self.keep(volume).await,
            Effect::Wait(_) if known_bugs::is(Bug::RequeueAtOnce) => Answer::Waited,
            Effect::Wait(time) => {
                tokio::time::sleep(time).await;
                Answer::Waited
            }
        }
    }

    async fn unselect(&self) -> Answer {
        match &self.task {
            Task::Provision(task) => {
                Answer::Unselected(self.desk.calls.unselect_node(&self.guard, &task.claim).await.map(boxed))
            }
            Task::Remove(_) | Task::Orphan(_) => Answer::Unselected(Ok(None)),
        }
    }

    /// The claim as the cache has it, for the bug that believes it.
    fn cached_claim(&self) -> Option<Box<Claim>> {
        match &self.task {
            Task::Provision(task) => Some(Box::new((*task.claim).clone())),
            Task::Remove(_) | Task::Orphan(_) => None,
        }
    }

    async fn find_users(&self) -> Result<Option<Spared>, CallError> {
        if known_bugs::is(Bug::NoAuditGrace) || known_bugs::is(Bug::NoLiveRead) {
            return Ok(None);
        }
        match &self.task {
            Task::Orphan(task) => auditor::protection(&self.desk.calls, &task.asset).await,
            Task::Provision(_) | Task::Remove(_) => Ok(None),
        }
    }

    async fn provision(&self) -> Answer {
        let Task::Provision(task) = &self.task else { return Answer::NotLeading };
        if self.guard.begin(format_args!("provision {}", self.task.name())).is_err() {
            return Answer::NotLeading;
        }
        let limit = self.desk.provision_timeout;
        let span =
            trace::below_current(|| tracing::debug_span!("backend call", otel.name = "backend provision"));
        let Some(options) = self.volume_options(task, self.call(limit, &span)) else {
            let cause = "internal error: the claim was not kept whole".into();
            return Answer::Provisioned(Err(ProvisionError::NoChange(cause)));
        };
        let provisioner = self.desk.provisioner.clone();
        if !provisioner.should_provision(&options.pvc) {
            return Answer::Provisioned(Err(IgnoredError::new("filtered by should_provision").into()));
        }
        let call = async move { provisioner.provision(options).await.map(Box::new) };
        Answer::Provisioned(
            match call::timed(&self.desk.metrics, "provision", limit, span, call, call::provisioned).await {
                Ok(answer) => answer,
                Err(message) => Err(ProvisionError::Background(message.into())),
            },
        )
    }

    fn volume_options(&self, task: &ProvisionTask, call: Call) -> Option<VolumeOptions> {
        let class = &task.class.whole;
        Some(VolumeOptions {
            persistent_volume_reclaim_policy: task.class.policy,
            pv_name: task.name.to_string(),
            pvc: task.claim.whole.clone()?,
            parameters: class.parameters.clone().unwrap_or_default(),
            storage_class: class.clone(),
            mount_options: class.mount_options.clone().unwrap_or_default(),
            selected_node: task.node.clone(),
            call,
        })
    }

    async fn delete(&self, volume: Arc<PersistentVolume>) -> Answer {
        if self.guard.begin(format_args!("delete {}", self.task.name())).is_err() {
            return Answer::NotLeading;
        }
        let provisioner = self.desk.provisioner.clone();
        if !provisioner.should_delete(&volume) {
            return Answer::Deleted(Err(IgnoredError::new("filtered by should_delete").into()));
        }
        let limit = self.desk.deletion_timeout;
        let span =
            trace::below_current(|| tracing::debug_span!("backend call", otel.name = "backend delete"));
        let call = self.call(limit, &span);
        let deletion = async move { provisioner.delete_with(&volume, &call).await };
        Answer::Deleted(
            match call::timed(&self.desk.metrics, "delete", limit, span, deletion, call::deleted).await {
                Ok(answer) => answer,
                Err(message) => Err(DeleteError::Failed(message.into())),
            },
        )
    }

    async fn keep(&self, volume: Arc<PersistentVolume>) -> Answer {
        if self.guard.begin(format_args!("keep {}", self.task.name())).is_err() {
            return Answer::NotLeading;
        }
        let provisioner = self.desk.provisioner.clone();
        let limit = self.desk.deletion_timeout;
        let span = trace::below_current(|| tracing::debug_span!("backend call", otel.name = "backend keep"));
        let call = self.call(limit, &span);
        let keeping = async move { provisioner.keep(&volume, &call).await.map_err(|e| e.to_string()) };
        Answer::Kept(
            call::timed(&self.desk.metrics, "keep", limit, span, keeping, call::kept)
                .await
                .and_then(|kept| kept),
        )
    }

    fn call(&self, limit: Duration, span: &Span) -> Call {
        Call {
            provisioner: self.desk.served.names.first().cloned().unwrap_or_else(|| "".into()),
            installation: self.desk.installation.clone(),
            epoch: self.guard.epoch().number,
            deadline: SystemTime::now() + limit,
            traceparent: trace::traceparent_of(span),
        }
    }
}

fn boxed<T>(value: Option<T>) -> Option<Box<T>> {
    value.map(Box::new)
}
