//! One trace per volume: the spans of provisioning and of deleting, with the same ids on every replica.
//!
//! The provisioning's trace id is the claim's UID, the deletion's that of the volume, and the deletion
//! links to the provisioning. Attempts hang under a root whose id is derived too; whoever finishes the
//! volume writes the root last. How spans get out is `export`'s business.

mod context;
mod ids;

use std::time::SystemTime;

use opentelemetry::{
    Context, KeyValue,
    trace::{
        Link, Span as _, SpanBuilder, SpanContext, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
        Tracer,
    },
};
use opentelemetry_sdk::trace::SdkTracer;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

pub(crate) use self::ids::{VolumeIds, VolumeSampler};
pub use self::{
    context::{below_current, exported, parse_traceparent, traceparent_of},
    ids::{root_span_id, trace_id_of},
};

/// The claim that a provisioning is for.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID, which is the trace id.
    pub uid: &'a str,
    /// Its class.
    pub class: &'a str,
    /// The name of the volume that is made for it.
    pub volume: &'a str,
}

/// The volume that a deletion is for.
#[derive(Clone, Copy, Debug)]
pub struct Volume<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UID, which is the trace id.
    pub uid: &'a str,
    /// Its class.
    pub class: &'a str,
    /// The `traceparent` that its provisioning left on it.
    pub provisioning: Option<&'a str>,
}

/// Who tries, and how often it was tried before.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The leadership's epoch.
    pub epoch: u64,
    /// The leader's identity, as its Lease has it.
    pub identity: &'a str,
    /// 1 for the first attempt.
    pub number: u32,
}

/// A whole operation, once it is over.
#[derive(Clone, Copy, Debug)]
pub struct Life<'a> {
    /// When the user began to wait: the creation of the claim, or the release of the volume.
    pub began: SystemTime,
    /// When it was over.
    pub ended: SystemTime,
    /// What came of it.
    pub outcome: Outcome<'a>,
    /// What was waited for in between.
    pub waits: &'a [Wait],
}

/// What came of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// What was wanted.
    Done,
    /// It ended otherwise.
    Failed {
        /// The reason, as events have it.
        reason: &'a str,
        /// The same for people.
        message: &'a str,
    },
}

/// A time in which nothing could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// From when.
    pub start: SystemTime,
    /// Until when.
    pub end: SystemTime,
    /// What was waited for, one word of a fixed set.
    pub reason: &'static str,
}

/// Makes the spans of volumes. Clones are cheap; without an exporter nothing is made but what logs need.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<On>);

#[derive(Clone, Debug)]
struct On {
    tracer: SdkTracer,
    sampler: VolumeSampler,
}

impl Traces {
    /// Nothing is exported.
    #[must_use]
    pub const fn off() -> Self {
        Self(None)
    }

    pub(crate) const fn to(tracer: SdkTracer, sampler: VolumeSampler) -> Self {
        Self(Some(On { tracer, sampler }))
    }

    /// The trace of the object with this UID, if it is exported: for exemplars and events.
    #[must_use]
    pub fn exported(&self, uid: &str) -> Option<TraceId> {
        let trace = trace_id_of(uid);
        self.0.as_ref().filter(|on| on.sampler.keeps(trace)).map(|_| trace)
    }

    /// One attempt to provision, under the root of the claim's trace.
    #[must_use]
    pub fn attempt_span(&self, claim: &Claim<'_>, attempt: &Attempt<'_>) -> Span {
        let trace = trace_id_of(claim.uid);
        let span = tracing::info_span!(
            parent: None,
            "provision attempt",
            claim = %format_args!("{}/{}", claim.namespace, claim.name),
            volume = claim.volume,
            epoch = whole(attempt.epoch),
            attempt = i64::from(attempt.number),
            trace_id = %trace,
        );
        if let Some(on) = &self.0 {
            on.hang_under_root(&span, trace);
            describe(&span, claim_attributes(claim).into_iter().chain([identity(attempt)]));
        }
        span
    }

    /// One attempt to delete, under the root of the volume's own trace, linked to its provisioning.
    #[must_use]
    pub fn deletion_span(&self, volume: &Volume<'_>, attempt: &Attempt<'_>) -> Span {
        let trace = trace_id_of(volume.uid);
        let span = tracing::info_span!(
            parent: None,
            "delete attempt",
            volume = volume.name,
            epoch = whole(attempt.epoch),
            attempt = i64::from(attempt.number),
            trace_id = %trace,
        );
        if let Some(on) = &self.0 {
            on.hang_under_root(&span, trace);
            describe(&span, volume_attributes(volume).into_iter().chain([identity(attempt)]));
            if let Some(provisioning) = volume.provisioning.and_then(parse_traceparent) {
                span.add_link(provisioning);
            }
        }
        span
    }

    /// Work on a volume that is neither its provisioning nor its deletion: in the log only.
    #[must_use]
    pub fn upkeep_span(&self, volume: &str, attempt: &Attempt<'_>) -> Span {
        tracing::info_span!(
            parent: None,
            "upkeep",
            volume,
            epoch = whole(attempt.epoch),
            attempt = i64::from(attempt.number),
        )
    }

    /// An attempt to provision that `began` is under way still. Its own span comes when it ends, and never
    /// if this process dies before that.
    pub fn underway(&self, claim: &Claim<'_>, attempt: &Attempt<'_>, began: SystemTime) {
        let Some(on) = &self.0 else { return };
        let builder = SpanBuilder::from_name("provision attempt under way")
            .with_attributes(claim_attributes(claim).into_iter().chain(attempt_attributes(attempt)));
        on.emit_child(trace_id_of(claim.uid), builder, began, SystemTime::now());
    }

    /// The same for an attempt to delete.
    pub fn deletion_underway(&self, volume: &Volume<'_>, attempt: &Attempt<'_>, began: SystemTime) {
        let Some(on) = &self.0 else { return };
        let builder = SpanBuilder::from_name("delete attempt under way")
            .with_attributes(volume_attributes(volume).into_iter().chain(attempt_attributes(attempt)));
        on.emit_child(trace_id_of(volume.uid), builder, began, SystemTime::now());
    }

    /// The object with this UID has waited, under the root of its trace.
    pub fn waited(&self, uid: &str, wait: &Wait) {
        if let Some(on) = &self.0 {
            on.emit_wait(trace_id_of(uid), wait);
        }
    }

    /// The root of a claim's trace, with what was waited for. Once per claim, when it is over.
    pub fn emit_root(&self, claim: &Claim<'_>, life: &Life<'_>) {
        let Some(on) = &self.0 else { return };
        let builder = SpanBuilder::from_name("provision").with_attributes(claim_attributes(claim));
        on.emit(trace_id_of(claim.uid), builder, life);
    }

    /// The root of a volume's deletion, linked to its provisioning. Once per volume, when it is over.
    pub fn emit_deletion_root(&self, volume: &Volume<'_>, life: &Life<'_>) {
        let Some(on) = &self.0 else { return };
        let links = volume.provisioning.and_then(parse_traceparent).map(Link::with_context);
        let builder = SpanBuilder::from_name("delete")
            .with_attributes(volume_attributes(volume))
            .with_links(links.into_iter().collect());
        on.emit(trace_id_of(volume.uid), builder, life);
    }
}

impl On {
    /// The root of `trace` as a parent. Nobody has written it yet, perhaps another replica will.
    fn root_of(&self, trace: TraceId) -> Context {
        let flags = if self.sampler.keeps(trace) { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let root = SpanContext::new(trace, root_span_id(trace), flags, true, TraceState::default());
        Context::new().with_remote_span_context(root)
    }

    fn hang_under_root(&self, span: &Span, trace: TraceId) {
        // It fails only where the span is disabled or goes nowhere, and then there is nothing to hang.
        let _ = span.set_parent(self.root_of(trace));
    }

    fn emit(&self, trace: TraceId, root: SpanBuilder, life: &Life<'_>) {
        if !self.sampler.keeps(trace) {
            return;
        }
        for wait in life.waits {
            self.emit_wait(trace, wait);
        }
        let root = root.with_start_time(life.began);
        let mut span = ids::as_root_of(trace, || self.tracer.build_with_context(root, &Context::new()));
        if let Outcome::Failed { reason, message } = life.outcome {
            span.set_attribute(KeyValue::new(ERROR_TYPE, reason.to_owned()));
            span.set_status(Status::error(message.to_owned()));
        }
        span.end_with_timestamp(life.ended.max(life.began));
    }

    fn emit_wait(&self, trace: TraceId, wait: &Wait) {
        let builder = SpanBuilder::from_name("waiting")
            .with_attributes([KeyValue::new("kube_provisioner.reason", wait.reason)]);
        self.emit_child(trace, builder, wait.start, wait.end);
    }

    /// A span under the root, all of which is known.
    fn emit_child(&self, trace: TraceId, span: SpanBuilder, start: SystemTime, end: SystemTime) {
        if self.sampler.keeps(trace) {
            let span = span.with_start_time(start);
            let mut span = self.tracer.build_with_context(span, &self.root_of(trace));
            span.end_with_timestamp(end.max(start));
        }
    }
}

/// The span's work failed: for the reason that events have, and in words.
pub fn failed(span: &Span, reason: &str, message: &str) {
    span.set_attribute(ERROR_TYPE, reason.to_owned());
    span.set_status(Status::error(message.to_owned()));
}

/// The span's work is over now, whatever is said about it afterwards: a line of the log must not make an attempt
/// end after the root above it.
pub fn ended(span: &Span) {
    span.context().span().end();
}

const ERROR_TYPE: &str = "error.type";

/// What OpenTelemetry's conventions call the facts about a claim.
fn claim_attributes(claim: &Claim<'_>) -> Vec<KeyValue> {
    vec![
        KeyValue::new("k8s.namespace.name", claim.namespace.to_owned()),
        KeyValue::new("k8s.persistentvolumeclaim.name", claim.name.to_owned()),
        KeyValue::new("k8s.persistentvolumeclaim.uid", claim.uid.to_owned()),
        KeyValue::new("k8s.storageclass.name", claim.class.to_owned()),
        KeyValue::new("k8s.persistentvolume.name", claim.volume.to_owned()),
    ]
}

fn volume_attributes(volume: &Volume<'_>) -> Vec<KeyValue> {
    vec![
        KeyValue::new("k8s.persistentvolume.name", volume.name.to_owned()),
        KeyValue::new("k8s.persistentvolume.uid", volume.uid.to_owned()),
        KeyValue::new("k8s.storageclass.name", volume.class.to_owned()),
    ]
}

/// OpenTelemetry has no unsigned numbers: such a field would be exported as text.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn attempt_attributes(attempt: &Attempt<'_>) -> [KeyValue; 3] {
    [
        KeyValue::new("epoch", whole(attempt.epoch)),
        KeyValue::new("attempt", i64::from(attempt.number)),
        identity(attempt),
    ]
}

fn identity(attempt: &Attempt<'_>) -> KeyValue {
    KeyValue::new("kube_provisioner.identity", attempt.identity.to_owned())
}

/// These are attributes of the exported span only: logs have shorter words for them.
fn describe(span: &Span, attributes: impl IntoIterator<Item = KeyValue>) {
    for KeyValue { key, value, .. } in attributes {
        span.set_attribute(key, value);
    }
}

#[cfg(test)]
mod tests;
