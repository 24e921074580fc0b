//! The Recorder actor: takes notes, writes events beside the work, never in its way.

use std::sync::Arc;

use actix::prelude::*;
use k8s_openapi::{api::events::v1::Event, jiff::Timestamp};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::{
    Recorder, Write,
    event::{self, Reporter},
};
use crate::{
    clock::Clock,
    cluster::{CallError, Calls, calls},
    lifecycle::tell::Note,
    telemetry::metrics::Metrics,
};

/// Events written at once.
const WRITES_AT_ONCE: usize = 8;

/// Something to tell.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Record(pub Note);

/// How events get to the API server.
#[derive(Clone)]
pub struct Writer {
    calls: Calls,
    reporter: Reporter,
}

impl Writer {
    /// Writes over `calls`, in the name of the provisioner `controller` and this replica's `instance`.
    pub fn new(calls: Calls, controller: impl Into<String>, instance: impl Into<String>) -> Self {
        Self { calls, reporter: Reporter { controller: controller.into(), instance: instance.into() } }
    }

    async fn write(&self, write: Write) -> Result<(), CallError> {
        match write {
            Write::Create { number, note } => self.create(number, &note).await,
            Write::Count { number, note, count } => match self.count(number, &note, count).await {
                // Events expire after an hour.
                Err(CallError::NotFound { .. }) => self.create(number, &note).await,
                other => other,
            },
        }
    }

    async fn create(&self, number: u64, note: &Note) -> Result<(), CallError> {
        let event = event::create(number, note, &self.reporter, Timestamp::now());
        let what = what(note);
        let body = serde_json::to_vec(&event)
            .map_err(|error| CallError::Rejected { what: what.clone(), message: error.to_string() })?;
        let target = calls::at::<Event>(Some(event::namespace(&note.about)));
        self.calls.send_event(what, target.create(&PostParams::default(), body)).await
    }

    async fn count(&self, number: u64, note: &Note, count: u32) -> Result<(), CallError> {
        let patch = Patch::Merge(json!({ "series": event::series(count, Timestamp::now()) }));
        let name = event::name(number, note, &self.reporter);
        let target = calls::at::<Event>(Some(event::namespace(&note.about)));
        self.calls.send_event(what(note), target.patch(&name, &PatchParams::default(), &patch)).await
    }
}

fn what(note: &Note) -> String {
    format!("tell {} on {}", note.reason.as_str(), note.about.name)
}

/// The Recorder of one provisioner name.
pub struct RecorderActor {
    recorder: Recorder,
    writer: Writer,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    writing: usize,
}

impl RecorderActor {
    /// A Recorder that has told nothing yet.
    #[must_use]
    pub fn new(writer: Writer, clock: Arc<dyn Clock>, metrics: Metrics) -> Self {
        Self { recorder: Recorder::default(), writer, clock, metrics, writing: 0 }
    }

    fn write_more(&mut self, ctx: &mut Context<Self>) {
        while self.writing < WRITES_AT_ONCE
            && let Some(write) = self.recorder.next_write()
        {
            self.writing += 1;
            let (writer, me) = (self.writer.clone(), ctx.address());
            tokio::spawn(async move { me.do_send(Written(writer.write(write).await)) });
        }
        for why in self.recorder.take_dropped() {
            self.metrics.reporting.event_dropped(why);
        }
    }
}

impl Actor for RecorderActor {
    type Context = Context<Self>;
}

impl Handler<Record> for RecorderActor {
    type Result = ();

    fn handle(&mut self, Record(note): Record, ctx: &mut Self::Context) {
        self.recorder.record(note, self.clock.now());
        self.write_more(ctx);
    }
}

/// A write has ended.
#[derive(Message)]
#[rtype(result = "()")]
struct Written(Result<(), CallError>);

impl Handler<Written> for RecorderActor {
    type Result = ();

    fn handle(&mut self, Written(result): Written, ctx: &mut Self::Context) {
        self.writing = self.writing.saturating_sub(1);
        match result {
            Ok(()) => self.metrics.reporting.event_written(),
            Err(error) => {
                self.recorder.lost();
                tracing::debug!(%error, "an event was not written");
            }
        }
        self.write_more(ctx);
    }
}
