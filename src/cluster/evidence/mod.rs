//! What `explain` judges by, read once and only read: each part that may not be read is said to be so, and
//! the others are read all the same.

mod decoded;

use std::future::Future;

use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    events::v1::Event,
    storage::v1::{CSIDriver, StorageClass},
};
use kube::{
    Resource,
    api::{GetParams, ListParams},
    core::{ObjectList, PartialObjectMeta},
};
use serde::de::DeserializeOwned;

use super::{CallError, Calls, calls, decode};
use crate::{
    lease::lease_name,
    lifecycle::{
        explain::facts::{self, ClaimFacts, Moment, NotRead, Read, Surroundings, VolumeFacts},
        names::{self, VolumeNaming},
        objects::Claim,
    },
};

/// Volumes that are looked through for provisioner names: enough to find those in use, and one page.
const VOLUMES_FOR_NAMES: u32 = 500;
/// Where the manifests in `deploy/` put the program.
const USUAL_NAMESPACE: &str = "kube-provisioner";

/// What the asker said beyond the object's name.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// The provisioner name and its additional names; empty: as the object says.
    pub provisioners: Vec<String>,
    /// The namespace of the Lease.
    pub lease_namespace: Option<String>,
    /// The name of the Lease.
    pub lease_name: Option<String>,
    /// The namespace that the kubeconfig makes the default.
    pub default_namespace: String,
}

/// Reads what there is to know about a claim; `None` if there is no such claim.
///
/// # Errors
/// [`CallError`] if the claim itself can't be read.
pub async fn of_claim(
    calls: &Calls,
    hints: &Hints,
    namespace: &str,
    name: &str,
) -> Result<Option<ClaimFacts>, CallError> {
    let request = calls::at::<PersistentVolumeClaim>(Some(namespace)).get(name, &GetParams::default());
    let answer = calls.read(format!("read claim {namespace}/{name}"), request).await;
    let Some(whole) = calls::found::<PersistentVolumeClaim>(answer)? else { return Ok(None) };
    let spec = whole.spec.as_ref();
    let static_only = spec.is_some_and(|spec| spec.storage_class_name.as_deref() == Some(""));
    let phase = whole.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let deleted = whole.metadata.deletion_timestamp.as_ref().map(|time| Moment(time.0));
    let finalizers = whole.metadata.finalizers.clone().unwrap_or_default();
    let claim = decode::claim(whole);
    let named = claim.volume_name.as_deref().map(Into::into);
    let volume_name = named.unwrap_or_else(|| VolumeNaming::default().name(&claim.uid));
    let (class, volume, pods, mut around) = futures::join!(
        class(calls, &claim),
        get::<PersistentVolume>(calls, None, &volume_name, "volume"),
        pods(calls, namespace, name),
        surroundings(calls, hints, namespace, &claim.uid),
    );
    around.pods = pods;
    let mut facts = ClaimFacts {
        static_only: static_only && claim.class.is_none(),
        claim,
        phase,
        deleted,
        finalizers,
        class,
        classes: Vec::new(),
        volume: volume.map(|volume| volume.map(|volume| decode::volume(&volume))),
        around,
    };
    complete_claim(calls, hints, &mut facts).await;
    Ok(Some(facts))
}

/// Reads what is only of interest if the class or the provisioner's Lease was not found.
async fn complete_claim(calls: &Calls, hints: &Hints, facts: &mut ClaimFacts) {
    if matches!(facts.class, Ok(None)) {
        facts.classes =
            part(&mut facts.around, names_of::<StorageClass>(calls, "storageclasses", None)).await;
    }
    let class = facts.class.as_ref().ok().and_then(Option::as_ref).map(|class| class.provisioner.clone());
    let name = hints.provisioners.first().cloned();
    let name = name.or_else(|| facts.claim.provisioner.as_deref().or(class.as_deref()).map(Into::into));
    if let Some(name) = name.filter(|_| facts.claim.volume_name.is_none()) {
        complete(calls, hints, &mut facts.around, &name, None).await;
    }
}

/// Reads what there is to know about a volume; `None` if there is no such volume.
///
/// # Errors
/// [`CallError`] if the volume itself can't be read.
pub async fn of_volume(calls: &Calls, hints: &Hints, name: &str) -> Result<Option<VolumeFacts>, CallError> {
    let Some(whole) = calls.read_volume(name).await? else { return Ok(None) };
    let volume = decode::volume(&whole);
    let status = whole.status.as_ref();
    let moved = status.and_then(|status| status.last_phase_transition_time.as_ref());
    let owner = volume.claim.clone().unwrap_or_default();
    let (claim, pods, mut around) = futures::join!(
        claim_of(calls, &owner.namespace, &owner.name, &owner.uid),
        pods(calls, &owner.namespace, &owner.name),
        // Events about what has no namespace live in this one.
        surroundings(calls, hints, "default", &volume.uid),
    );
    around.pods = pods;
    let maker = [&volume.migrated_to, &volume.provisioned_by, &volume.csi_driver];
    let maker = maker.into_iter().flatten().next().map(ToString::to_string);
    if let Some(name) = hints.provisioners.first().cloned().or(maker) {
        complete(calls, hints, &mut around, &name, volume.instance.as_deref()).await;
    }
    Ok(Some(VolumeFacts {
        phase_since: moved.map(|time| Moment(time.0)),
        deleted: whole.metadata.deletion_timestamp.as_ref().map(|time| Moment(time.0)),
        finalizers: whole.metadata.finalizers.unwrap_or_default(),
        volume,
        claim,
        around,
    }))
}

async fn class(calls: &Calls, claim: &Claim) -> Read<Option<crate::lifecycle::objects::Class>> {
    match claim.class.as_deref() {
        None => Ok(None),
        Some(name) => Ok(get::<StorageClass>(calls, None, name, "storageclass").await?.map(decode::class)),
    }
}

/// The claim of a volume, if it still is the same.
async fn claim_of(calls: &Calls, namespace: &str, name: &str, uid: &str) -> Read<Option<Claim>> {
    if name.is_empty() {
        return Ok(None);
    }
    let claim = calls.read_claim(namespace, name).await;
    let claim = claim.map_err(|error| not_read(format!("claim {namespace}/{name}"), &error))?;
    Ok(claim.filter(|claim| uid.is_empty() || &*claim.uid == uid))
}

async fn pods(calls: &Calls, namespace: &str, claim: &str) -> Read<Vec<facts::Pod>> {
    if claim.is_empty() {
        return Ok(Vec::new());
    }
    let pods = list::<Pod>(calls, Some(namespace), &ListParams::default(), "pods").await?;
    Ok(pods.into_iter().filter_map(|pod| decoded::pod_using(pod, claim)).collect())
}

async fn surroundings(calls: &Calls, hints: &Hints, namespace: &str, uid: &str) -> Surroundings {
    let (about, all) = (ListParams::default().fields(&format!("regarding.uid={uid}")), ListParams::default());
    let (events, leases) = futures::join!(
        list::<Event>(calls, Some(namespace), &about, "events.events.k8s.io"),
        list::<Lease>(calls, None, &all, "leases.coordination.k8s.io"),
    );
    let mut around = Surroundings::empty(Moment(Timestamp::now()));
    around.asked.clone_from(&hints.provisioners);
    around.events = events.map(|events| events.into_iter().map(decoded::event).collect());
    match leases {
        Ok(leases) => {
            around.leases = leases.into_iter().filter_map(|lease| decoded::lease(lease, None)).collect()
        }
        Err(missing) => around.leases_not_read = Some(missing),
    }
    around
}

/// Finds the Lease of `name` where the search for annotations did not, and, if there is none, the names that
/// others than our Leases tell of.
async fn complete(
    calls: &Calls,
    hints: &Hints,
    around: &mut Surroundings,
    name: &str,
    instance: Option<&str>,
) {
    let chosen = hints.lease_name.is_some() || hints.lease_namespace.is_some();
    if !chosen && around.leases.iter().any(|lease| lease.provisioner == name) {
        return;
    }
    let lease = hints.lease_name.clone().unwrap_or_else(|| lease_name(name, instance));
    for namespace in lease_namespaces(hints) {
        if let Ok(Some(found)) = get::<Lease>(calls, Some(namespace), &lease, "lease").await
            && let Some(found) = decoded::lease(found, Some(name))
        {
            if chosen {
                // Whoever names a Lease wants to know of that one.
                around.leases.retain(|lease| lease.provisioner != name);
            }
            around.leases.push(facts::Lease { provisioner: name.to_owned(), ..found });
            around.leases_not_read = None;
            return;
        }
    }
    around.names = part(around, names_of::<CSIDriver>(calls, "csidrivers", None)).await;
    let made_by = part(around, volumes_made_by(calls)).await;
    around.names.extend(made_by);
}

fn lease_namespaces(hints: &Hints) -> Vec<&str> {
    match &hints.lease_namespace {
        Some(namespace) => vec![namespace],
        None => vec![USUAL_NAMESPACE, &hints.default_namespace],
    }
}

async fn volumes_made_by(calls: &Calls) -> Read<Vec<String>> {
    let page = ListParams::default().limit(VOLUMES_FOR_NAMES);
    let volumes =
        list::<PartialObjectMeta<PersistentVolume>>(calls, None, &page, "persistentvolumes").await?;
    let made_by = |volume: PartialObjectMeta<PersistentVolume>| {
        volume.metadata.annotations?.remove(names::PROVISIONED_BY)
    };
    Ok(volumes.into_iter().filter_map(made_by).collect())
}

async fn names_of<K>(calls: &Calls, plural: &str, namespace: Option<&str>) -> Read<Vec<String>>
where
    K: Resource<DynamicType = ()>,
    PartialObjectMeta<K>: Clone + DeserializeOwned,
{
    let objects = list::<PartialObjectMeta<K>>(calls, namespace, &ListParams::default(), plural).await?;
    Ok(objects.into_iter().filter_map(|object| object.metadata.name).collect())
}

/// What `read` brings, or nothing, and a note that it is missing.
async fn part<T: Default>(around: &mut Surroundings, read: impl Future<Output = Read<T>>) -> T {
    match read.await {
        Ok(part) => part,
        Err(missing) => {
            around.not_read.push(missing);
            T::default()
        }
    }
}

async fn get<K>(calls: &Calls, namespace: Option<&str>, name: &str, kind: &str) -> Read<Option<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let answer =
        calls.read(format!("read {kind} {name}"), calls::at::<K>(namespace).get(name, &GetParams::default()));
    calls::found(answer.await).map_err(|error| not_read(format!("{kind} {name} (get {kind}s)"), &error))
}

async fn list<K>(calls: &Calls, namespace: Option<&str>, which: &ListParams, plural: &str) -> Read<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let place = namespace.map_or_else(|| "the cluster".to_owned(), |name| format!("namespace {name}"));
    let answer = calls.read(format!("list {plural} in {place}"), calls::at::<K>(namespace).list(which));
    let answer: Result<ObjectList<K>, CallError> = answer.await;
    answer
        .map(|list| list.items)
        .map_err(|error| not_read(format!("{plural} in {place} (list {plural})"), &error))
}

fn not_read(what: String, error: &CallError) -> NotRead {
    NotRead { what, why: error.to_string() }
}
