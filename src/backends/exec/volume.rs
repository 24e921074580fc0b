//! From a program's answer to the PV, and what makes an answer unfit to become one. Whether the PV can be the
//! claim's is the controller's to say, of every backend. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec},
    apimachinery::pkg::api::resource::Quantity,
};
use serde_json::Value;

use super::protocol::AnsweredVolume;
use crate::{provisioner::VolumeOptions, quantity};

/// The fields of a PV's `spec` that say where its data are.
const SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// Why the program's volume can't stand for the claim.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadVolume {
    #[error("volume.source must have exactly one entry, it has {0}")]
    Sources(usize),
    #[error("volume.source.{0} is no source of a PersistentVolume")]
    UnknownSource(String),
    #[error("volume.source.{0}: {1}")]
    Source(String, String),
    #[error("volume.capacity {0:?} is no quantity")]
    Quantity(String),
    #[error("volume.capacity is missing and the claim requests no storage")]
    NoCapacity,
    #[error("volume.accessModes: {0:?} is no access mode")]
    AccessMode(String),
}

/// The PV that the answer describes, for this claim.
pub(super) fn build(answer: AnsweredVolume, options: &VolumeOptions) -> Result<PersistentVolume, BadVolume> {
    let claim = Wanted::of(&options.pvc);
    let mut spec = source(answer.source)?;
    spec.capacity = Some(capacity(answer.capacity, claim.storage)?);
    spec.access_modes = Some(access_modes(answer.access_modes, claim.access_modes)?);
    spec.volume_mode = answer.volume_mode;
    spec.mount_options = answer.mount_options;
    spec.node_affinity = answer.node_affinity;
    let mut volume = PersistentVolume { spec: Some(spec), ..Default::default() };
    volume.metadata.name = Some(options.pv_name.clone());
    volume.metadata.labels = answer.labels;
    volume.metadata.annotations = answer.annotations;
    Ok(volume)
}

/// What the claim asks for.
struct Wanted {
    storage: Option<String>,
    access_modes: Vec<String>,
}

impl Wanted {
    fn of(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let requests = spec.resources.and_then(|resources| resources.requests);
        Self {
            storage: requests.and_then(|mut requests| requests.remove("storage")).map(|quantity| quantity.0),
            access_modes: spec.access_modes.unwrap_or_default(),
        }
    }
}

fn source(given: BTreeMap<String, Value>) -> Result<PersistentVolumeSpec, BadVolume> {
    let count = given.len();
    let mut entries = given.into_iter();
    let (Some((kind, value)), None) = (entries.next(), entries.next()) else {
        return Err(BadVolume::Sources(count));
    };
    // Any other field of the spec would be taken as well, the claim's reference among them.
    if !SOURCES.contains(&kind.as_str()) {
        return Err(BadVolume::UnknownSource(kind));
    }
    if !value.is_object() {
        return Err(BadVolume::Source(kind, "must be an object".to_owned()));
    }
    let spec = Value::Object([(kind.clone(), value)].into_iter().collect());
    serde_json::from_value(spec).map_err(|error| BadVolume::Source(kind, error.to_string()))
}

fn capacity(
    answered: Option<String>,
    requested: Option<String>,
) -> Result<BTreeMap<String, Quantity>, BadVolume> {
    let chosen = match (answered, requested) {
        (Some(size), _) if quantity::nano(&size).is_none() => return Err(BadVolume::Quantity(size)),
        (Some(size), _) | (None, Some(size)) => size,
        (None, None) => return Err(BadVolume::NoCapacity),
    };
    Ok(BTreeMap::from([("storage".to_owned(), Quantity(chosen))]))
}

fn access_modes(answered: Option<Vec<String>>, wanted: Vec<String>) -> Result<Vec<String>, BadVolume> {
    let Some(answered) = answered else { return Ok(wanted) };
    match answered.iter().find(|mode| !ACCESS_MODES.contains(&mode.as_str())) {
        Some(odd) => Err(BadVolume::AccessMode(odd.clone())),
        None => Ok(answered),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::options, *};

    fn built(answer: Value) -> Result<PersistentVolume, BadVolume> {
        build(serde_json::from_value(answer).unwrap(), &options("pvc-1"))
    }

    #[test]
    fn what_the_answer_leaves_out_comes_from_the_claim() {
        let volume = built(json!({"source": {"nfs": {"server": "s", "path": "/p"}}})).unwrap();
        let spec = volume.spec.unwrap();
        assert_eq!(volume.metadata.name.unwrap(), "pvc-1");
        assert_eq!(spec.nfs.unwrap().server, "s");
        assert_eq!(spec.capacity.unwrap()["storage"].0, "1Gi");
        assert_eq!(spec.access_modes.unwrap(), ["ReadWriteOnce"]);
        assert_eq!(spec.volume_mode, None);
    }

    #[test]
    fn all_that_the_answer_says_is_taken() {
        let volume = built(json!({
            "source": {"csi": {"driver": "d", "volumeHandle": "h"}},
            "capacity": "2G",
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "volumeMode": "Filesystem",
            "mountOptions": ["ro"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
        }))
        .unwrap();
        let spec = volume.spec.unwrap();
        assert_eq!(spec.csi.unwrap().volume_handle, "h");
        assert_eq!(spec.capacity.unwrap()["storage"].0, "2G");
        assert_eq!(spec.access_modes.unwrap().len(), 2);
        assert_eq!(spec.mount_options.unwrap(), ["ro"]);
        assert!(spec.node_affinity.unwrap().required.is_some());
        assert_eq!(volume.metadata.labels.unwrap()["a"], "b");
        assert_eq!(volume.metadata.annotations.unwrap()["c"], "d");
    }

    #[test]
    fn an_answer_that_is_no_volume_is_refused_by_the_field() {
        let host = json!({"hostPath": {"path": "/p"}});
        let cases = [
            (json!({"source": {}}), "exactly one entry, it has 0"),
            (json!({"source": {"hostPath": {"path": "/p"}, "nfs": {}}}), "it has 2"),
            (json!({"source": {"claimRef": {"name": "x"}}}), "claimRef is no source"),
            (json!({"source": {"hostPath": "/p"}}), "source.hostPath: must be an object"),
            (json!({"source": {"nfs": {"server": 7}}}), "source.nfs: "),
            (json!({"source": host, "capacity": "much"}), "\"much\" is no quantity"),
            (json!({"source": host, "accessModes": ["Any"]}), "\"Any\" is no access mode"),
        ];
        for (answer, why) in cases {
            let error = built(answer.clone()).unwrap_err().to_string();
            assert!(error.contains(why), "{answer} gave {error:?}, not {why:?}");
        }
    }

    #[test]
    fn every_source_of_the_list_is_a_field_of_the_spec_and_no_other_field_is_missing() {
        for kind in SOURCES {
            let spec: PersistentVolumeSpec = serde_json::from_value(json!({kind: {}})).unwrap();
            assert!(serde_json::to_value(spec).unwrap().get(kind).is_some(), "{kind}");
        }
    }
}
