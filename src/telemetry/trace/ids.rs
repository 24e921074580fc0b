//! The ids of a volume's trace, derived from a UID so that every replica comes to the same ones without
//! asking; and which traces are kept.
//!
//! The derivations are a contract between versions: during an upgrade old and new replicas write into
//! the same trace. Change none of the constants.

use std::cell::Cell;

use opentelemetry::{
    Context, KeyValue,
    trace::{Link, SpanId, SpanKind, TraceContextExt, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, SamplingDecision, SamplingResult, ShouldSample,
};

/// The trace of the object with this UID: the UUID's 128 bits themselves.
///
/// The API server makes UUIDs only; any other text is hashed (FNV-1a).
#[must_use]
pub fn trace_id_of(uid: &str) -> TraceId {
    let digits = uid.replace('-', "");
    let parsed = if digits.len() == 32 { u128::from_str_radix(&digits, 16).ok() } else { None };
    // Zero is no valid trace id.
    TraceId::from(parsed.unwrap_or_else(|| fnv1a(uid)).max(1))
}

/// The span id of a trace's root, known to all who write children before the root itself is written.
#[must_use]
pub fn root_span_id(trace: TraceId) -> SpanId {
    let (high, low) = halves(trace);
    SpanId::from(scatter(high ^ low.rotate_left(32)).max(1))
}

fn halves(trace: TraceId) -> (u64, u64) {
    let bits = u128::from_be_bytes(trace.to_bytes());
    ((bits >> 64) as u64, bits as u64)
}

fn fnv1a(text: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// Spreads the bits of `value` evenly (the finalizer of splitmix64).
const fn scatter(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

thread_local! {
    /// The ids that the next root span on this thread must have.
    static PLANNED: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Runs `build`, which makes one span without a parent: it becomes the root of `trace`.
pub(crate) fn as_root_of<T>(trace: TraceId, build: impl FnOnce() -> T) -> T {
    PLANNED.set(Some((trace, root_span_id(trace))));
    let built = build();
    PLANNED.set(None);
    built
}

/// Random ids, but for the roots that are planned.
#[derive(Debug, Default)]
pub(crate) struct VolumeIds(RandomIdGenerator);

impl IdGenerator for VolumeIds {
    fn new_trace_id(&self) -> TraceId {
        PLANNED.get().map_or_else(|| self.0.new_trace_id(), |(trace, _)| trace)
    }

    fn new_span_id(&self) -> SpanId {
        PLANNED.get().map_or_else(|| self.0.new_span_id(), |(_, span)| span)
    }
}

/// Keeps a share of the volumes' traces, each whole: the choice depends on the trace id alone, so all
/// replicas with the same share choose alike.
///
/// Spans of no volume (lease traffic, long watches) are never kept. The SDK's own ratio sampler reads the
/// trace id's low half as a number, but in a UUID that half begins with fixed bits: it would keep all
/// traces from a ratio of 0.75 on, and none up to 0.5.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeSampler {
    /// The share, from 0 to 1.
    pub(crate) ratio: f64,
}

impl VolumeSampler {
    /// Whether the trace is kept.
    pub(crate) fn keeps(self, trace: TraceId) -> bool {
        let (high, low) = halves(trace);
        // 53 bits are what an f64 holds exactly: a number from 0 up to, but not including, 1.
        let lot = (scatter(high.wrapping_add(scatter(low))) >> 11) as f64 / (1_u64 << 53) as f64;
        lot < self.ratio
    }
}

impl ShouldSample for VolumeSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        _name: &str,
        _kind: &SpanKind,
        _attributes: &[KeyValue],
        _links: &[Link],
    ) -> SamplingResult {
        // What has no parent begins an unsampled trace, so its children have an unsampled parent.
        let has_parent = parent.is_some_and(|context| context.span().span_context().is_sampled());
        let of_a_volume = has_parent || PLANNED.get().is_some();
        let keep = of_a_volume && self.keeps(trace);
        SamplingResult {
            decision: if keep { SamplingDecision::RecordAndSample } else { SamplingDecision::Drop },
            attributes: Vec::new(),
            trace_state: TraceState::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0af76519-16cd-43dd-8448-eb211c80319c";

    #[test]
    fn a_uid_is_its_trace_id() {
        assert_eq!(trace_id_of(UID).to_string(), "0af7651916cd43dd8448eb211c80319c");
    }

    #[test]
    fn what_is_no_uuid_still_has_one_trace_of_its_own() {
        let odd = trace_id_of("not-a-uuid");
        assert_ne!(odd, TraceId::INVALID);
        assert_eq!(odd, trace_id_of("not-a-uuid"));
        assert_ne!(odd, trace_id_of("not-a-uuie"));
        assert_ne!(trace_id_of("00000000-0000-0000-0000-000000000000"), TraceId::INVALID);
    }

    #[test]
    fn the_derived_ids_never_change_between_versions() {
        assert_eq!(root_span_id(trace_id_of(UID)).to_string(), "963611174cd3c48f");
        assert_eq!(trace_id_of("not-a-uuid").to_string(), "32f0a7f70c3a530392fbc6935a4bdc48");
    }

    #[test]
    fn a_share_of_uuids_is_kept_near_the_ratio_and_alike_everywhere() {
        for ratio in [0.0, 0.1, 0.5, 0.9, 1.0] {
            let sampler = VolumeSampler { ratio };
            let kept = (0..10_000_u64).filter(|n| sampler.keeps(uuid(*n))).count();
            let wanted = ratio * 10_000.0;
            assert!((kept as f64 - wanted).abs() < 200.0, "{ratio}: {kept}");
        }
    }

    /// The n-th of a row of well-formed version 4 UUIDs.
    fn uuid(n: u64) -> TraceId {
        let (high, low) = (scatter(n + 1), scatter(n + 1_000_000));
        let high = high & !0xf000 | 0x4000;
        let low = low & !(0b11 << 62) | 0b10 << 62;
        TraceId::from(u128::from(high) << 64 | u128::from(low))
    }
}
