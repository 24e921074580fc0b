//! A leader-elected, highly available volume provisioner controller for Kubernetes.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

pub mod clock;
pub mod lease;
pub mod provisioner;
