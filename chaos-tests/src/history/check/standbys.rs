//! To come.
use super::{Bounds, Reading, Verdict};
pub(super) const fn are_silent(_: &Reading<'_>, _: &Bounds, _: &mut Verdict) {}
