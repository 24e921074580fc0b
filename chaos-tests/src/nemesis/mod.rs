//! What breaks things: a file for each kind of fault, as building blocks for tests and scenarios.
//!
//! Signals are sent by [`crate::replica`] and [`crate::control_plane`], requests and watches are broken by
//! [`crate::proxy`], the backend by [`crate::ledger`]. When and to whom something happens is the caller's business.

pub mod addresses;
pub mod chance;
pub mod clock;
pub mod limits;
pub mod network;
pub mod store;
