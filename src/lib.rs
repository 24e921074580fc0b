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
pub mod backends;
pub mod cli;
pub mod clock;
pub mod cluster;
mod connection;
pub mod controller;
mod known_bugs;
pub mod lease;
pub mod lifecycle;
mod nearest;
pub mod options;
pub mod provisioner;
mod quantity;
pub mod telemetry;

pub use controller::{ProvisionController, ProvisionControllerBuilder, RunError};
pub use options::{ControllerOptions, InvalidOption, LeaderElectionOptions};
pub use provisioner::{DeleteError, IgnoredError, ProvisionError, Provisioner, ReclaimPolicy, VolumeOptions};

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
