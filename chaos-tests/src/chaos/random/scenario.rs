//! The scenarios: which families of faults each draws from, and what its cluster is like.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Faults of one kind of cause. Those of a family come one after the other, those of several side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Replicas that die, end, stand still and start again.
    Replicas,
    /// Requests that are cut, delayed or refused, and answers that are lost.
    Api,
    /// Watches that freeze, end, or fall silent.
    Watches,
    /// A standby whose view is frozen takes over.
    Stale,
    /// The parts of the control plane die and stand still.
    ControlPlane,
    /// An older state of etcd is put back.
    Restore,
    /// Wall clocks that are wrong, jump and run at the wrong rate.
    Clocks,
    /// Networks that drop and reject.
    Network,
    /// Too few files.
    Limits,
    /// A backend that hangs, lies, crashes, is slow, or goes on after its call.
    Backend,
}

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Replicas die, end, stand still around the length of the lease, and start again
    Replicas,
    /// Requests are cut before and after they are done, delayed and refused; the lease's are slow
    Api,
    /// Watches freeze, lag, end, expire, and fall silent with their connection open
    Watches,
    /// A replica whose view of claims, volumes or the Lease is frozen takes over
    Stale,
    /// API server, etcd and controller manager die and stand still; etcd forgets its past
    ControlPlane,
    /// An older state of etcd is put back
    Restore,
    /// The wall clocks of replicas are wrong, jump, and run at the wrong rate
    Clocks,
    /// The network of a replica drops or rejects what it sends
    Network,
    /// A replica may open few files
    Limits,
    /// The backend hangs, lies, crashes, is slow, and goes on after its call
    Backend,
    /// All of these but the older state of etcd, side by side
    Everything,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Replicas,
        Self::Api,
        Self::Watches,
        Self::Stale,
        Self::ControlPlane,
        Self::Restore,
        Self::Clocks,
        Self::Network,
        Self::Limits,
        Self::Backend,
        Self::Everything,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replicas => "replicas",
            Self::Api => "api",
            Self::Watches => "watches",
            Self::Stale => "stale",
            Self::ControlPlane => "control-plane",
            Self::Restore => "restore",
            Self::Clocks => "clocks",
            Self::Network => "network",
            Self::Limits => "limits",
            Self::Backend => "backend",
            Self::Everything => "everything",
        }
    }

    /// What it draws from.
    #[must_use]
    pub const fn families(self) -> &'static [Family] {
        match self {
            Self::Replicas => &[Family::Replicas],
            Self::Api => &[Family::Api],
            Self::Watches => &[Family::Watches],
            Self::Stale => &[Family::Stale],
            Self::ControlPlane => &[Family::ControlPlane],
            Self::Restore => &[Family::Restore],
            Self::Clocks => &[Family::Clocks],
            Self::Network => &[Family::Network],
            Self::Limits => &[Family::Limits],
            Self::Backend => &[Family::Backend],
            Self::Everything => &[
                Family::Replicas,
                Family::Api,
                Family::Watches,
                Family::Stale,
                Family::ControlPlane,
                Family::Clocks,
                Family::Network,
                Family::Limits,
                Family::Backend,
            ],
        }
    }

    /// How many replicas there are. Of two, the other one takes over for certain.
    #[must_use]
    pub const fn replicas(self) -> usize {
        match self {
            Self::Replicas | Self::Network | Self::Everything => 3,
            _ => 2,
        }
    }
}
