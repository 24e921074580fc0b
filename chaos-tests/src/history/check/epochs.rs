//! To come.
use super::{Bounds, Reading, Verdict};
pub(super) const fn effects_have_a_guard(_: &Reading<'_>, _: &Bounds, _: &mut Verdict) {}
pub(super) const fn requests_are_begun(_: &Reading<'_>, _: &Bounds, _: &mut Verdict) {}
pub(super) const fn calls_are_begun(_: &Reading<'_>, _: &Bounds, _: &mut Verdict) {}
