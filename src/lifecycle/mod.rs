//! Pure decisions: what to do with a claim or a volume, how its PV is built, when to try again, and what to
//! tell who asks why.
//!
//! Nothing here does IO, reads a clock, or knows an actor. The only neighbour it knows is the contract
//! ([`crate::provisioner`]), whose words it speaks.

pub mod claim;
pub mod explain;
pub mod names;
pub mod objects;
pub mod pv;
pub mod retry;
pub mod tell;
pub mod volume;
