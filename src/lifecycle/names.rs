//! Every annotation, finalizer and name rule in one place.

use std::{fmt, sync::Arc};

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

/// Names the volume of the claim with this UID, or leaves it to prefix and UID.
pub type NamingHook = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// How a claim's volume is named: by a hook, or by a prefix and the claim's UID, whole or shortened, as in
/// the CSI external-provisioner.
#[derive(Clone)]
pub struct VolumeNaming {
    prefix: String,
    uuid_length: Option<usize>,
    hook: Option<NamingHook>,
}

impl Default for VolumeNaming {
    fn default() -> Self {
        Self::new("pvc", None)
    }
}

impl fmt::Debug for VolumeNaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, uuid_length, hook } = self;
        let mut naming = f.debug_struct("VolumeNaming");
        naming.field("prefix", prefix).field("uuid_length", uuid_length);
        naming.field("hook", &hook.is_some()).finish()
    }
}

impl VolumeNaming {
    /// Names of the form `<prefix>-<uid>`. With `uuid_length` the UID's dashes are dropped and only that
    /// many of its characters are kept.
    pub fn new(prefix: impl Into<String>, uuid_length: Option<usize>) -> Self {
        Self { prefix: prefix.into(), uuid_length, hook: None }
    }

    /// The same, but where `hook` has a name, it is that.
    #[must_use]
    pub fn hooked(self, hook: NamingHook) -> Self {
        Self { hook: Some(hook), ..self }
    }

    /// The name of the volume for the claim with this UID. Always the same, whoever asks and whenever.
    #[must_use]
    pub fn name(&self, claim_uid: &str) -> Arc<str> {
        if let Some(name) = self.hook.as_ref().and_then(|hook| hook(claim_uid)) {
            return name.into();
        }
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
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "6f2c1c1e-7d2b-4b0e-9c57-0f6a1e9d3b11";

    #[test]
    fn a_volume_is_named_after_its_claims_uid() {
        assert_eq!(&*VolumeNaming::default().name(UID), "pvc-6f2c1c1e-7d2b-4b0e-9c57-0f6a1e9d3b11");
        assert_eq!(&*VolumeNaming::new("data", Some(8)).name(UID), "data-6f2c1c1e");
        assert_eq!(&*VolumeNaming::new("data", Some(99)).name(UID), "data-6f2c1c1e7d2b4b0e9c570f6a1e9d3b11");
    }

    #[test]
    fn a_hook_names_the_volumes_that_it_wants_to() {
        let hook = |uid: &str| (uid == UID).then(|| "chosen".to_owned());
        let naming = VolumeNaming::default().hooked(Arc::new(hook));
        assert_eq!((&*naming.name(UID), &*naming.name("other")), ("chosen", "pvc-other"));
    }

    proptest! {
        #[test]
        fn names_of_different_claims_differ_and_are_names_to_the_api_server(
            a in "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
            b in "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
            length in proptest::option::of(1_usize..=32),
        ) {
            let (whole, short) = (VolumeNaming::default(), VolumeNaming::new("pvc", length));
            prop_assert_eq!(whole.name(&a) == whole.name(&b), a == b);
            let name = short.name(&a);
            prop_assert_eq!(&name, &short.name(&a));
            prop_assert!(name.len() <= 63 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
            let digits = name.len() - "pvc-".len();
            prop_assert_eq!(digits, length.unwrap_or(36));
        }
    }
}
