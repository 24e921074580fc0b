//! Whether a volume is to be deleted, kept, or left alone.

use super::{
    claim::Served,
    objects::{Phase, Volume},
};
use crate::provisioner::ReclaimPolicy;

/// What to do with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Another provisioner's, or another instance's: not kept.
    NotOurs,
    /// Nothing to do in this state.
    Leave,
    /// Its claim is gone: remove the asset, then the volume.
    Delete(Proof),
    /// Its policy is no longer Delete, or it is going away without ever having had a claim: the backend
    /// records that the asset is people's, then our finalizer goes.
    Keep,
    /// It is going away and was never bound, so that kube-controller-manager neither binds nor releases it
    /// any more. If its claim lives, our finalizer goes, and provisioning adopts the asset by its name.
    Spare,
    /// The finalizer is switched off: it goes.
    Strip,
    /// It lacks the finalizer: made by the Go library, or while the finalizer was off.
    Adopt,
}

/// What shows that a volume's claim is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// kube-controller-manager says so: the phase is Released.
    Released,
    /// The phase is Failed, which proves nothing: the claim is read live first. The Go library leaves
    /// such volumes for ever.
    ReadClaim,
}

/// Decides about `volume`.
#[must_use]
pub fn decide(volume: &Volume, served: &Served) -> Decision {
    if !is_ours(volume, served) {
        return Decision::NotOurs;
    }
    if volume.policy != ReclaimPolicy::Delete {
        return if volume.finalizer { Decision::Keep } else { Decision::Leave };
    }
    let has_claim = volume.claim.as_ref().is_some_and(|claim| !claim.uid.is_empty());
    let never_bound = matches!(volume.phase, Phase::Pending | Phase::Available);
    match (volume.phase, volume.finalizer, volume.deleting) {
        (Phase::Released, ..) if has_claim => Decision::Delete(Proof::Released),
        (Phase::Failed, ..) if has_claim => Decision::Delete(Proof::ReadClaim),
        (_, true, true) if never_bound && has_claim => Decision::Spare,
        (_, true, true) if never_bound => Decision::Keep,
        (_, true, false) if !served.finalizer => Decision::Strip,
        (Phase::Bound, false, false) if served.finalizer => Decision::Adopt,
        _ => Decision::Leave,
    }
}

/// What is to be told when `volume` is gone that no claim ever used, if anything is: its asset stays, although
/// its policy is Delete, because nothing proves that nobody needs it.
#[must_use]
pub fn farewell(volume: &Volume) -> Option<String> {
    let never_bound = matches!(volume.phase, Phase::Pending | Phase::Available);
    let has_claim = volume.claim.as_ref().is_some_and(|claim| !claim.uid.is_empty());
    (never_bound && !has_claim && volume.policy == ReclaimPolicy::Delete).then(|| {
        format!(
            "volume {} was deleted while it belonged to no claim: its data stays; if it is not needed, remove it \
             from the storage by hand",
            volume.name
        )
    })
}

/// Made by us, taken over by us, or a hand-made CSI volume of our driver; and of our instance.
fn is_ours(volume: &Volume, served: &Served) -> bool {
    let named = match (&volume.migrated_to, &volume.provisioned_by, &volume.csi_driver) {
        (Some(name), _, _) if served.is_ours(name) => true,
        (_, Some(name), _) => served.is_ours(name),
        (_, None, Some(driver)) => served.is_ours(driver),
        (_, None, None) => false,
    };
    named && volume.instance == served.instance
}

#[cfg(test)]
mod tests {
    use super::{super::objects::ClaimRef, *};

    fn served() -> Served {
        Served { names: vec!["ours.dev".into()], finalizer: true, ..Served::default() }
    }

    fn volume() -> Volume {
        Volume {
            name: "pvc-1".into(),
            uid: "pv-uid".into(),
            phase: Phase::Released,
            finalizer: true,
            claim: Some(ClaimRef { uid: "uid-1".into(), ..ClaimRef::default() }),
            provisioned_by: Some("ours.dev".into()),
            ..Volume::default()
        }
    }

    #[test]
    fn each_state_of_a_volume_has_its_decision() {
        use Decision::{Adopt, Delete, Keep, Leave, NotOurs, Spare};
        let table: Vec<(&str, Volume, Decision)> = vec![
            ("released", volume(), Delete(Proof::Released)),
            (
                "released without our finalizer",
                Volume { finalizer: false, ..volume() },
                Delete(Proof::Released),
            ),
            ("terminating and released", Volume { deleting: true, ..volume() }, Delete(Proof::Released)),
            (
                "released, terminating, held by others' finalizers only",
                Volume { deleting: true, finalizer: false, ..volume() },
                Delete(Proof::Released),
            ),
            ("bound", Volume { phase: Phase::Bound, ..volume() }, Leave),
            ("bound and terminating", Volume { phase: Phase::Bound, deleting: true, ..volume() }, Leave),
            (
                "bound without our finalizer",
                Volume { phase: Phase::Bound, finalizer: false, ..volume() },
                Adopt,
            ),
            (
                "bound and terminating without it",
                Volume { phase: Phase::Bound, finalizer: false, deleting: true, ..volume() },
                Leave,
            ),
            ("not bound yet", Volume { phase: Phase::Pending, ..volume() }, Leave),
            (
                "terminating before it was bound",
                Volume { phase: Phase::Available, deleting: true, ..volume() },
                Spare,
            ),
            (
                "terminating, never had a claim",
                Volume { phase: Phase::Available, deleting: true, claim: None, ..volume() },
                Keep,
            ),
            ("failed", Volume { phase: Phase::Failed, ..volume() }, Delete(Proof::ReadClaim)),
            ("never had a claim", Volume { claim: None, ..volume() }, Leave),
            ("reserved by name only", Volume { claim: Some(ClaimRef::default()), ..volume() }, Leave),
            ("retained", Volume { policy: ReclaimPolicy::Retain, ..volume() }, Keep),
            (
                "retained, nothing of ours on it",
                Volume { policy: ReclaimPolicy::Retain, finalizer: false, ..volume() },
                Leave,
            ),
            ("made by another", Volume { provisioned_by: Some("theirs.dev".into()), ..volume() }, NotOurs),
            ("made by hand", Volume { provisioned_by: None, ..volume() }, NotOurs),
            (
                "taken over by us",
                Volume {
                    provisioned_by: Some("in-tree".into()),
                    migrated_to: Some("ours.dev".into()),
                    ..volume()
                },
                Delete(Proof::Released),
            ),
            (
                "hand-made, our driver",
                Volume { provisioned_by: None, csi_driver: Some("ours.dev".into()), ..volume() },
                Delete(Proof::Released),
            ),
            ("of another instance", Volume { instance: Some("east".into()), ..volume() }, NotOurs),
        ];
        for (what, volume, expected) in table {
            assert_eq!(decide(&volume, &served()), expected, "{what}");
        }
    }

    #[test]
    fn a_volume_belongs_to_who_made_it_or_took_it_over_or_to_its_driver_if_it_was_made_by_hand() {
        type Names<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>);
        // Made by, taken over by, driver.
        let table: [(&str, Names<'_>, bool); 11] = [
            ("in-tree, made by us", (Some("ours.dev"), None, None), true),
            ("in-tree, made and taken over by us", (Some("ours.dev"), Some("ours.dev"), None), true),
            ("in-tree, made by another", (Some("theirs.dev"), None, None), false),
            ("in-tree, taken over by another", (Some("theirs.dev"), Some("theirs.dev"), None), false),
            ("in-tree, taken over by us", (Some("theirs.dev"), Some("ours.dev"), None), true),
            ("CSI, made by us", (Some("ours.dev"), None, Some("ours.dev")), true),
            ("CSI of our driver, made by another", (Some("theirs.dev"), None, Some("ours.dev")), false),
            ("CSI by hand, our driver", (None, None, Some("ours.dev")), true),
            ("CSI by hand, another driver", (None, None, Some("theirs.dev")), false),
            ("in-tree by hand, taken over by us", (None, Some("ours.dev"), None), true),
            ("in-tree by hand, taken over by another", (None, Some("theirs.dev"), None), false),
        ];
        for (what, (made, taken, driver), ours) in table {
            let volume = Volume {
                provisioned_by: made.map(Into::into),
                migrated_to: taken.map(Into::into),
                csi_driver: driver.map(Into::into),
                ..volume()
            };
            assert_eq!(decide(&volume, &served()) != Decision::NotOurs, ours, "{what}");
            let bound = Volume { phase: Phase::Bound, finalizer: false, ..volume };
            assert_eq!(decide(&bound, &served()) == Decision::Adopt, ours, "{what}: the finalizer");
        }
    }

    #[test]
    fn only_a_volume_that_goes_unused_and_with_its_policy_delete_leaves_something_to_tell() {
        let free = || Volume { phase: Phase::Available, claim: None, deleting: true, ..volume() };
        assert!(farewell(&free()).is_some_and(|text| text.contains("pvc-1")));
        assert!(
            farewell(&Volume { claim: Some(ClaimRef::default()), ..free() }).is_some(),
            "reserved by name"
        );
        let silent = [
            ("its claim lives", Volume { claim: volume().claim, ..free() }),
            ("released", Volume { phase: Phase::Released, ..free() }),
            ("retained", Volume { policy: ReclaimPolicy::Retain, ..free() }),
        ];
        for (what, volume) in silent {
            assert_eq!(farewell(&volume), None, "{what}");
        }
    }

    #[test]
    fn a_finalizer_that_is_switched_off_goes_from_volumes_that_are_not_terminating() {
        let served = Served { finalizer: false, ..served() };
        let bound = Volume { phase: Phase::Bound, ..volume() };
        assert_eq!(decide(&bound, &served), Decision::Strip);
        assert_eq!(decide(&Volume { deleting: true, ..bound }, &served), Decision::Leave);
        assert_eq!(decide(&volume(), &served), Decision::Delete(Proof::Released), "deleting goes first");
    }
}
