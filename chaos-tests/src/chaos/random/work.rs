//! How people's deeds are done: by the API server itself, past the proxies. What can't be done while things break is
//! left out.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    odd,
    plan::{Deed, Kind, Work},
    world::World,
};
use crate::{cluster, history::What, wait};

/// How long one request of the harness may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// A finalizer of somebody else.
pub(super) const HOLD: &str = "chaos.example.dev/hold";

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Does one deed at its time, counted from `began`; whether it could be done before `span` was over.
pub(super) async fn carry_out(world: &World<'_>, deed: &Deed, began: Instant, span: u64) -> bool {
    sleep_until(began + Duration::from_millis(deed.at)).await;
    let over = began + Duration::from_millis(span);
    let done = match deed.work {
        Work::Create(Kind::Squatted) => patiently(odd::squat(world, &deed.claim)).await,
        Work::Create(Kind::Stranded) => patiently(odd::strand(world, &deed.claim)).await,
        Work::Create(kind) => patiently(create(world, &deed.claim, kind)).await,
        Work::Delete => {
            let claims = world.stage.scope.claims();
            patiently(async { cluster::delete(&claims, &deed.claim).await }).await
        }
        Work::Keep | Work::Use | Work::DeleteVolume | Work::Hold | Work::LetGo => {
            on_volume(world, deed, over).await
        }
        Work::DropKept => odd::drop_kept(world, &deed.claim, over).await,
        Work::Unsquat => patiently(odd::unsquat(world, &deed.claim)).await,
        Work::LoseNode => patiently(odd::delete_node(world, &deed.claim)).await,
    };
    if let Err(error) = &done {
        tracing::debug!("{deed:?} was not done: {error:#}");
    }
    done.is_ok()
}

/// Its errors are part of the chaos.
pub(super) async fn patiently<T>(work: impl Future<Output = Result<T>>) -> Result<()> {
    timeout(PATIENCE, work).await.context("no answer")?.map(drop)
}

pub(super) async fn create(world: &World<'_>, name: &str, kind: Kind) -> Result<PersistentVolumeClaim> {
    let classes = &world.classes;
    let class = match kind {
        Kind::Plain | Kind::Block | Kind::Failing => &classes.plain,
        Kind::Retained => &classes.retained,
        Kind::Waiting | Kind::Squatted | Kind::Stranded => &classes.waiting,
    };
    let customize = |claim: &mut PersistentVolumeClaim| {
        let spec = claim.spec.get_or_insert_default();
        spec.volume_mode = (kind == Kind::Block).then(|| "Block".to_owned());
    };
    world.stage.scope.create_claim(name, class, customize).await
}

/// What is done to the volume of a claim once that is Bound, if it is before `over`.
async fn on_volume(world: &World<'_>, deed: &Deed, over: Instant) -> Result<()> {
    let scope = &world.stage.scope;
    let left = over.saturating_duration_since(Instant::now());
    let claim = wait::until(&scope.claims(), &deed.claim, left, is_bound).await?;
    let volume = claim.spec.and_then(|spec| spec.volume_name).context("bound without a volume")?;
    let volumes = scope.all_volumes();
    match deed.work {
        Work::Keep => {
            let keep = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
            patiently(patch(&volumes, &volume, Patch::Merge(keep))).await?;
            odd::note_kept(world, &deed.claim, volume);
            Ok(())
        }
        Work::Hold => {
            let hold = json!({ "metadata": { "finalizers": [HOLD] } });
            patiently(patch(&volumes, &volume, Patch::Strategic(hold))).await
        }
        Work::LetGo => patiently(let_go(world, &volumes.get(&volume).await?)).await,
        Work::DeleteVolume => patiently(cluster::delete(&volumes, &volume)).await,
        Work::Use => {
            fs::write(world.stage.ledger.asset(&volume).join("data"), "data")?;
            world.chronicle.tell("harness", What::Used { volume });
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn patch(
    volumes: &Api<PersistentVolume>,
    volume: &str,
    patch: Patch<serde_json::Value>,
) -> Result<PersistentVolume> {
    Ok(volumes.patch(volume, &PatchParams::default(), &patch).await?)
}

/// Takes somebody else's finalizer off a volume.
pub(super) async fn let_go(world: &World<'_>, volume: &PersistentVolume) -> Result<()> {
    world.holds.let_go(&volume.uid().unwrap_or_default());
    let go = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": [HOLD] } });
    let volumes = world.stage.scope.all_volumes();
    patch(&volumes, &volume.name_any(), Patch::Strategic(go)).await.map(drop)
}

pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// The scheduler's part: whether a claim waits for a node that is not chosen yet. Those of odder kinds get theirs
/// otherwise.
pub(super) fn needs_node(claim: &PersistentVolumeClaim) -> bool {
    claim.name_any().starts_with(Kind::Waiting.prefix()) && !is_bound(claim) && !has_node(claim)
}

pub(super) fn has_node(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().contains_key(SELECTED_NODE)
}

/// The scheduler's part: chooses the node for a claim.
pub(super) async fn select_node(claims: &Api<PersistentVolumeClaim>, claim: &str, node: &str) -> Result<()> {
    let select = Patch::Merge(json!({ "metadata": { "annotations": { SELECTED_NODE: node } } }));
    patiently(async { Ok(claims.patch(claim, &PatchParams::default(), &select).await?) }).await
}
