//! W3C trace contexts as text: what a PV's annotation, a backend and the API server are handed.

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The context of `span` as a `traceparent`; `None` when nothing is exported. The span's parent can't be
/// changed afterwards.
#[must_use]
pub fn traceparent_of(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| write_traceparent(context))
}

/// The trace of `span`, if it is exported: for exemplars.
#[must_use]
pub fn exported(span: &Span) -> Option<TraceId> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_sampled().then(|| context.trace_id())
}

/// The span that `make` makes below the present one; the present one itself where that is not exported, so
/// that spans nobody sees cost nothing.
#[must_use]
pub fn below_current(make: impl FnOnce() -> Span) -> Span {
    let current = Span::current();
    if exported(&current).is_some() { make() } else { current }
}

fn write_traceparent(context: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8())
}

/// Reads a `traceparent`. `None` for what is none: it is a stranger's text, so nothing else is done.
#[must_use]
pub fn parse_traceparent(text: &str) -> Option<SpanContext> {
    let mut parts = text.trim().split('-');
    let version = hex(parts.next()?, 2)?;
    let trace = hex(parts.next()?, 32)?;
    let span = u64::try_from(hex(parts.next()?, 16)?).ok()?;
    let flags = u8::try_from(hex(parts.next()?, 2)?).ok()?;
    // Later versions may append fields; version 00 has none, and ff is no version.
    if version == 0xff || (version == 0 && parts.next().is_some()) {
        return None;
    }
    let flags = TraceFlags::new(flags) & TraceFlags::SAMPLED;
    let context =
        SpanContext::new(TraceId::from(trace), SpanId::from(span), flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

fn hex(text: &str, digits: usize) -> Option<u128> {
    let lowercase = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() != digits || !lowercase {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_reads_back_as_it_was_written() {
        let context = parse_traceparent(GOOD).unwrap();
        assert!(context.is_sampled() && context.is_remote());
        assert_eq!(write_traceparent(&context), GOOD);
    }

    #[test]
    fn a_later_version_may_have_more_fields() {
        assert!(parse_traceparent(&GOOD.replacen("00", "01", 1).replace("-01", "-01-more")).is_some());
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(parse_traceparent(bad), None, "{bad}");
        }
    }

    #[test]
    fn without_an_exporter_there_is_no_traceparent() {
        assert_eq!(traceparent_of(&tracing::info_span!("x")), None);
    }
}
