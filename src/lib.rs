//! A leader-elected, highly available volume provisioner controller for Kubernetes.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::unreachable
    )
)]

pub mod actors;
pub mod cli;
pub mod backends;
pub mod clock;
pub mod cluster;
pub mod lease;
pub mod lifecycle;
pub mod options;
pub mod provisioner;
pub mod telemetry;
