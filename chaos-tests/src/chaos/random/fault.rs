//! Faults as a plan tells them: what breaks, whose it is, from when to when. They are drawn in `draw`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{binaries::Program, nemesis::network};

/// A fault of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Counts the faults of a run.
    pub number: usize,
    /// When it begins, in milliseconds from the beginning of the run.
    pub from: u64,
    /// When it ends.
    pub to: u64,
    /// Whom it befalls.
    pub target: Target,
    /// What it is.
    pub act: Act,
}

/// Whom a fault befalls. Who leads is known only when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The replica that holds the Lease.
    Leader,
    /// The first replica that does not.
    Standby,
    /// This replica.
    Replica(usize),
    /// The API server.
    ApiServer,
    /// Its memory.
    Etcd,
    /// Who binds.
    ControllerManager,
    /// All calls of the backend.
    Backend,
}

impl Target {
    /// The part of the control plane that it is, if it is one.
    #[must_use]
    pub const fn program(self) -> Option<Program> {
        match self {
            Self::ApiServer => Some(Program::KubeApiserver),
            Self::Etcd => Some(Program::Etcd),
            Self::ControllerManager => Some(Program::KubeControllerManager),
            Self::Leader | Self::Standby | Self::Replica(_) | Self::Backend => None,
        }
    }
}

/// What breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// SIGKILL, and a new start in the end; of a replica, perhaps with the programs that it runs.
    Kill {
        /// Whether they die too, as in the end of a container.
        programs: bool,
    },
    /// SIGTERM, and a new start in the end.
    Terminate,
    /// SIGSTOP, and SIGCONT in the end.
    Pause,
    /// Requests of this verb about this resource meet this fate.
    Requests {
        /// `create`, `patch`, …
        verb: String,
        /// The kind of object, in the plural.
        resource: String,
        /// What happens to them.
        fate: Fate,
        /// Only to the first so many.
        first: Option<usize>,
    },
    /// Watches of this resource show nothing.
    Freeze(String),
    /// Watches of this resource never show anything again, and nobody is told.
    HalfOpen(String),
    /// Watches of this resource end.
    Cut(String),
    /// Watches of this resource end, and new ones are told that their past is forgotten.
    Expire(String),
    /// Watches of this resource show everything so many milliseconds late.
    Late(String, u64),
    /// Etcd forgets its past.
    Compact,
    /// Etcd forgets its past, and the API server too: it is started again.
    Forget,
    /// What etcd holds in the beginning is put back in the end.
    Restore,
    /// The wall clock is wrong by so many seconds, and from then on runs at this rate, in percent.
    Clock {
        /// Seconds.
        offset: i64,
        /// Percent; 100 is right.
        rate: u32,
    },
    /// All clocks of the replica's machine run at this rate, in percent, from its first start to its end.
    Crystal(u32),
    /// Its network loses packets.
    Wire(Wire),
    /// It may open so many files more than it has open.
    Files(u64),
    /// It may map so many bytes more than it has mapped.
    Memory(u64),
    /// Calls of this operation go so.
    Calls {
        /// `provision`, `delete`, `keep` or `list`.
        operation: String,
        /// How.
        conduct: Manner,
        /// Only the first so many of each volume.
        first: Option<usize>,
    },
}

/// How packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// All, in silence.
    Drop,
    /// What it sends, in silence.
    DropOut,
    /// What is sent to it, in silence.
    DropIn,
    /// All, and whoever sends is told.
    Reject,
}

impl Wire {
    /// In the words of the nemesis.
    #[must_use]
    pub const fn cut(self) -> (network::Way, network::Manner) {
        use network::{Manner, Way};
        match self {
            Self::Drop => (Way::Both, Manner::Drop),
            Self::DropOut => (Way::Out, Manner::Drop),
            Self::DropIn => (Way::In, Manner::Drop),
            Self::Reject => (Way::Both, Manner::Reject),
        }
    }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// The server never sees it.
    CutBefore,
    /// The server does it; the answer is lost.
    CutAfter,
    /// It comes so many milliseconds late.
    Delay(u64),
    /// The server never sees it; the answer has this status.
    Answer(u16),
}

/// How a call of the backend goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manner {
    /// It does nothing, and hangs.
    Hang,
    /// It does its work, and hangs.
    HangAfter,
    /// It does nothing, and dies.
    Die,
    /// It does its work, and dies.
    DieAfter,
    /// It does its work, and what it says is no answer.
    Garble,
    /// It does its work, and says more than anybody reads.
    Flood,
    /// It does its work, and says that it made less than was asked for.
    Belittle,
    /// It does nothing, and says that it failed.
    Fail,
    /// It does its work, and says that it failed: a lie.
    Lie,
    /// It does nothing, and says that it is still at it.
    Background,
    /// It does its work, and says that it is still at it.
    BackgroundAfter,
    /// It does nothing, and says that it knows nothing.
    NoChange,
    /// It takes so many milliseconds.
    Slow(u64),
    /// Its work is done so many milliseconds later, whether the call lives or not.
    Linger(u64),
}

impl Act {
    /// Its row in the report.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Kill { .. } => "kill".to_owned(),
            Self::Terminate => "term".to_owned(),
            Self::Pause => "pause".to_owned(),
            Self::Requests { resource, fate: Fate::Delay(_), .. } if resource == "leases" => {
                "slow-lease".to_owned()
            }
            Self::Requests { fate, .. } => fate.to_string(),
            Self::Freeze(resource) => format!("freeze-{resource}"),
            Self::HalfOpen(_) => "half-open-watch".to_owned(),
            Self::Cut(_) => "cut-watch".to_owned(),
            Self::Expire(_) => "expire-watch".to_owned(),
            Self::Late(resource, _) => format!("delay-{resource}"),
            Self::Compact => "compact".to_owned(),
            Self::Forget => "restart-compact".to_owned(),
            Self::Restore => "restore".to_owned(),
            Self::Clock { rate: 100, .. } => "clock-step".to_owned(),
            Self::Clock { .. } | Self::Crystal(_) => "clock-rate".to_owned(),
            Self::Wire(Wire::Reject) => "network-reject".to_owned(),
            Self::Wire(_) => "network-drop".to_owned(),
            Self::Files(_) => "limit-files".to_owned(),
            Self::Memory(_) => "limit-memory".to_owned(),
            Self::Calls { conduct, .. } => format!("backend-{conduct}"),
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutBefore => f.write_str("cut-before"),
            Self::CutAfter => f.write_str("cut-after"),
            Self::Delay(_) => f.write_str("delay"),
            Self::Answer(status) => write!(f, "answer-{status}"),
        }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hang | Self::HangAfter => "hangs",
            Self::Die | Self::DieAfter => "crashes",
            Self::Garble | Self::Flood | Self::Belittle | Self::Lie => "lies",
            Self::Fail | Self::Background | Self::BackgroundAfter | Self::NoChange => "fails",
            Self::Slow(_) => "slow",
            Self::Linger(_) => "lingers",
        })
    }
}
