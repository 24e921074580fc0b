//! Every annotation, finalizer and name rule in one place.

use std::sync::Arc;

/// On a claim: who is to provision it. Set by kube-controller-manager.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The older spelling of [`STORAGE_PROVISIONER`], read where the newer one is absent.
pub const STORAGE_PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a claim: the node that the scheduler chose for its first consumer.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim or a volume: its class, before there was a field for it. Wins over the field.
pub const STORAGE_CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";
/// On a volume: the provisioner that made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a volume: the provisioner that took it over.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// On a volume: keeps it from vanishing before its asset is gone.
pub const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// On a volume: the W3C trace context of its provisioning.
pub const TRACEPARENT: &str = "kube-provisioner.dev/traceparent";
/// On a volume: the class's parameters that it was made with, as a JSON object.
pub const PARAMETERS: &str = "kube-provisioner.dev/parameters";
/// On a volume: the instance that made it, where one is configured.
pub const INSTANCE: &str = "kube-provisioner.dev/instance";

/// Annotations of a claim that decisions read; the others never reach the cache.
pub const CLAIM_ANNOTATIONS: [&str; 4] =
    [STORAGE_PROVISIONER, STORAGE_PROVISIONER_BETA, SELECTED_NODE, STORAGE_CLASS_BETA];

/// What assets are marked with: the cluster (the UID of its `kube-system` namespace), the provisioner in
/// it, and the instance where one is configured.
#[must_use]
pub fn installation(cluster: &str, provisioner: &str, instance: Option<&str>) -> Arc<str> {
    match instance {
        None => format!("{cluster}/{provisioner}").into(),
        Some(instance) => format!("{cluster}/{provisioner}/{instance}").into(),
    }
}

/// How a claim's volume is named: a prefix and the claim's UID, whole or shortened, as in the CSI
/// external-provisioner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeNaming {
    prefix: String,
    uuid_length: Option<usize>,
}

impl Default for VolumeNaming {
    fn default() -> Self {
        Self { prefix: "pvc".to_owned(), uuid_length: None }
    }
}

impl VolumeNaming {
    /// Names of the form `<prefix>-<uid>`. With `uuid_length` the UID's dashes are dropped and only that
    /// many of its characters are kept.
    pub fn new(prefix: impl Into<String>, uuid_length: Option<usize>) -> Self {
        Self { prefix: prefix.into(), uuid_length }
    }

    /// The name of the volume for the claim with this UID. Always the same, whoever asks and whenever.
    #[must_use]
    pub fn name(&self, claim_uid: &str) -> Arc<str> {
        match self.uuid_length {
            None => format!("{}-{claim_uid}", self.prefix).into(),
            Some(length) => {
                let short: String = claim_uid.chars().filter(|c| *c != '-').take(length).collect();
                format!("{}-{short}", self.prefix).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6f2c1c1e-7d2b-4b0e-9c57-0f6a1e9d3b11";

    #[test]
    fn a_volume_is_named_after_its_claims_uid() {
        assert_eq!(&*VolumeNaming::default().name(UID), "pvc-6f2c1c1e-7d2b-4b0e-9c57-0f6a1e9d3b11");
        assert_eq!(&*VolumeNaming::new("data", Some(8)).name(UID), "data-6f2c1c1e");
        assert_eq!(&*VolumeNaming::new("data", Some(99)).name(UID), "data-6f2c1c1e7d2b4b0e9c570f6a1e9d3b11");
    }
}
