//! Leadership: kube-leader-election made safe, the guard that every write passes, and its epoch.

mod guard;

pub use guard::{Epoch, LeaderGuard, NotLeading};
