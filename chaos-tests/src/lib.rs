//! A real control plane on loopback for tests, demo, chaos and benchmarks, and what they share to use it.
//!
//! Nothing here is part of the product: the product is run as the program that users run.
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

pub mod binaries;
pub mod browser;
pub mod chaos;
pub mod clock;
pub mod cluster;
pub mod control_plane;
pub mod demo;
mod directory;
pub mod history;
pub mod http;
mod janitor;
pub mod ledger;
pub mod manifests;
pub mod nemesis;
pub mod ports;
pub mod process;
pub mod procfs;
pub mod product;
pub mod proxy;
pub mod replica;
pub mod scrape;
pub mod wait;
