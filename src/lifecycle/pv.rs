//! The PersistentVolume object: what the controller fills in around a backend's answer, and how one
//! that exists already is judged.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    fit, names,
    objects::{Claim, Class},
};
use crate::provisioner::ReclaimPolicy;

/// What goes into a PV beside the backend's answer.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// The volume's name.
    pub name: &'a str,
    /// The claim it is for.
    pub claim: &'a Claim,
    /// Its class.
    pub class: &'a Class,
    /// Whether our finalizer goes on it (where the policy is Delete).
    pub finalizer: bool,
    /// The trace context of the provisioning.
    pub traceparent: Option<&'a str>,
    /// The configured instance.
    pub instance: Option<&'a str>,
}

/// Completes the backend's `answer`: everything a PV needs is in the one write that creates it.
///
/// Like the Go library the controller sets what the backend did not; the name and the claim reference
/// are never the backend's to choose.
///
/// # Errors
/// A message for the claim's owner if the answer can't become a PV.
pub fn complete(mut answer: PersistentVolume, frame: &Frame<'_>) -> Result<PersistentVolume, String> {
    let mut spec = answer.spec.take().ok_or("the backend returned a volume without a spec")?;
    fill_spec(&mut spec, frame);
    let policy = spec.persistent_volume_reclaim_policy.as_deref();
    if frame.finalizer && policy == Some(ReclaimPolicy::Delete.as_str()) {
        let finalizers = answer.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|name| name == names::FINALIZER) {
            finalizers.push(names::FINALIZER.to_owned());
        }
    }
    answer.metadata.name = Some(frame.name.to_owned());
    answer.metadata.generate_name = None;
    annotate(answer.metadata.annotations.get_or_insert_default(), frame);
    answer.spec = Some(spec);
    answer.status = None;
    Ok(answer)
}

/// Whether `volume`, completed, can be the claim's: the contract demands it of backends.
///
/// # Errors
/// A message for the claim's owner. The asset is there all the same.
pub fn check(volume: &PersistentVolume, claim: &Claim) -> Result<(), String> {
    let Some(whole) = &claim.whole else { return Ok(()) };
    fit::check(volume, whole).map_err(|misfit| {
        format!(
            "the backend's volume can't be the claim's: {misfit}; its asset is kept and the backend asked again"
        )
    })
}

fn fill_spec(spec: &mut PersistentVolumeSpec, frame: &Frame<'_>) {
    let claim = frame.claim.whole.as_deref();
    spec.claim_ref = Some(claim_reference(frame.claim));
    spec.storage_class_name = Some(frame.class.name.to_string());
    spec.persistent_volume_reclaim_policy.get_or_insert_with(|| frame.class.policy.as_str().to_owned());
    if spec.mount_options.is_none() {
        spec.mount_options.clone_from(&frame.class.whole.mount_options);
    }
    if spec.access_modes.is_none() {
        spec.access_modes = claim.and_then(|c| c.spec.as_ref()).and_then(|s| s.access_modes.clone());
    }
    if spec.volume_mode.is_none() {
        spec.volume_mode = claim.and_then(|c| c.spec.as_ref()).and_then(|s| s.volume_mode.clone());
    }
    if spec.capacity.as_ref().is_none_or(|capacity| !capacity.contains_key("storage"))
        && let Some(request) = claim.and_then(requested)
    {
        spec.capacity.get_or_insert_default().insert("storage".to_owned(), request.clone());
    }
}

/// The storage that a claim asks for.
#[must_use]
pub fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

fn claim_reference(claim: &Claim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: Some(claim.namespace.to_string()),
        name: Some(claim.name.to_string()),
        uid: Some(claim.uid.to_string()),
        resource_version: Some(claim.version.to_string()),
        ..ObjectReference::default()
    }
}

fn annotate(annotations: &mut BTreeMap<String, String>, frame: &Frame<'_>) {
    let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    set(names::PROVISIONED_BY, frame.class.provisioner.to_string());
    if let Some(parameters) = frame.class.whole.parameters.as_ref().filter(|map| !map.is_empty())
        && let Ok(json) = serde_json::to_string(parameters)
    {
        set(names::PARAMETERS, json);
    }
    if let Some(traceparent) = frame.traceparent {
        set(names::TRACEPARENT, traceparent.to_owned());
    }
    if let Some(instance) = frame.instance {
        set(names::INSTANCE, instance.to_owned());
    }
}

/// What a volume that exists under our name is, seen from the claim that we provision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// This claim's volume: the work is done.
    Ours,
    /// This claim's volume, but going away: not usable.
    Terminating,
    /// Another claim's volume. `uses_asset` says that its source is the one we just made.
    Foreign {
        /// Its source equals ours, so the asset isn't surplus.
        uses_asset: bool,
    },
}

/// Judges `existing`, found where `wanted` was to be created. The same claim UID makes it this claim's
/// volume whatever its source says: the API server defaults fields.
#[must_use]
pub fn judge(existing: &PersistentVolume, wanted: &PersistentVolume) -> Existing {
    let uid = |pv: &PersistentVolume| pv.spec.as_ref()?.claim_ref.as_ref()?.uid.clone();
    if uid(existing).is_some() && uid(existing) == uid(wanted) {
        return match existing.metadata.deletion_timestamp {
            None => Existing::Ours,
            Some(_) => Existing::Terminating,
        };
    }
    Existing::Foreign { uses_asset: source(existing).is_some() && source(existing) == source(wanted) }
}

/// The fields of a PV's spec that say nothing about where its data is.
const NOT_A_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// The part of a PV that says where its data is, without what a server fills in.
#[must_use]
pub fn source(volume: &PersistentVolume) -> Option<serde_json::Value> {
    let mut spec = serde_json::to_value(volume.spec.as_ref()?).ok()?;
    spec.as_object_mut()?.retain(|field, _| !NOT_A_SOURCE.contains(&field.as_str()));
    normalised(spec)
}

/// A source in the form in which two can be compared: without the one default that the server puts into a
/// source that is made here. `None` if there is none.
#[must_use]
pub fn normalised(mut source: serde_json::Value) -> Option<serde_json::Value> {
    let fields = source.as_object_mut()?;
    if let Some(host_path) = fields.get_mut("hostPath").and_then(|source| source.as_object_mut()) {
        host_path.remove("type");
    }
    (!fields.is_empty()).then_some(source)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::{
        api::{
            core::v1::{HostPathVolumeSource, PersistentVolumeClaimSpec, VolumeResourceRequirements},
            storage::v1::StorageClass,
        },
        apimachinery::pkg::apis::meta::v1::Time,
    };

    use super::*;

    fn claim() -> Claim {
        let requests = BTreeMap::from([("storage".to_owned(), Quantity("1Gi".to_owned()))]);
        let spec = PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteMany".to_owned()]),
            resources: Some(VolumeResourceRequirements { requests: Some(requests), limits: None }),
            ..Default::default()
        };
        Claim {
            namespace: "ns".into(),
            name: "data".into(),
            uid: "uid-1".into(),
            version: 42,
            whole: Some(Arc::new(PersistentVolumeClaim { spec: Some(spec), ..Default::default() })),
            ..Claim::default()
        }
    }

    fn class() -> Class {
        let whole = StorageClass {
            mount_options: Some(vec!["ro".to_owned()]),
            parameters: Some(BTreeMap::from([("tier".to_owned(), "gold".to_owned())])),
            ..Default::default()
        };
        Class {
            name: "fast".into(),
            provisioner: "ours.dev".into(),
            whole: Arc::new(whole),
            ..Class::default()
        }
    }

    fn answer(path: &str) -> PersistentVolume {
        let host_path = HostPathVolumeSource { path: path.to_owned(), type_: None };
        let spec = PersistentVolumeSpec { host_path: Some(host_path), ..Default::default() };
        PersistentVolume { spec: Some(spec), ..Default::default() }
    }

    fn completed(path: &str, finalizer: bool) -> PersistentVolume {
        let (claim, class) = (claim(), class());
        let frame = Frame {
            name: "pvc-uid-1",
            claim: &claim,
            class: &class,
            finalizer,
            traceparent: Some("00-trace"),
            instance: None,
        };
        complete(answer(path), &frame).unwrap()
    }

    #[test]
    fn the_controller_fills_in_what_the_backend_left_out() {
        let volume = completed("/data/pvc-uid-1", true);
        let spec = volume.spec.unwrap();
        assert_eq!(volume.metadata.name.as_deref(), Some("pvc-uid-1"));
        assert_eq!(volume.metadata.finalizers.unwrap(), [names::FINALIZER]);
        let annotations = volume.metadata.annotations.unwrap();
        assert_eq!(annotations[names::PROVISIONED_BY], "ours.dev");
        assert_eq!(annotations[names::PARAMETERS], r#"{"tier":"gold"}"#);
        assert_eq!(annotations[names::TRACEPARENT], "00-trace");
        assert!(!annotations.contains_key(names::INSTANCE));
        let claim_ref = spec.claim_ref.unwrap();
        assert_eq!(claim_ref.uid.as_deref(), Some("uid-1"));
        assert_eq!(claim_ref.resource_version.as_deref(), Some("42"));
        assert_eq!(claim_ref.kind.as_deref(), Some("PersistentVolumeClaim"));
        assert_eq!(spec.access_modes.unwrap(), ["ReadWriteMany"]);
        assert_eq!(spec.capacity.unwrap()["storage"].0, "1Gi");
        assert_eq!(spec.mount_options.unwrap(), ["ro"]);
        assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
        assert_eq!(spec.storage_class_name.as_deref(), Some("fast"));
    }

    #[test]
    fn a_backend_may_choose_its_own_capacity_modes_and_policy() {
        let mut given = answer("/data/x");
        let spec = given.spec.as_mut().unwrap();
        spec.capacity = Some(BTreeMap::from([("storage".to_owned(), Quantity("2Gi".to_owned()))]));
        spec.access_modes = Some(vec!["ReadWriteOnce".to_owned()]);
        spec.persistent_volume_reclaim_policy = Some("Retain".to_owned());
        let (claim, class) = (claim(), class());
        let frame = Frame {
            name: "pvc-uid-1",
            claim: &claim,
            class: &class,
            finalizer: true,
            traceparent: None,
            instance: Some("east"),
        };
        let volume = complete(given, &frame).unwrap();
        let spec = volume.spec.unwrap();
        assert_eq!(spec.capacity.unwrap()["storage"].0, "2Gi");
        assert_eq!(spec.access_modes.unwrap(), ["ReadWriteOnce"]);
        assert_eq!(volume.metadata.finalizers, None, "a retained volume needs no finalizer");
        assert_eq!(volume.metadata.annotations.unwrap()[names::INSTANCE], "east");
    }

    #[test]
    fn a_class_that_retains_makes_volumes_that_are_retained_and_need_no_finalizer() {
        let (claim, class) = (claim(), Class { policy: ReclaimPolicy::Retain, ..class() });
        let (traceparent, instance) = (None, None);
        let frame = Frame { name: "n", claim: &claim, class: &class, finalizer: true, traceparent, instance };
        let volume = complete(answer("/data/x"), &frame).unwrap();
        let policy = volume.spec.unwrap().persistent_volume_reclaim_policy;
        assert_eq!((policy.as_deref(), volume.metadata.finalizers), (Some("Retain"), None));
    }

    #[test]
    fn an_answer_without_a_spec_is_refused() {
        let (claim, class) = (claim(), class());
        let frame = Frame {
            name: "n",
            claim: &claim,
            class: &class,
            finalizer: true,
            traceparent: None,
            instance: None,
        };
        assert!(complete(PersistentVolume::default(), &frame).is_err());
    }

    #[test]
    fn an_existing_volume_is_judged_by_its_claim_and_then_by_its_source() {
        let wanted = completed("/data/a", true);
        let mut same = completed("/data/a", true);
        same.spec.as_mut().unwrap().host_path.as_mut().unwrap().type_ = Some(String::new());
        assert_eq!(judge(&same, &wanted), Existing::Ours);
        same.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(judge(&same, &wanted), Existing::Terminating);
        let mut foreign = completed("/data/a", true);
        foreign.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("uid-2".to_owned());
        foreign.spec.as_mut().unwrap().host_path.as_mut().unwrap().type_ = Some(String::new());
        assert_eq!(judge(&foreign, &wanted), Existing::Foreign { uses_asset: true });
        foreign.spec.as_mut().unwrap().host_path.as_mut().unwrap().path = "/data/b".to_owned();
        assert_eq!(judge(&foreign, &wanted), Existing::Foreign { uses_asset: false });
        foreign.spec.as_mut().unwrap().claim_ref = None;
        assert_eq!(judge(&foreign, &wanted), Existing::Foreign { uses_asset: false });
    }
}
