//! Watching one kind of object: the stream of kube-runtime, with our backoff and in batches.

use std::{fmt::Debug, time::Duration};

use futures::{Stream, StreamExt};
use kube_runtime::watcher::{self, Event};

use super::{clients, with_sources};
use crate::lifecycle::retry::Backoff;

/// Objects per page of a list: bounds what is decoded at a time.
const PAGE: u32 = 250;
/// The most changes in one batch, and so in one message.
const BATCH: usize = 256;

/// What is new about a kind of object.
#[derive(Debug)]
pub enum News<T> {
    /// A list begins: what it does not bring is gone.
    Relisting,
    /// An object as it is now.
    Seen(T),
    /// An object is gone; this is what it was.
    Gone(T),
    /// The list is complete.
    Synced,
    /// The watch is broken for this reason; it is tried again.
    Broken(String),
}

/// The settings of every watch.
#[must_use]
pub fn config() -> watcher::Config {
    watcher::Config::default().timeout(clients::WATCH_TIMEOUT_SECONDS).page_size(PAGE)
}

/// Turns a stream of kube-runtime into batches of news, each object slimmed by `slim` at once. Waits
/// between failures. The stream does not end.
pub fn batches<K, T>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    slim: impl Fn(K) -> T + Send + 'static,
) -> impl Stream<Item = Vec<News<T>>> + Send
where
    K: Debug + Send + 'static,
    T: Send + 'static,
{
    let mut failures = 0_u32;
    events
        .then(move |event| {
            let wait = pause(&event, &mut failures);
            async move {
                if let Some(wait) = wait {
                    tokio::time::sleep(wait).await;
                }
                event
            }
        })
        .map(move |event| news(event, &slim))
        .ready_chunks(BATCH)
}

/// How long to wait after this event. Only an object or a complete list shows that the server is well:
/// the start of a list is announced before it is tried.
fn pause<K>(event: &Result<Event<K>, watcher::Error>, failures: &mut u32) -> Option<Duration> {
    match event {
        Ok(Event::Init) => None,
        Ok(_) => {
            *failures = 0;
            None
        }
        Err(_) => {
            *failures = failures.saturating_add(1);
            Some(Backoff::WATCH.wait(*failures, crate::clock::jitter()))
        }
    }
}

fn news<K, T>(event: Result<Event<K>, watcher::Error>, slim: &impl Fn(K) -> T) -> News<T> {
    match event {
        Ok(Event::Init) => News::Relisting,
        Ok(Event::Apply(object) | Event::InitApply(object)) => News::Seen(slim(object)),
        Ok(Event::Delete(object)) => News::Gone(slim(object)),
        Ok(Event::InitDone) => News::Synced,
        Err(error) => News::Broken(with_sources(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(events: Vec<Result<Event<u32>, watcher::Error>>) -> impl Stream<Item = Vec<News<u32>>> + Send {
        batches(futures::stream::iter(events), |n| n * 10)
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_slimmed_and_batched() {
        let events = vec![Ok(Event::Init), Ok(Event::InitApply(2)), Ok(Event::InitDone)];
        let batches: Vec<_> = stream(events).collect().await;
        assert_eq!(format!("{batches:?}"), "[[Relisting, Seen(20), Synced]]");
    }

    #[tokio::test(start_paused = true)]
    async fn failing_lists_are_slowed_down_although_each_begins_well() {
        let fail = || Err(watcher::Error::NoResourceVersion);
        let events = vec![Ok(Event::Init), fail(), Ok(Event::Init), fail(), Ok(Event::Init), fail()];
        let begin = tokio::time::Instant::now();
        stream(events).collect::<Vec<_>>().await;
        assert!(begin.elapsed() >= Duration::from_millis(450 + 900 + 1800));
    }
}
