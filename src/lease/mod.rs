//! Leadership: kube-leader-election made safe, the guard that every write passes, and its epoch.
//!
//! [`Campaign`] is the public face. Inside, `machine` decides, `layer` carries its decisions to and from
//! the wire, `desk` feeds it, `contest` and `watching` are the two loops.

mod campaign;
mod contest;
mod desk;
mod guard;
pub mod history;
mod layer;
mod machine;
#[cfg(test)]
mod model;
mod options;
mod status;
#[cfg(test)]
mod tests;
mod timing;
mod trouble;
mod watching;
mod wire;

pub use campaign::{Campaign, CampaignError, Resignation, Resigned, RestoreReport};
pub use guard::{Epoch, LeaderGuard, NotLeading};
pub use options::{CandidateOptions, Identity, LeaseOptions, lease_name};
pub use status::{LeaseState, LeaseStatus, Takeover};
pub use timing::{LeaseTiming, TimingError};
pub use wire::{
    PROVISIONER as PROVISIONER_ANNOTATION, RELEASED_BY as RELEASED_BY_ANNOTATION,
    RESTORED as RESTORED_ANNOTATION, RESTORED_FROM as RESTORED_FROM_ANNOTATION,
};
