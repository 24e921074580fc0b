//! A model of the protocol, explored exhaustively by stateright: the very machine that production runs,
//! replicas that may be delayed at any step, a store, and whoever else has a hand in it.
//!
//! Verdicts are compared, not step counts. Each row states its bounds.

mod bare;
mod store;
mod table;
mod world;
