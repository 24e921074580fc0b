//! A watch of claims and volumes by the harness itself, past the proxies: what the cluster was like, and when.

use std::{collections::BTreeMap, pin::pin};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    ResourceExt,
    api::ListParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};

use super::{odd, plan::Kind, work, world::World};
use crate::{
    history::{Object, What},
    wait::{SoonAgain, Watched},
};

/// What of an object is told.
pub(super) trait Told: Watched {
    /// As a history tells it.
    fn told(&self) -> Object;
    /// Whether it is told at all.
    fn is_ours(&self, world: &World<'_>) -> bool;
}

impl Told for PersistentVolumeClaim {
    fn told(&self) -> Object {
        let phase = self.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let volume = self.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let hopeless = Kind::is_hopeless(&self.name_any());
        Object { kind: "claim".to_owned(), phase, other: volume, hopeless, ..common(self) }
    }

    fn is_ours(&self, _: &World<'_>) -> bool {
        true
    }
}

impl Told for PersistentVolume {
    fn told(&self) -> Object {
        let spec = self.spec.clone().unwrap_or_default();
        Object {
            kind: "volume".to_owned(),
            phase: self.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default(),
            policy: spec.persistent_volume_reclaim_policy.unwrap_or_default(),
            other: spec.claim_ref.and_then(|claim| claim.uid).unwrap_or_default(),
            ..common(self)
        }
    }

    fn is_ours(&self, world: &World<'_>) -> bool {
        let claim = self.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        claim.and_then(|claim| claim.namespace.as_deref()) == Some(world.stage.scope.namespace())
    }
}

fn common(object: &impl ResourceExt) -> Object {
    Object {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        version: object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default(),
        finalizers: object.finalizers().to_vec(),
        deleting: object.meta().deletion_timestamp.is_some(),
        ..Object::default()
    }
}

/// Watches claims and volumes until it is dropped, and does the scheduler's part.
pub(super) async fn watch(world: &World<'_>) {
    let claims = world.stage.scope.claims();
    let choose = async |claim: &PersistentVolumeClaim| {
        if work::needs_node(claim) {
            // It is tried again whenever the claim is shown again.
            let _ = odd::select(world, &claim.name_any()).await;
        }
    };
    let nothing = async |_: &PersistentVolume| ();
    tokio::join!(
        follow(world, claims.clone(), choose),
        follow(world, world.stage.scope.all_volumes(), nothing)
    );
}

/// A watch that goes on from what a restore has undone would wait for it to come again.
async fn follow<K: Told>(world: &World<'_>, api: kube::Api<K>, then: impl AsyncFn(&K)) {
    let mut restored = world.restored.subscribe();
    let mut view = View::default();
    loop {
        restored.mark_unchanged();
        tokio::select! {
            () = follow_on(world, api.clone(), &mut view, &then) => return,
            _ = restored.changed() => {}
        }
    }
}

async fn follow_on<K: Told>(world: &World<'_>, api: kube::Api<K>, view: &mut View, then: &impl AsyncFn(&K)) {
    let events = watcher(api, watcher::Config::default()).backoff(SoonAgain);
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let shown = match &event {
            Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => Some(object),
            Event::Init | Event::InitDone => None,
        };
        if shown.is_some_and(|object| !object.is_ours(world)) {
            continue;
        }
        for object in view.take(&event) {
            // An older state of etcd may know nothing of a finalizer.
            if object.kind == "volume" && *world.restored.borrow() == 0 {
                world.holds.see(&object);
            }
            world.chronicle.tell("cluster", What::Object(object));
        }
        if let Event::Apply(object) | Event::InitApply(object) = &event {
            then(object).await;
        }
    }
}

/// What was told last, so that nothing is told twice, and what went unseen is told at all.
#[derive(Default)]
struct View {
    known: BTreeMap<String, Object>,
    /// While a list is read: what it has not shown yet.
    missing: Option<BTreeMap<String, Object>>,
}

impl View {
    /// What is to be told of an event.
    fn take<K: Told>(&mut self, event: &Event<K>) -> Vec<Object> {
        match event {
            Event::Init => self.missing = Some(self.known.clone()),
            Event::InitApply(object) | Event::Apply(object) => {
                let object = object.told();
                if let Some(missing) = &mut self.missing {
                    missing.remove(&object.uid);
                }
                let before = self.known.insert(object.uid.clone(), object.clone());
                return (before.as_ref() != Some(&object)).then_some(object).into_iter().collect();
            }
            Event::InitDone => {
                let gone = self.missing.take().unwrap_or_default().into_values();
                return gone.map(|object| self.gone(object)).collect();
            }
            Event::Delete(object) => return vec![self.gone(object.told())],
        }
        Vec::new()
    }

    fn gone(&mut self, object: Object) -> Object {
        self.known.remove(&object.uid);
        Object { gone: true, ..object }
    }
}

/// Tells of all claims and volumes that there are.
pub(super) async fn tell_all(world: &World<'_>) -> Result<()> {
    let scope = &world.stage.scope;
    let claims = scope.claims().list(&ListParams::default()).await?.items;
    let volumes = scope.all_volumes().list(&ListParams::default()).await?.items;
    let volumes = volumes.iter().filter(|volume| volume.is_ours(world)).map(Told::told);
    for object in claims.iter().map(Told::told).chain(volumes) {
        world.chronicle.tell("cluster", What::Object(object));
    }
    Ok(())
}
