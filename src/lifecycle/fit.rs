//! Whether a volume that a backend answers with can be the claim's: the contract says so, and this looks.
//!
//! The Go library saves whatever comes. kube-controller-manager then never binds a volume that is too small or lacks
//! a mode, though it is reserved for the claim, and nobody says why.

use k8s_openapi::{
    api::core::v1::{
        PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::pv;
use crate::quantity;

/// What a mode is that neither claim nor volume names.
const FILESYSTEM: &str = "Filesystem";

/// Why a volume can't be the claim's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It is smaller than what is asked for.
    #[error("its capacity is {0}, less than the {1} that the claim requests")]
    TooSmall(String, String),
    /// Its size can't be compared to anything.
    #[error("its capacity {0:?} is no quantity")]
    NoQuantity(String),
    /// The claim wants an access mode that it does not have.
    #[error("its access modes lack {0}, which the claim wants")]
    LacksMode(String),
    /// A block device where a file system is wanted, or the reverse.
    #[error("its volume mode is {0:?}, and the claim wants {1:?}")]
    VolumeMode(String, String),
    /// The claim's selector does not select it.
    #[error("its labels do not match the claim's selector at {0:?}")]
    Unselected(String),
}

/// Compares a volume, completed by the controller, with its claim.
///
/// # Errors
/// The first [`Misfit`] that is found.
pub fn check(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), Misfit> {
    let (Some(have), Some(want)) = (&volume.spec, &claim.spec) else { return Ok(()) };
    capacity(have, claim)?;
    access_modes(have, want)?;
    volume_mode(have, want)?;
    match &want.selector {
        Some(selector) => selected(volume, selector),
        None => Ok(()),
    }
}

fn capacity(have: &PersistentVolumeSpec, claim: &PersistentVolumeClaim) -> Result<(), Misfit> {
    let Some(have) = have.capacity.as_ref().and_then(|capacity| capacity.get("storage")) else {
        return Ok(());
    };
    let wanted = pv::requested(claim);
    if wanted == Some(have) {
        return Ok(());
    }
    let Some(size) = quantity::nano(&have.0) else { return Err(Misfit::NoQuantity(have.0.clone())) };
    match wanted {
        // What is beyond all sizes can't be compared, and is not for this program to judge.
        Some(wanted) if quantity::nano(&wanted.0).is_some_and(|wanted| size < wanted) => {
            Err(Misfit::TooSmall(have.0.clone(), wanted.0.clone()))
        }
        _ => Ok(()),
    }
}

fn access_modes(have: &PersistentVolumeSpec, want: &PersistentVolumeClaimSpec) -> Result<(), Misfit> {
    let have = have.access_modes.as_deref().unwrap_or_default();
    let lacking = want.access_modes.iter().flatten().find(|mode| !have.contains(mode));
    lacking.map_or(Ok(()), |mode| Err(Misfit::LacksMode(mode.clone())))
}

fn volume_mode(have: &PersistentVolumeSpec, want: &PersistentVolumeClaimSpec) -> Result<(), Misfit> {
    let have = have.volume_mode.as_deref().unwrap_or(FILESYSTEM);
    let want = want.volume_mode.as_deref().unwrap_or(FILESYSTEM);
    if have == want { Ok(()) } else { Err(Misfit::VolumeMode(have.to_owned(), want.to_owned())) }
}

fn selected(volume: &PersistentVolume, selector: &LabelSelector) -> Result<(), Misfit> {
    let label = |key: &str| volume.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let by_value = selector.match_labels.iter().flatten();
    if let Some((key, _)) = by_value.into_iter().find(|(key, value)| label(key) != Some(value)) {
        return Err(Misfit::Unselected(key.clone()));
    }
    for demand in selector.match_expressions.iter().flatten() {
        let values = demand.values.as_deref().unwrap_or_default();
        let found = label(&demand.key);
        let fits = match demand.operator.as_str() {
            "In" => found.is_some_and(|value| values.contains(value)),
            "NotIn" => found.is_none_or(|value| !values.contains(value)),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            // The API server knows no other; what may come is not ours to refuse.
            _ => true,
        };
        if !fits {
            return Err(Misfit::Unselected(demand.key.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(volume: Value, claim: Value) -> Option<String> {
        let volume = json!({ "metadata": { "labels": volume["labels"] }, "spec": volume });
        let (volume, claim) = (
            serde_json::from_value(volume).unwrap(),
            serde_json::from_value(json!({ "spec": claim })).unwrap(),
        );
        check(&volume, &claim).err().map(|misfit| misfit.to_string())
    }

    fn sized(size: &str) -> Value {
        json!({ "capacity": { "storage": size } })
    }

    fn asking(size: &str) -> Value {
        json!({ "resources": { "requests": { "storage": size } } })
    }

    #[test]
    fn a_volume_is_as_large_as_the_request_or_larger_in_whatever_notation() {
        for (have, want) in [("1Gi", "1Gi"), ("1Gi", "1G"), ("2", "1500m"), ("9223372036854775807", "8191Pi")]
        {
            assert_eq!(checked(sized(have), asking(want)), None, "{have} for {want}");
        }
        let told = checked(sized("1G"), asking("1Gi")).unwrap();
        assert_eq!(told, "its capacity is 1G, less than the 1Gi that the claim requests");
        assert!(checked(sized("much"), asking("1")).unwrap().contains("no quantity"));
        assert_eq!(checked(json!({}), asking("1Gi")), None, "the controller fills it in");
        assert_eq!(checked(sized("99Ei"), asking("99Ei")), None, "the same, though beyond all sizes");
    }

    #[test]
    fn a_volume_has_all_modes_of_its_claim() {
        let modes = |modes: &[&str]| json!({ "accessModes": modes });
        assert_eq!(checked(modes(&["ReadWriteOnce", "ReadWriteMany"]), modes(&["ReadWriteMany"])), None);
        let told = checked(modes(&["ReadOnlyMany"]), modes(&["ReadOnlyMany", "ReadWriteOnce"]));
        assert_eq!(told.unwrap(), "its access modes lack ReadWriteOnce, which the claim wants");
        assert_eq!(checked(json!({ "volumeMode": "Filesystem" }), json!({})), None);
        let told = checked(json!({}), json!({ "volumeMode": "Block" })).unwrap();
        assert_eq!(told, "its volume mode is \"Filesystem\", and the claim wants \"Block\"");
    }

    #[test]
    fn a_selector_is_asked_word_by_word() {
        let labels = json!({ "labels": { "tier": "gold", "zone": "a" } });
        let fits = |selector: Value| checked(labels.clone(), json!({ "selector": selector })).is_none();
        let one = |operator: &str, key: &str, values: &[&str]| {
            fits(json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }))
        };
        assert!(fits(json!({ "matchLabels": { "tier": "gold" } })) && fits(json!({})));
        assert!(!fits(json!({ "matchLabels": { "tier": "gold", "zone": "b" } })));
        assert!(!fits(json!({ "matchLabels": { "rack": "" } })), "an absent label is not an empty one");
        assert!(one("In", "zone", &["a", "b"]) && !one("In", "zone", &["b"]) && !one("In", "rack", &["a"]));
        assert!(
            one("NotIn", "zone", &["b"]) && !one("NotIn", "zone", &["a"]) && one("NotIn", "rack", &["a"])
        );
        assert!(one("Exists", "zone", &[]) && !one("Exists", "rack", &[]));
        assert!(!one("DoesNotExist", "zone", &[]) && one("DoesNotExist", "rack", &[]));
    }
}
