//! Whether a claim is to be provisioned now, later, or never; and the one list of reasons.

use std::{fmt, sync::Arc};

use super::objects::{Claim, Class, Phase, Volume};
use crate::provisioner::Capabilities;

/// For whom decisions are made: the provisioner names served, and what the backend can do.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// The provisioner name and its additional names. The first one is the name.
    pub names: Vec<Arc<str>>,
    /// What the backend can do.
    pub capabilities: Capabilities,
    /// The configured instance; volumes of another one are never touched.
    pub instance: Option<Arc<str>>,
    /// Volumes get our finalizer.
    pub finalizer: bool,
}

impl Served {
    /// Whether `name` is one of ours.
    #[must_use]
    pub fn is_ours(&self, name: &str) -> bool {
        self.names.iter().any(|ours| &**ours == name)
    }
}

/// What to do with a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Another provisioner's, or nobody's yet: not kept.
    NotOurs,
    /// It has a volume, or a volume was chosen for it, or it is going away: nothing to do.
    Settled,
    /// It waits for something that is not in our hands.
    Wait(PendingReason),
    /// It can't be provisioned as it is: told once, and looked at again when it or its class changes.
    Refuse(PendingReason),
    /// It is to be provisioned.
    Provision,
}

/// Why a claim that is ours has no volume yet. Events, metrics and explanations all read this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingReason {
    /// Its class does not exist.
    ClassMissing {
        /// The class it names, if it names one.
        class: Option<Arc<str>>,
    },
    /// Its annotation names us, but its class names another provisioner.
    ClassForeign {
        /// The class it names.
        class: Arc<str>,
        /// The provisioner that the class names.
        provisioner: Arc<str>,
    },
    /// Its class waits for the first consumer, and the scheduler has not chosen a node.
    WaitingForConsumer,
    /// kube-controller-manager has not written the provisioner's name on it yet.
    NotNamedYet,
    /// It wants a block volume, which the backend does not make.
    BlockUnsupported,
    /// It has a selector, which the backend does not honour.
    SelectorUnsupported,
    /// It has a data source, which the backend does not read.
    DataSourceUnsupported,
    /// The backend's filter left it alone.
    Filtered,
    /// Its volume was deleted after kube-controller-manager had called it Bound, and before it wrote so on the
    /// claim: it binds no volume that is going away, and releases none whose claim lives.
    VolumeTerminating {
        /// The volume.
        volume: Arc<str>,
    },
}

impl PendingReason {
    /// A bounded word for metrics and the event's reason.
    #[must_use]
    pub const fn category(&self) -> &'static str {
        match self {
            Self::ClassMissing { .. } => "ClassMissing",
            Self::ClassForeign { .. } => "ClassForeign",
            Self::WaitingForConsumer => "WaitingForConsumer",
            Self::NotNamedYet => "NotNamedYet",
            Self::BlockUnsupported => "BlockUnsupported",
            Self::SelectorUnsupported => "SelectorUnsupported",
            Self::DataSourceUnsupported => "DataSourceUnsupported",
            Self::Filtered => "Filtered",
            Self::VolumeTerminating { .. } => "VolumeTerminating",
        }
    }

    /// Whether the claim's owner is told by an event: not where waiting is the ordinary course, nor
    /// where the claim may be another's business.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        !matches!(
            self,
            Self::WaitingForConsumer | Self::NotNamedYet | Self::Filtered | Self::ClassForeign { .. }
        )
    }
}

impl fmt::Display for PendingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClassMissing { class: Some(class) } => {
                write!(f, "storage class {class:?} does not exist; the claim is provisioned as soon as it is created")
            }
            Self::ClassMissing { class: None } => {
                f.write_str("the claim names no storage class; name one in spec.storageClassName")
            }
            Self::ClassForeign { class, provisioner } => {
                write!(f, "storage class {class:?} belongs to provisioner {provisioner:?}")
            }
            Self::WaitingForConsumer => {
                f.write_str("the storage class waits for the first consumer; create a pod that uses the claim")
            }
            Self::NotNamedYet => {
                f.write_str("kube-controller-manager has not handed the claim to this provisioner yet")
            }
            Self::BlockUnsupported => f.write_str(
                "this provisioner does not make block volumes; create the claim with volumeMode Filesystem",
            ),
            Self::SelectorUnsupported => f.write_str(
                "this provisioner does not honour spec.selector; create the claim without it, or a volume with those labels",
            ),
            Self::DataSourceUnsupported => f.write_str(
                "this provisioner does not fill volumes from spec.dataSource; create the claim without it",
            ),
            Self::Filtered => f.write_str("the backend leaves this claim to another provisioner"),
            Self::VolumeTerminating { volume } => write!(
                f,
                "volume {volume} was deleted before this claim was bound to it, and is left alone; delete the claim, and \
                 the volume goes with its data; to save the data, set the volume's reclaim policy to Retain first"
            ),
        }
    }
}

/// Decides about `claim`, whose class is `class` (`None`: not seen), and whose volume is `volume` (`None`: it
/// has none yet).
///
/// Differs from the Go library in three points: a claim with a deletionTimestamp is left alone, a
/// missing class is told, and so are a selector or a data source that the backend can't honour.
#[must_use]
pub fn decide(claim: &Claim, class: Option<&Class>, volume: Option<&Volume>, served: &Served) -> Decision {
    if !is_ours(claim, class, served) {
        return Decision::NotOurs;
    }
    if claim.volume_name.is_some() || claim.deleting {
        return Decision::Settled;
    }
    if let Some(volume) = volume {
        return match (volume.phase, volume.deleting) {
            (Phase::Bound, true) => {
                Decision::Wait(PendingReason::VolumeTerminating { volume: volume.name.clone() })
            }
            _ => Decision::Settled,
        };
    }
    let Some(class) = class else {
        return Decision::Wait(PendingReason::ClassMissing { class: claim.class.clone() });
    };
    if !served.is_ours(&class.provisioner) {
        let (class, provisioner) = (class.name.clone(), class.provisioner.clone());
        return Decision::Wait(PendingReason::ClassForeign { class, provisioner });
    }
    if class.wait_for_consumer && claim.selected_node.is_none() {
        return Decision::Wait(PendingReason::WaitingForConsumer);
    }
    match unsupported(claim, served.capabilities) {
        Some(reason) => Decision::Refuse(reason),
        None if claim.provisioner.is_none() => Decision::Wait(PendingReason::NotNamedYet),
        None => Decision::Provision,
    }
}

/// Ours is a claim whose annotation names us, or one without an annotation whose class does.
fn is_ours(claim: &Claim, class: Option<&Class>, served: &Served) -> bool {
    match (&claim.provisioner, class) {
        (Some(name), _) => served.is_ours(name),
        (None, Some(class)) => served.is_ours(&class.provisioner),
        (None, None) => false,
    }
}

fn unsupported(claim: &Claim, backend: Capabilities) -> Option<PendingReason> {
    if claim.block && !backend.block {
        Some(PendingReason::BlockUnsupported)
    } else if claim.selector && !backend.selector {
        Some(PendingReason::SelectorUnsupported)
    } else if claim.data_source && !backend.data_source {
        Some(PendingReason::DataSourceUnsupported)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Served {
        Served { names: vec!["ours.dev".into(), "also.dev".into()], finalizer: true, ..Served::default() }
    }

    fn class() -> Class {
        Class { name: "fast".into(), provisioner: "ours.dev".into(), ..Class::default() }
    }

    fn claim() -> Claim {
        Claim {
            namespace: "ns".into(),
            name: "data".into(),
            uid: "uid-1".into(),
            class: Some("fast".into()),
            provisioner: Some("ours.dev".into()),
            ..Claim::default()
        }
    }

    #[test]
    fn each_state_of_a_claim_has_its_decision() {
        use Decision::{NotOurs, Provision, Refuse, Settled, Wait};
        let waiting = || Class { wait_for_consumer: true, ..class() };
        let foreign_class = || Class { provisioner: "theirs.dev".into(), ..class() };
        let table: Vec<(&str, Claim, Option<Class>, Decision)> = vec![
            ("named by its annotation", claim(), Some(class()), Provision),
            (
                "named by an additional name",
                Claim { provisioner: Some("also.dev".into()), ..claim() },
                Some(class()),
                Provision,
            ),
            (
                "another provisioner's",
                Claim { provisioner: Some("theirs.dev".into()), ..claim() },
                Some(class()),
                NotOurs,
            ),
            (
                "not named yet",
                Claim { provisioner: None, ..claim() },
                Some(class()),
                Wait(PendingReason::NotNamedYet),
            ),
            (
                "not named, foreign class",
                Claim { provisioner: None, ..claim() },
                Some(foreign_class()),
                NotOurs,
            ),
            ("bound", Claim { volume_name: Some("pv".into()), ..claim() }, Some(class()), Settled),
            ("going away", Claim { deleting: true, ..claim() }, Some(class()), Settled),
            (
                "class missing",
                claim(),
                None,
                Wait(PendingReason::ClassMissing { class: Some("fast".into()) }),
            ),
            (
                "class of another provisioner",
                claim(),
                Some(foreign_class()),
                Wait(PendingReason::ClassForeign { class: "fast".into(), provisioner: "theirs.dev".into() }),
            ),
            ("no node chosen", claim(), Some(waiting()), Wait(PendingReason::WaitingForConsumer)),
            (
                "node chosen",
                Claim { selected_node: Some("node-a".into()), ..claim() },
                Some(waiting()),
                Provision,
            ),
            (
                "block",
                Claim { block: true, ..claim() },
                Some(class()),
                Refuse(PendingReason::BlockUnsupported),
            ),
            (
                "unsupported, but nobody has to know before its pod is placed",
                Claim { block: true, ..claim() },
                Some(waiting()),
                Wait(PendingReason::WaitingForConsumer),
            ),
            ("named by nobody, class missing", Claim { provisioner: None, ..claim() }, None, NotOurs),
            (
                "selector",
                Claim { selector: true, ..claim() },
                Some(class()),
                Refuse(PendingReason::SelectorUnsupported),
            ),
            (
                "data source",
                Claim { data_source: true, ..claim() },
                Some(class()),
                Refuse(PendingReason::DataSourceUnsupported),
            ),
        ];
        for (what, claim, class, expected) in table {
            assert_eq!(decide(&claim, class.as_ref(), None, &served()), expected, "{what}");
        }
    }

    #[test]
    fn a_claim_with_a_volume_is_settled_unless_that_volume_goes_away_called_bound() {
        let decided = |phase, deleting| {
            let volume = Volume { name: "pvc-1".into(), phase, deleting, ..Volume::default() };
            decide(&claim(), Some(&class()), Some(&volume), &served())
        };
        for phase in [Phase::Pending, Phase::Available, Phase::Bound, Phase::Released, Phase::Failed] {
            assert_eq!(decided(phase, false), Decision::Settled, "{phase:?}");
        }
        let stuck = Decision::Wait(PendingReason::VolumeTerminating { volume: "pvc-1".into() });
        assert_eq!(decided(Phase::Bound, true), stuck);
        assert_eq!(decided(Phase::Pending, true), Decision::Settled, "its removal comes first");
        let bound = Claim { volume_name: Some("pvc-1".into()), ..claim() };
        let going = Volume { phase: Phase::Bound, deleting: true, ..Volume::default() };
        assert_eq!(decide(&bound, Some(&class()), Some(&going), &served()), Decision::Settled);
    }

    #[test]
    fn a_backend_that_can_do_it_gets_the_claim() {
        let mut served = served();
        served.capabilities =
            Capabilities { block: true, selector: true, data_source: true, ..Capabilities::default() };
        let special = Claim { block: true, selector: true, data_source: true, ..claim() };
        for claim in [special, claim()] {
            assert_eq!(decide(&claim, Some(&class()), None, &served), Decision::Provision);
        }
    }
}
