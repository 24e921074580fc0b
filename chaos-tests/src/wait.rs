//! Waiting for objects to become what a test expects: by watch, with a deadline, never by sleeping.

use std::{fmt::Debug, pin::pin, time::Duration};

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt, TryStreamExt};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, watch_object, watcher},
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// Tests break the API server on purpose; a watch that lost it is soon back after it.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// What can be waited for.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static
{
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static> Watched
    for K
{
}

/// Watches the object `name` until `condition` holds for it, and returns it as it was then.
///
/// # Errors
/// If `deadline` passes first; the message shows the object as it was last seen.
pub async fn until<K: Watched>(
    api: &Api<K>,
    name: &str,
    deadline: Duration,
    condition: impl Fn(&K) -> bool,
) -> Result<K> {
    let met = until_state(api, name, deadline, |object| object.is_some_and(&condition)).await?;
    met.with_context(|| format!("{} {name} is gone", K::kind(&())))
}

/// Watches until the object `name` exists.
///
/// # Errors
/// If `deadline` passes first.
pub async fn until_exists<K: Watched>(api: &Api<K>, name: &str, deadline: Duration) -> Result<K> {
    until(api, name, deadline, |_| true).await
}

/// Watches until the object `name` does not exist.
///
/// # Errors
/// If `deadline` passes first; the message shows the object as it was last seen.
pub async fn until_gone<K: Watched>(api: &Api<K>, name: &str, deadline: Duration) -> Result<()> {
    until_state(api, name, deadline, |object| object.is_none()).await.map(drop)
}

/// Watches the objects that the field selector `fields` picks until `condition` holds for one, and returns it.
///
/// # Errors
/// If `deadline` passes first; the message shows the object that was seen last.
pub async fn until_any<K: Watched>(
    api: &Api<K>,
    fields: &str,
    deadline: Duration,
    condition: impl Fn(&K) -> bool,
) -> Result<K> {
    let states =
        watcher(api.clone(), watcher::Config::default().fields(fields)).applied_objects().map_ok(Some);
    let found = first_match(states, deadline, |object| object.is_some_and(&condition)).await;
    let found = found.with_context(|| format!("no {} with {fields} is as expected", K::kind(&())))?;
    found.with_context(|| format!("the {} with {fields} is gone", K::kind(&())))
}

async fn until_state<K: Watched>(
    api: &Api<K>,
    name: &str,
    deadline: Duration,
    condition: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>> {
    let found = first_match(watch_object(api.clone(), name), deadline, condition).await;
    found.with_context(|| format!("{} {name} is not as expected", K::kind(&())))
}

async fn first_match<K: Watched>(
    states: impl Stream<Item = watcher::Result<Option<K>>>,
    deadline: Duration,
    condition: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>> {
    let mut seen = Last::Nothing;
    let search = async {
        let mut states = pin!(states.backoff(SoonAgain));
        while let Some(state) = states.next().await {
            match state {
                Ok(state) if condition(state.as_ref()) => return Ok(state),
                Ok(state) => seen = Last::State(state),
                Err(error) => seen = Last::Failure(error),
            }
        }
        bail!("the watch has ended")
    };
    let found = tokio::time::timeout(deadline, search).await;
    found.unwrap_or_else(|_| bail!("{deadline:?} have passed; last seen: {}", seen.describe()))
}

/// What the watch showed last, for the message of a wait that failed.
enum Last<K> {
    Nothing,
    State(Option<K>),
    Failure(watcher::Error),
}

impl<K: Serialize> Last<K> {
    fn describe(&self) -> String {
        match self {
            Self::Nothing => "no answer of the API server".to_owned(),
            Self::State(None) => "no such object".to_owned(),
            Self::State(Some(object)) => {
                serde_json::to_string(object).unwrap_or_else(|error| error.to_string())
            }
            Self::Failure(error) => format!("a failed watch: {error}"),
        }
    }
}

/// The backoff of a watch that is soon back.
pub(crate) struct SoonAgain;

impl Iterator for SoonAgain {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(RETRY_AFTER)
    }
}

impl Backoff for SoonAgain {
    fn reset(&mut self) {}
}
