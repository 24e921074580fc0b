//! When a watch showed each claim Bound, and each claim's volume.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{cluster::Scope, wait::Watched};

/// By the claim's name.
type Seen = BTreeMap<String, Instant>;

/// Two watches that go on until this is dropped.
pub(super) struct Sightings {
    volumes: watch::Receiver<Seen>,
    bound: watch::Receiver<Seen>,
    tasks: [JoinHandle<()>; 2],
}

impl Sightings {
    /// Begins to watch the claims of `scope` and their volumes.
    pub(super) fn follow(scope: &Scope<'_>) -> Self {
        let namespace = scope.namespace().to_owned();
        let (volumes, volumes_task) = follow(scope.all_volumes(), move |volume| claim_of(volume, &namespace));
        let (bound, bound_task) = follow(scope.claims(), bound_name);
        Self { volumes, bound, tasks: [volumes_task, bound_task] }
    }

    /// Waits until all these claims are Bound and their volumes seen.
    pub(super) async fn wait(&self, names: &[String], deadline: Duration) -> Result<()> {
        let all = |seen: &Seen| names.iter().all(|name| seen.contains_key(name));
        for (what, seen) in [("have no volume", &self.volumes), ("are not Bound", &self.bound)] {
            let mut watched = seen.clone();
            let waited = timeout(deadline, watched.wait_for(all)).await;
            let missing = || names.iter().filter(|name| !seen.borrow().contains_key(*name)).count();
            waited.with_context(|| {
                format!("{} of {} claims {what} after {deadline:?}", missing(), names.len())
            })??;
        }
        Ok(())
    }

    /// When each claim's volume was seen.
    pub(super) fn volumes(&self) -> Seen {
        self.volumes.borrow().clone()
    }

    /// When each claim was seen Bound.
    pub(super) fn bound(&self) -> Seen {
        self.bound.borrow().clone()
    }
}

impl Drop for Sightings {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Notes the first sight of what `claim` recognises.
fn follow<K: Watched>(
    api: Api<K>,
    claim: impl Fn(&K) -> Option<String> + Send + 'static,
) -> (watch::Receiver<Seen>, JoinHandle<()>) {
    let (told, seen) = watch::channel(Seen::new());
    let task = tokio::spawn(async move {
        let events = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
        pin_mut!(events);
        while let Some(event) = events.next().await {
            let now = Instant::now();
            let Some(name) = event.ok().as_ref().and_then(&claim) else { continue };
            told.send_if_modified(|seen| match seen.contains_key(&name) {
                true => false,
                false => seen.insert(name, now).is_none(),
            });
        }
    });
    (seen, task)
}

fn claim_of(volume: &PersistentVolume, namespace: &str) -> Option<String> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    claim.name.clone().filter(|_| claim.namespace.as_deref() == Some(namespace))
}

fn bound_name(claim: &PersistentVolumeClaim) -> Option<String> {
    let bound = claim.status.as_ref()?.phase.as_deref() == Some("Bound");
    bound.then(|| claim.name_any())
}
