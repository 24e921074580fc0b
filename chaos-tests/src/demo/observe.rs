//! Watches claims, volumes and the Lease, and keeps a `World` up to date.

use std::{pin::pin, time::Instant};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{PersistentVolume, PersistentVolumeClaim},
};
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::{sync::watch, task::JoinHandle};

use super::world::World;

/// What is watched.
pub(super) struct Subjects {
    /// The namespace of the claims.
    pub(super) claims: &'static str,
    /// Whose volumes: the name of the provisioner, which is the name of its Lease as well.
    pub(super) provisioner: &'static str,
    /// The namespace of the Lease.
    pub(super) lease: &'static str,
}

/// A watch that goes on until this value is dropped.
pub(super) struct Observer {
    world: watch::Receiver<World>,
    task: JoinHandle<()>,
}

impl Observer {
    pub(super) fn start(client: &Client, subjects: &Subjects) -> Self {
        let (sender, world) = watch::channel(World::default());
        let changes = changes(client, subjects);
        let task = tokio::spawn(async move {
            let mut changes = pin!(changes);
            while let Some(change) = changes.next().await {
                sender.send_modify(|world| change(world, Instant::now()));
            }
        });
        Self { world, task }
    }

    /// The world as it is now.
    pub(super) fn world(&self) -> World {
        self.world.borrow().clone()
    }

    /// Completes when the world has changed since it was last looked at through this method.
    pub(super) async fn changed(&mut self) -> anyhow::Result<()> {
        Ok(self.world.changed().await?)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Change = Box<dyn FnOnce(&mut World, Instant) + Send>;

fn changes(client: &Client, subjects: &Subjects) -> impl Stream<Item = Change> + Send + use<> {
    let Subjects { claims, provisioner, lease } = *subjects;
    let config = watcher::Config::default;
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), claims);
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let leases = Api::<Lease>::namespaced(client.clone(), lease);
    let lease_only = config().fields(&format!("metadata.name={provisioner}"));
    let volumes = objects(watcher(volumes, config()))
        .filter(move |(volume, _)| std::future::ready(is_of(volume, provisioner)));
    let changes = [
        objects(watcher(claims, config())).map(|(claim, there)| about_claim(&claim, there)).boxed(),
        volumes.map(|(volume, there)| about_volume(&volume, there)).boxed(),
        objects(watcher(leases, lease_only)).map(|(lease, _)| about_lease(&lease)).boxed(),
    ];
    stream::select_all(changes)
}

/// The objects, each with whether it is there. A failed watch starts again by itself; who waits has a deadline.
fn objects<K: Clone + Send>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
) -> impl Stream<Item = (K, bool)> + Send {
    events.default_backoff().filter_map(async |event| match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => Some((object, true)),
        Ok(Event::Delete(object)) => Some((object, false)),
        Ok(Event::Init | Event::InitDone) | Err(_) => None,
    })
}

fn is_of(volume: &PersistentVolume, provisioner: &str) -> bool {
    volume.annotations().get("pv.kubernetes.io/provisioned-by").is_some_and(|name| name == provisioner)
}

fn about_claim(claim: &PersistentVolumeClaim, there: bool) -> Change {
    let (name, uid) = (claim.name_any(), claim.uid().unwrap_or_default());
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let (bound, deleting) = (phase == Some("Bound"), claim.metadata.deletion_timestamp.is_some());
    Box::new(move |world, now| match there {
        true => world.claim_seen(&name, &uid, bound, deleting, now),
        false => world.claim_gone(&name),
    })
}

fn about_volume(volume: &PersistentVolume, there: bool) -> Change {
    let (name, version) = (volume.name_any(), version(volume));
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let claim_uid = claim.and_then(|claim| claim.uid.clone()).unwrap_or_default();
    Box::new(move |world, now| match there {
        true => world.volume_seen(&name, &claim_uid, version, now),
        false => world.volume_gone(&name),
    })
}

fn about_lease(lease: &Lease) -> Change {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    let version = version(lease);
    Box::new(move |world, _| world.lease_seen(&holder, version))
}

fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}
