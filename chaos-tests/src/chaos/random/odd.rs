//! Deeds out of the ordinary: somebody else's volume under the name of a claim's own, nodes that vanish, volumes that
//! were kept and then deleted by hand.

use std::{collections::BTreeMap, fs, sync::PoisonError};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::core::v1::{HostPathVolumeSource, Node, ObjectReference, PersistentVolume, PersistentVolumeSpec},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta},
};
use tokio::time::Instant;

use super::{
    plan::Kind,
    work,
    world::{Kept, World},
};
use crate::{
    cluster,
    history::{Object, What},
    ledger::stage::FINALIZER,
    wait,
};

/// The label of volumes that have the name of a claim's own.
const SQUATS: &str = "chaos.example.dev/squats";

/// Creates a claim, then a volume of the name that its own will have, then lets it be provisioned.
pub(super) async fn squat(world: &World<'_>, claim: &str) -> Result<()> {
    let created = work::create(world, claim, Kind::Squatted).await?;
    let uid = created.uid().context("a claim without UID")?;
    cluster::create(&world.stage.scope.all_volumes(), &squatter(world, claim, &uid)).await?;
    select(world, claim).await
}

fn squatter(world: &World<'_>, claim: &str, uid: &str) -> PersistentVolume {
    let labels = BTreeMap::from([(SQUATS.to_owned(), label(world, claim))]);
    let claim_ref = ObjectReference {
        namespace: Some("default".to_owned()),
        name: Some(format!("somebody-{uid}")),
        uid: Some(uid.chars().rev().collect()),
        ..ObjectReference::default()
    };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(format!("pvc-{uid}")),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            capacity: Some(BTreeMap::from([("storage".to_owned(), Quantity("1Mi".to_owned()))])),
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            claim_ref: Some(claim_ref),
            host_path: Some(HostPathVolumeSource { path: "/nowhere".to_owned(), ..Default::default() }),
            persistent_volume_reclaim_policy: Some("Retain".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        ..PersistentVolume::default()
    }
}

/// Removes that volume.
pub(super) async fn unsquat(world: &World<'_>, claim: &str) -> Result<()> {
    let squatters = ListParams::default().labels(&format!("{SQUATS}={}", label(world, claim)));
    let volumes = world.stage.scope.all_volumes();
    volumes.delete_collection(&DeleteParams::default(), &squatters).await.map(drop)?;
    Ok(())
}

fn label(world: &World<'_>, claim: &str) -> String {
    format!("{}-{claim}", world.stage.scope.namespace())
}

/// Creates a claim that is sent to a node of its own.
pub(super) async fn strand(world: &World<'_>, claim: &str) -> Result<()> {
    create_node(world, claim).await?;
    work::create(world, claim, Kind::Stranded).await?;
    work::select_node(&world.stage.scope.claims(), claim, &node(world, claim)).await
}

/// The name of the node that is there to the end.
pub(super) const LASTING: &str = "node";

/// Creates a node that claims can be sent to.
pub(super) async fn create_node(world: &World<'_>, name: &str) -> Result<()> {
    let name = node(world, name);
    // A node without labels is taken for one that is gone.
    let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.clone())]);
    let metadata = ObjectMeta { name: Some(name), labels: Some(labels), ..ObjectMeta::default() };
    cluster::create(&nodes(world), &Node { metadata, ..Node::default() }).await.map(drop)
}

/// Deletes it.
pub(super) async fn delete_node(world: &World<'_>, name: &str) -> Result<()> {
    let name = node(world, name);
    cluster::delete(&nodes(world), &name).await?;
    let gone = Object { kind: "node".to_owned(), name, gone: true, ..Object::default() };
    world.chronicle.tell("cluster", What::Object(gone));
    Ok(())
}

/// Sends a claim to the node that stays.
pub(super) async fn select(world: &World<'_>, claim: &str) -> Result<()> {
    work::select_node(&world.stage.scope.claims(), claim, &node(world, LASTING)).await
}

fn nodes(world: &World<'_>) -> Api<Node> {
    Api::all(world.stage.scope.client())
}

fn node(world: &World<'_>, name: &str) -> String {
    format!("{}-{name}", world.stage.scope.namespace())
}

/// Remembers that people have patched a volume to Retain.
pub(super) fn note_kept(world: &World<'_>, claim: &str, volume: String) {
    let kept = Kept { volume, dropped: false };
    world.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(claim.to_owned(), kept);
}

/// Deletes a volume that was patched to Retain and is Released.
pub(super) async fn drop_kept(world: &World<'_>, claim: &str, over: Instant) -> Result<()> {
    let kept = world.kept.lock().unwrap_or_else(PoisonError::into_inner).get(claim).cloned();
    let volume = kept.context("it was not kept")?.volume;
    let volumes = world.stage.scope.all_volumes();
    let left = over.saturating_duration_since(Instant::now());
    let released = |volume: &PersistentVolume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Released") && !volume.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
    };
    wait::until(&volumes, &volume, left, released).await?;
    work::patiently(cluster::delete(&volumes, &volume)).await?;
    let mut kept = world.kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.insert(claim.to_owned(), Kept { volume, dropped: true });
    Ok(())
}

/// The assets whose volumes people have deleted after they had kept them.
pub(super) fn dropped(world: &World<'_>) -> Vec<String> {
    let kept = world.kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.values().filter(|kept| kept.dropped).map(|kept| kept.volume.clone()).collect()
}

/// They are still there, and people take them away.
///
/// # Errors
/// If one is not there.
pub(super) fn take_dropped(world: &World<'_>) -> Result<()> {
    for volume in dropped(world) {
        let asset = world.stage.ledger.asset(&volume);
        ensure!(asset.exists(), "the asset of volume {volume} is gone, which people had kept");
        fs::remove_dir_all(&asset).with_context(|| format!("cannot remove {}", asset.display()))?;
    }
    Ok(())
}

/// Undoes what is left of it: no volume of somebody else stays, and every claim has a node.
pub(super) async fn heal(world: &World<'_>) -> Result<()> {
    let claims = world.stage.scope.claims();
    for claim in claims.list(&ListParams::default()).await? {
        let name = claim.name_any();
        if name.starts_with(Kind::Squatted.prefix()) {
            unsquat(world, &name).await?;
        }
        let waits = [Kind::Squatted, Kind::Stranded].iter().any(|kind| name.starts_with(kind.prefix()));
        if waits && !work::is_bound(&claim) && !work::has_node(&claim) {
            select(world, &name).await?;
        }
    }
    Ok(())
}

/// What of all this others would see.
pub(super) async fn clean_up(world: &World<'_>) -> Result<()> {
    let own = format!("{}-", world.stage.scope.namespace());
    for object in nodes(world).list(&ListParams::default()).await? {
        if object.name_any().starts_with(&own) {
            cluster::delete(&nodes(world), &object.name_any()).await?;
        }
    }
    let all = ListParams::default().labels(SQUATS);
    let squatters = world.stage.scope.all_volumes().list(&all).await?;
    for volume in squatters.iter().filter(|volume| volume.labels().values().any(|it| it.starts_with(&own))) {
        cluster::delete(&world.stage.scope.all_volumes(), &volume.name_any()).await?;
    }
    Ok(())
}
