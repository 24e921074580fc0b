//! The actors: thin shells over plain logic, a folder each. No decision lives in a handler.

pub mod arbiter;
pub mod auditor;
pub mod elector;
pub mod recorder;
#[cfg(test)]
mod simulation;
pub mod volume;
pub mod watcher;
