//! Faults as a plan tells them: what breaks, whose it is, from when to when. Drawn here from chance; done elsewhere.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{chance::Chance, scenario::Family};
use crate::binaries::Program;

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

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const LEASES: &str = "leases";

/// The faults of a family until `span`, one after the other; `sparse` if others come side by side.
pub(super) fn lane(family: Family, chance: &mut Chance, span: u64, sparse: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut at = chance.between(300, 2_000);
    loop {
        let drawn = draw(family, chance);
        let end = at + drawn.iter().map(|(_, to, ..)| *to).max().unwrap_or_default();
        if end > span {
            return faults;
        }
        faults.extend(drawn.into_iter().map(|(from, to, target, act)| Fault {
            number: 0,
            from: at + from,
            to: at + to,
            target,
            act,
        }));
        let pause = chance.between(200, 1_500);
        at = end + if sparse { pause * 4 } else { pause };
    }
}

/// What is drawn at a time: from when to when, counted from its beginning; whom it befalls, and what it is.
type Drawn = (u64, u64, Target, Act);

fn draw(family: Family, chance: &mut Chance) -> Vec<Drawn> {
    match family {
        Family::Replicas => vec![replicas(chance)],
        Family::Api => vec![api(chance)],
        Family::Watches => vec![watches(chance)],
        Family::Stale => stale(chance),
        Family::ControlPlane => vec![control_plane(chance)],
        Family::Backend => vec![backend(chance)],
        Family::Restore | Family::Clocks | Family::Network | Family::Limits => Vec::new(),
    }
}

/// Mostly who leads: others matter when they take over.
fn somebody(chance: &mut Chance) -> Target {
    match chance.between(0, 9) {
        0..=5 => Target::Leader,
        6 | 7 => Target::Standby,
        _ => Target::Replica(usize::try_from(chance.between(0, 2)).unwrap_or_default()),
    }
}

/// A pause is shorter than the hold, between hold and lease, or longer than both.
fn replicas(chance: &mut Chance) -> Drawn {
    let target = somebody(chance);
    let (length, act) = match chance.between(0, 9) {
        0..=3 => (chance.between(50, 2_500), Act::Kill { programs: chance.percent(50) }),
        4 | 5 => (chance.between(50, 2_500), Act::Terminate),
        _ => (chance.one_of(&[600, 1_200, 2_000, 2_400, 2_800, 3_200, 4_500], 3_000), Act::Pause),
    };
    (0, length, target, act)
}

fn api(chance: &mut Chance) -> Drawn {
    let target = somebody(chance);
    let lease = chance.percent(25);
    let (verb, resource) = match lease {
        true => chance.one_of(&[("patch", LEASES), ("get", LEASES)], ("patch", LEASES)),
        false => {
            let all = [
                ("create", VOLUMES),
                ("create", VOLUMES),
                ("create", VOLUMES),
                ("delete", VOLUMES),
                ("patch", VOLUMES),
                ("get", VOLUMES),
                ("get", CLAIMS),
                ("list", CLAIMS),
                ("patch", CLAIMS),
                ("create", "events"),
            ];
            chance.one_of(&all, ("create", VOLUMES))
        }
    };
    let fate = match chance.between(0, 9) {
        0 | 1 => Fate::CutBefore,
        2..=4 => Fate::CutAfter,
        5 | 6 => Fate::Delay(chance.between(100, 3_000)),
        _ => Fate::Answer(chance.one_of(&[409, 429, 403, 500, 503, 504], 500)),
    };
    let first = chance.percent(50).then(|| usize::try_from(chance.between(1, 6)).unwrap_or(1));
    let act = Act::Requests { verb: verb.to_owned(), resource: resource.to_owned(), fate, first };
    (0, chance.between(500, 4_000), target, act)
}

fn watches(chance: &mut Chance) -> Drawn {
    let target = somebody(chance);
    let all = [CLAIMS, VOLUMES, LEASES, "storageclasses"];
    let resource = chance.one_of(&all, CLAIMS).to_owned();
    let (length, act) = match chance.between(0, 9) {
        0..=3 => (chance.between(500, 5_000), Act::Freeze(resource)),
        4 | 5 => (50, Act::Cut(resource)),
        6 | 7 => (chance.between(200, 2_500), Act::Expire(resource)),
        _ => (50, Act::HalfOpen(resource)),
    };
    (0, length, target, act)
}

/// The view of who does not lead stands still at some event; then the leader dies, and it thaws some time after that.
fn stale(chance: &mut Chance) -> Vec<Drawn> {
    let resource = chance.one_of(&[CLAIMS, CLAIMS, VOLUMES, VOLUMES, LEASES], CLAIMS).to_owned();
    let dies = chance.between(300, 2_500);
    let thaws = dies + 3_200 + chance.between(0, 3_000);
    let back = dies + chance.between(200, 3_000);
    let end = if chance.percent(60) { Act::Kill { programs: chance.percent(50) } } else { Act::Terminate };
    vec![(0, thaws, Target::Standby, Act::Freeze(resource)), (dies, back, Target::Leader, end)]
}

fn control_plane(chance: &mut Chance) -> Drawn {
    let all = [Target::ApiServer, Target::ApiServer, Target::Etcd, Target::ControllerManager];
    let target = chance.one_of(&all, Target::ApiServer);
    match chance.percent(60) {
        true => (0, chance.one_of(&[500, 1_500, 2_600, 4_000, 6_000], 2_000), target, Act::Pause),
        false => (0, chance.between(0, 1_500), target, Act::Kill { programs: false }),
    }
}

fn backend(chance: &mut Chance) -> Drawn {
    let operation =
        chance.one_of(&["provision", "provision", "provision", "delete", "delete", "list"], "list");
    let made = [
        Manner::Hang,
        Manner::HangAfter,
        Manner::Die,
        Manner::DieAfter,
        Manner::Garble,
        Manner::Flood,
        Manner::Fail,
        Manner::Lie,
        Manner::Slow(chance.between(200, 5_000)),
    ];
    let provision = [
        Manner::Belittle,
        Manner::Background,
        Manner::BackgroundAfter,
        Manner::NoChange,
        Manner::Linger(chance.between(200, 2_500)),
        Manner::Linger(chance.between(200, 5_000)),
    ];
    let conduct = match operation == "provision" && chance.percent(50) {
        true => chance.one_of(&provision, Manner::Background),
        false => chance.one_of(&made, Manner::Hang),
    };
    let first = chance.percent(60).then(|| usize::try_from(chance.between(1, 3)).unwrap_or(1));
    let act = Act::Calls { operation: operation.to_owned(), conduct, first };
    (0, chance.between(800, 4_000), Target::Backend, act)
}
