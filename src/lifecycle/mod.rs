//! Pure decisions: what to do with a claim or a volume, how its PV is built, when to try again, and what to
//! tell who asks why.
//!
//! Nothing here does IO, reads a clock, or knows an actor. It knows the contract ([`crate::provisioner`]),
//! whose words it speaks, and the type of an instant ([`crate::clock`]), never the present one.

pub mod claim;
pub mod explain;
pub mod fit;
pub mod names;
pub mod objects;
pub mod orphan;
pub mod pv;
pub mod retry;
pub mod tell;
pub mod volume;
