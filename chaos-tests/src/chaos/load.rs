//! A light load of claims, and a watch on the volumes that are made of them: when each was seen, and who made it.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};

use super::cast::Cast;

/// A volume, at the moment when its creation was seen.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// On the monotonic clock of this process, when the watch delivered it.
    pub at: Instant,
    /// The candidate whose directory it is.
    pub maker: String,
}

/// The volumes of one cast in the order in which the watch showed them.
pub struct Sightings {
    seen: Arc<Mutex<Vec<Sighting>>>,
    count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Sightings {
    /// Begins to watch the volumes of `cast`.
    #[must_use]
    pub fn follow(cast: &Cast<'_>) -> Self {
        let seen = Arc::<Mutex<Vec<Sighting>>>::default();
        let (told, count) = watch::channel(0);
        let (volumes, directory) = (cast.scope.all_volumes(), cast.scope.directory().to_owned());
        let list = seen.clone();
        let task = tokio::spawn(async move {
            let mut known = HashSet::new();
            let events = watcher(volumes, watcher::Config::default()).default_backoff().applied_objects();
            pin_mut!(events);
            while let Some(event) = events.next().await {
                let Ok(volume) = event else { continue };
                let at = Instant::now();
                let Some(maker) = maker(&volume, &directory) else { continue };
                if known.insert(volume.name_any()) {
                    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
                    list.push(Sighting { at, maker });
                    told.send_replace(list.len());
                }
            }
        });
        Self { seen, count, task }
    }

    /// All so far.
    #[must_use]
    pub fn all(&self) -> Vec<Sighting> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the first volume after `since` that `wanted` accepts.
    ///
    /// # Errors
    /// If there is none within `deadline`.
    pub async fn first(
        &self,
        since: Instant,
        deadline: Duration,
        wanted: impl Fn(&Sighting) -> bool,
    ) -> Result<Sighting> {
        let mut count = self.count.clone();
        let search = async {
            loop {
                count.borrow_and_update();
                let found = self.all().into_iter().find(|sighting| sighting.at > since && wanted(sighting));
                if let Some(found) = found {
                    return Ok(found);
                }
                count.changed().await.context("the watch on volumes has ended")?;
            }
        };
        let found = timeout(deadline, search).await;
        found.with_context(|| format!("no volume that was waited for within {deadline:?}"))?
    }

    /// Waits for the first volume after `since` that `maker` made.
    ///
    /// # Errors
    /// If there is none within `deadline`.
    pub async fn first_of(&self, maker: &str, since: Instant, deadline: Duration) -> Result<Sighting> {
        let found = self.first(since, deadline, |sighting| sighting.maker == maker).await;
        found.with_context(|| format!("{maker} makes no volumes"))
    }

    /// The makers in the order in which they took turns.
    #[must_use]
    pub fn turns(&self) -> Vec<String> {
        let mut turns: Vec<String> = self.all().into_iter().map(|sighting| sighting.maker).collect();
        turns.dedup();
        turns
    }
}

impl Drop for Sightings {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `<directory>/<maker>/<volume>`
fn maker(volume: &PersistentVolume, directory: &Path) -> Option<String> {
    let path = &volume.spec.as_ref()?.host_path.as_ref()?.path;
    let maker = Path::new(path).strip_prefix(directory).ok()?.components().next()?;
    Some(maker.as_os_str().to_string_lossy().into_owned())
}

/// Claims that are created one after the other until this is dropped.
pub struct Load(JoinHandle<()>);

impl Load {
    /// Creates a claim of `cast` each `every`. A claim that the API server does not take is left out.
    #[must_use]
    pub fn start(cast: &Cast<'_>, every: Duration) -> Self {
        let (claims, class) = (cast.scope.claims(), cast.class.clone());
        Self(tokio::spawn(async move {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for number in 0_u64.. {
                ticks.tick().await;
                let claim = crate::cluster::claim(&format!("load-{number}"), &class);
                let created =
                    timeout(Duration::from_secs(5), claims.create(&Default::default(), &claim)).await;
                if !matches!(created, Ok(Ok(_))) {
                    tracing::debug!(number, ?created, "a claim of the load was not created");
                }
            }
        }))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.abort();
    }
}
