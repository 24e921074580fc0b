//! The end of a run: everything is healed, has to come to rest, loses its claims, and has to come to rest again.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};

use super::{
    odd,
    plan::Kind,
    work::{self, HOLD},
    world::World,
};
use crate::{
    binaries::Program,
    clock,
    history::{
        What,
        check::{
            Invariant::{self, ClaimsEnd, DeletionsEnd, NothingPreciousDeleted},
            Violation,
        },
    },
    ledger::stage::{DEADLINE, FINALIZER},
    proxy::Rule,
};

/// What is still going on in the backend when everything is healed is over by then.
const LINGERING: Duration = Duration::from_secs(6);
/// How often the state is looked at: no single watch shows files and objects of several kinds.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Undoes whatever may still be broken.
///
/// # Errors
/// If something does not come back.
pub(super) async fn heal(world: &World<'_>) -> Result<()> {
    world.set_gate(0, None)?;
    let plane = world.stage.scope.plane();
    for program in [Program::Etcd, Program::KubeApiserver, Program::KubeControllerManager] {
        // One that has ended takes no signal.
        if plane.resume(program).is_err() {
            plane.restart(program).await?;
        }
    }
    for actor in &world.actors {
        actor.proxy.set(Vec::<Rule>::new());
        actor.revive(&world.chronicle).await?;
        actor.replica.lock().await.wait_ready(DEADLINE).await?;
    }
    for volume in world.stage.scope.volumes().await? {
        if volume.finalizers().iter().any(|finalizer| finalizer == HOLD) {
            // It may be gone: with a known bug nothing holds it.
            let _ = work::let_go(world, &volume).await;
        }
    }
    odd::heal(world).await?;
    world.chronicle.tell("harness", What::Healed);
    Ok(())
}

/// Waits until all claims are Bound, deletes them, waits until nothing is left.
///
/// # Errors
/// If the API server does not answer; within, what does not come to its end in time.
pub(super) async fn come_to_rest(world: &World<'_>, bound: Duration) -> Result<Result<(), Violation>> {
    let healed = Instant::now();
    let bound_all = async || Ok(waiting(world).await?.or(early(healed)));
    if let Some(words) = settle(world, bound, bound_all).await? {
        return Ok(Err(violation(ClaimsEnd, words)));
    }
    for claim in world.stage.scope.claims().list(&ListParams::default()).await? {
        world.stage.scope.claims().delete(&claim.name_any(), &DeleteParams::default()).await?;
    }
    if let Some(words) = settle(world, bound, async || remains(world).await).await? {
        return Ok(Err(violation(DeletionsEnd, words)));
    }
    let kept = odd::take_dropped(world);
    Ok(kept.map_err(|error| violation(NothingPreciousDeleted, format!("{error:#}"))))
}

fn violation(invariant: Invariant, words: String) -> Violation {
    Violation { invariant, at: clock::raw_nanos(), words }
}

fn early(healed: Instant) -> Option<String> {
    (healed.elapsed() < LINGERING).then(|| "calls may still go on".to_owned())
}

/// Waits until `flaw` finds none, and again none after two more audits. What it still finds when the time is over.
async fn settle(
    world: &World<'_>,
    bound: Duration,
    flaw: impl AsyncFn() -> Result<Option<String>>,
) -> Result<Option<String>> {
    let started = Instant::now();
    loop {
        let found = match flaw().await? {
            None => {
                audits(world, 2).await?;
                flaw().await?
            }
            found => found,
        };
        let Some(found) = found else { return Ok(None) };
        if started.elapsed() > bound {
            return Ok(Some(format!("{bound:?} after everything was healed: {found}")));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn audits(world: &World<'_>, count: usize) -> Result<()> {
    let ledger = &world.stage.ledger;
    let so_far = ledger.begun("list")?.len();
    ledger.wait_begun("list", so_far + count, DEADLINE).await.map(drop).context("nobody audits")
}

/// A claim that should be Bound and is not, or an asset without its volume.
async fn waiting(world: &World<'_>) -> Result<Option<String>> {
    let scope = &world.stage.scope;
    let claims = scope.claims().list(&ListParams::default()).await?;
    let wait = claims.iter().find(|claim| !work::is_bound(claim) && !Kind::is_hopeless(&claim.name_any()));
    if let Some(claim) = wait {
        return Ok(Some(format!("claim {} waits", claim.name_any())));
    }
    let volumes = scope.volumes().await?;
    let stuck = volumes.iter().find(|volume| phase(volume) == "Released" && policy(volume) == "Delete");
    Ok(stuck.map(|volume| format!("volume {} is Released", volume.name_any())).or(leaks(world, &volumes)?))
}

/// Claims, volumes that should have gone, and assets without a volume.
async fn remains(world: &World<'_>) -> Result<Option<String>> {
    let scope = &world.stage.scope;
    let claims = scope.claims().list(&ListParams::default()).await?;
    if let Some(claim) = claims.iter().next() {
        return Ok(Some(format!("claim {} is there", claim.name_any())));
    }
    let volumes = scope.volumes().await?;
    let holds = |volume: &&PersistentVolume| volume.finalizers().iter().any(|it| it == FINALIZER);
    let left = volumes.iter().find(|volume| policy(volume) != "Retain" || holds(volume));
    Ok(left.map(|volume| format!("volume {} is there", volume.name_any())).or(leaks(world, &volumes)?))
}

/// After a restore nobody may delete what the restored state does not know; and what it knows may be gone.
fn leaks(world: &World<'_>, volumes: &[PersistentVolume]) -> Result<Option<String>> {
    if *world.restored.borrow() > 0 {
        return Ok(None);
    }
    let volumes = volumes.iter().map(ResourceExt::name_any).chain(odd::dropped(world));
    let volumes: BTreeSet<String> = volumes.collect();
    let assets = world.stage.ledger.assets()?;
    let without: Vec<&String> = assets.symmetric_difference(&volumes).collect();
    Ok((!without.is_empty()).then(|| format!("assets without a volume, or volumes without: {without:?}")))
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn policy(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()).unwrap_or_default()
}
