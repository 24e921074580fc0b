//! What operators see of real replicas on a real control plane: traces in Jaeger, metrics, logs, probes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cast;
mod jaeger;
mod logs;
mod metrics;
mod page;
mod traces;
