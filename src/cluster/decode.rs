//! From the API's objects to the slim ones that decisions read.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::PartialObjectMeta;

use crate::{
    lifecycle::{
        names,
        objects::{Claim, ClaimRef, Class, Node, Phase, Version, Volume},
    },
    provisioner::ReclaimPolicy,
};

/// The version in an object's metadata; 0, older than all, where it is no number.
#[must_use]
pub fn version(metadata: &ObjectMeta) -> Version {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

fn uid(metadata: &ObjectMeta) -> Box<str> {
    metadata.uid.as_deref().unwrap_or_default().into()
}

/// The provisioner that a claim's annotations name.
#[must_use]
pub fn named_provisioner(metadata: &ObjectMeta) -> Option<&str> {
    annotation(metadata, names::STORAGE_PROVISIONER)
        .or_else(|| annotation(metadata, names::STORAGE_PROVISIONER_BETA))
}

/// A claim. The whole of it is kept only while it has no volume.
#[must_use]
pub fn claim(mut whole: PersistentVolumeClaim) -> Claim {
    whole.metadata.managed_fields = None;
    let metadata = &whole.metadata;
    let spec = whole.spec.as_ref();
    let class = annotation(metadata, names::STORAGE_CLASS_BETA)
        .or_else(|| spec.and_then(|s| s.storage_class_name.as_deref()).filter(|name| !name.is_empty()));
    let mut claim = Claim {
        namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
        name: metadata.name.as_deref().unwrap_or_default().into(),
        uid: uid(metadata),
        version: version(metadata),
        created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        deleting: metadata.deletion_timestamp.is_some(),
        volume_name: spec
            .and_then(|s| s.volume_name.as_deref())
            .filter(|name| !name.is_empty())
            .map(Into::into),
        bound: whole.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound"),
        class: class.map(Into::into),
        provisioner: named_provisioner(metadata).map(Into::into),
        selected_node: annotation(metadata, names::SELECTED_NODE).map(Into::into),
        block: spec.is_some_and(|s| s.volume_mode.as_deref() == Some("Block")),
        selector: spec.is_some_and(|s| s.selector.is_some()),
        data_source: spec.is_some_and(|s| s.data_source.is_some() || s.data_source_ref.is_some()),
        whole: None,
    };
    if claim.volume_name.is_none() {
        claim.whole = Some(Arc::new(whole));
    }
    claim
}

/// A volume.
#[must_use]
pub fn volume(whole: &PersistentVolume) -> Volume {
    let metadata = &whole.metadata;
    let spec = whole.spec.as_ref();
    let phase = whole.status.as_ref().and_then(|status| status.phase.as_deref());
    Volume {
        name: metadata.name.as_deref().unwrap_or_default().into(),
        uid: uid(metadata),
        version: version(metadata),
        phase: phase.map_or(Phase::Pending, Phase::parse),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizer: metadata.finalizers.iter().flatten().any(|name| name == names::FINALIZER),
        policy: spec
            .and_then(|s| s.persistent_volume_reclaim_policy.as_deref())
            // The API server fills the field; a word that it added since is no licence to delete.
            .map_or(ReclaimPolicy::Retain, |word| {
                ReclaimPolicy::parse(word).unwrap_or(ReclaimPolicy::Retain)
            }),
        claim: spec.and_then(|s| s.claim_ref.as_ref()).map(|claim| ClaimRef {
            namespace: claim.namespace.as_deref().unwrap_or_default().into(),
            name: claim.name.as_deref().unwrap_or_default().into(),
            uid: claim.uid.as_deref().unwrap_or_default().into(),
        }),
        class: annotation(metadata, names::STORAGE_CLASS_BETA)
            .or_else(|| spec.and_then(|s| s.storage_class_name.as_deref()))
            .map(Into::into),
        provisioned_by: annotation(metadata, names::PROVISIONED_BY).map(Into::into),
        migrated_to: annotation(metadata, names::MIGRATED_TO).map(Into::into),
        csi_driver: spec.and_then(|s| s.csi.as_ref()).map(|csi| csi.driver.as_str().into()),
        instance: annotation(metadata, names::INSTANCE).map(Into::into),
        traceparent: annotation(metadata, names::TRACEPARENT).map(Into::into),
    }
}

/// A class.
#[must_use]
pub fn class(mut whole: StorageClass) -> Class {
    whole.metadata.managed_fields = None;
    Class {
        name: whole.metadata.name.as_deref().unwrap_or_default().into(),
        uid: uid(&whole.metadata),
        provisioner: whole.provisioner.as_str().into(),
        wait_for_consumer: whole.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        policy: whole.reclaim_policy.as_deref().and_then(ReclaimPolicy::parse).unwrap_or_default(),
        whole: Arc::new(whole),
    }
}

/// A node.
#[must_use]
pub fn node<K>(whole: PartialObjectMeta<K>) -> Node {
    Node {
        name: whole.metadata.name.as_deref().unwrap_or_default().into(),
        labels: whole.metadata.labels.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decoded_claim(value: serde_json::Value) -> Claim {
        claim(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_claim_keeps_what_decisions_read() {
        let claim = decoded_claim(json!({
            "metadata": {
                "namespace": "ns", "name": "data", "uid": "u1", "resourceVersion": "17",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "someone"}],
                "annotations": {
                    "volume.beta.kubernetes.io/storage-class": "old",
                    "volume.beta.kubernetes.io/storage-provisioner": "beta.dev",
                    "volume.kubernetes.io/selected-node": "n1",
                },
            },
            "spec": {"storageClassName": "new", "volumeMode": "Block", "selector": {}},
        }));
        assert_eq!((claim.version, claim.created), (17, 1_767_225_600));
        assert_eq!(claim.class.as_deref(), Some("old"), "the annotation wins");
        assert_eq!(claim.provisioner.as_deref(), Some("beta.dev"));
        assert_eq!(claim.selected_node.as_deref(), Some("n1"));
        assert!(claim.block && claim.selector && !claim.data_source && !claim.deleting);
        assert_eq!(claim.whole.unwrap().metadata.managed_fields, None);
    }

    #[test]
    fn the_newer_annotation_names_the_provisioner_and_the_older_one_where_it_is_absent_or_empty() {
        let (new, old) = (names::STORAGE_PROVISIONER, names::STORAGE_PROVISIONER_BETA);
        let table = [
            (json!({new: "new.dev", old: "old.dev"}), Some("new.dev")),
            (json!({new: "new.dev"}), Some("new.dev")),
            (json!({old: "old.dev"}), Some("old.dev")),
            (json!({new: "", old: "old.dev"}), Some("old.dev")),
            (json!({}), None),
        ];
        for (annotations, expected) in table {
            let claim = decoded_claim(json!({"metadata": {"name": "c", "annotations": annotations}}));
            assert_eq!(claim.provisioner.as_deref(), expected, "{annotations}");
        }
    }

    #[test]
    fn only_the_mode_block_is_a_block_claim() {
        for (spec, block) in [
            (json!({}), false),
            (json!({"volumeMode": "Filesystem"}), false),
            (json!({"volumeMode": "Block"}), true),
        ] {
            let claim = decoded_claim(json!({"metadata": {"name": "c"}, "spec": spec}));
            assert_eq!(claim.block, block, "{spec}");
        }
    }

    #[test]
    fn a_bound_claim_is_not_kept_whole() {
        let claim = decoded_claim(json!({"metadata": {"name": "c"}, "spec": {"volumeName": "pv"}}));
        assert_eq!(claim.volume_name.as_deref(), Some("pv"));
        assert!(claim.whole.is_none());
        let unbound = decoded_claim(json!({"metadata": {"name": "c"}, "spec": {"volumeName": ""}}));
        assert!(unbound.volume_name.is_none() && unbound.whole.is_some());
    }

    #[test]
    fn a_volume_with_an_unknown_or_missing_policy_is_never_deleted() {
        for policy in [json!({"persistentVolumeReclaimPolicy": "Shred"}), json!({})] {
            let whole = serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": policy})).unwrap();
            assert_eq!(volume(&whole).policy, ReclaimPolicy::Retain);
        }
    }

    #[test]
    fn a_volume_keeps_what_decisions_read() {
        let whole = serde_json::from_value(json!({
            "metadata": {
                "name": "pv", "uid": "u", "resourceVersion": "9",
                "finalizers": ["kubernetes.io/pv-protection", names::FINALIZER],
                "annotations": {names::PROVISIONED_BY: "ours.dev", names::INSTANCE: "east"},
            },
            "spec": {
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {"namespace": "ns", "name": "data", "uid": "c1"},
                "csi": {"driver": "csi.dev", "volumeHandle": "h"},
            },
            "status": {"phase": "Released"},
        }))
        .unwrap();
        let volume = volume(&whole);
        assert_eq!(
            (volume.phase, volume.policy, volume.version),
            (Phase::Released, ReclaimPolicy::Delete, 9)
        );
        assert!(volume.finalizer && !volume.deleting);
        assert_eq!(volume.claim.unwrap().uid.as_ref(), "c1");
        assert_eq!(volume.csi_driver.as_deref(), Some("csi.dev"));
        assert_eq!(volume.instance.as_deref(), Some("east"));
    }
}
