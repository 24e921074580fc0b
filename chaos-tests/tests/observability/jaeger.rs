//! What Jaeger has of a trace, as its query API tells it.

use std::time::Duration;

use chaos_tests::{control_plane::Jaeger, http};
use serde_json::Value;

use crate::eventually;

/// One span.
#[derive(Clone, Debug)]
pub(crate) struct Span(Value);

/// The trace of the object with this UID, once it `is_complete`.
pub(crate) async fn trace_of(jaeger: &Jaeger, uid: &str, is_complete: impl Fn(&[Span]) -> bool) -> Vec<Span> {
    let url = jaeger.data_of(uid);
    eventually(&format!("the spans of {url}"), async || {
        let answer = http::get(&url).await.unwrap();
        let trace: Value = serde_json::from_str(&answer.body).ok()?;
        let spans = trace.pointer("/data/0/spans")?.as_array()?;
        let spans: Vec<Span> = spans.iter().cloned().map(Span).collect();
        is_complete(&spans).then_some(spans)
    })
    .await
}

/// The spans of this name.
pub(crate) fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name() == name).collect()
}

/// The only span of this name.
pub(crate) fn only<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    match named(spans, name)[..] {
        [span] => span,
        ref found => panic!("{} spans {name:?} in {spans:#?}", found.len()),
    }
}

impl Span {
    pub(crate) fn name(&self) -> &str {
        self.0["operationName"].as_str().unwrap()
    }

    pub(crate) fn id(&self) -> &str {
        self.0["spanID"].as_str().unwrap()
    }

    /// The other spans that it refers to, by how (`CHILD_OF`, `FOLLOWS_FROM`): trace and span.
    fn references(&self, how: &str) -> Vec<(&str, &str)> {
        let references = self.0["references"].as_array().into_iter().flatten();
        let these = references.filter(|reference| reference["refType"] == how);
        these.map(|it| (it["traceID"].as_str().unwrap(), it["spanID"].as_str().unwrap())).collect()
    }

    pub(crate) fn parent(&self) -> Option<&str> {
        self.references("CHILD_OF").first().map(|(_, span)| *span)
    }

    /// The spans of other traces that it links to: trace and span.
    pub(crate) fn links(&self) -> Vec<(&str, &str)> {
        self.references("FOLLOWS_FROM")
    }

    /// An attribute as text.
    pub(crate) fn tag(&self, key: &str) -> Option<String> {
        let tag = self.0["tags"].as_array()?.iter().find(|tag| tag["key"] == key)?;
        Some(tag["value"].as_str().map_or_else(|| tag["value"].to_string(), str::to_owned))
    }

    /// Since 1970.
    pub(crate) fn start(&self) -> Duration {
        Duration::from_micros(self.0["startTime"].as_u64().unwrap())
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_micros(self.0["duration"].as_u64().unwrap())
    }

    pub(crate) fn end(&self) -> Duration {
        self.start() + self.duration()
    }
}
