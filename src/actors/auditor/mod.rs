//! The audit of orphans: what a survey looks at. What is an orphan is decided in `lifecycle::orphan`;
//! `actor.rs` runs surveys and remembers suspects.

mod actor;
mod survey;

pub use self::{
    actor::{AuditorActor, Setup},
    survey::{Subject, Survey, protection},
};
