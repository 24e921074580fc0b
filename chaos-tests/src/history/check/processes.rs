//! To come.
use super::{Bounds, Reading, Verdict};
pub(super) const fn nobody_ends(_: &Reading<'_>, _: &Bounds, _: &mut Verdict) {}
pub(super) const fn nothing_grows(_: &Reading<'_>, _: &Bounds, _: &mut Verdict) {}
