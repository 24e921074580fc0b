//! The Watcher actor of one kind: passes on what its watch brings, in order, to every Arbiter.

use std::{fmt::Debug, sync::Arc};

use actix::prelude::*;
use futures::{Stream, StreamExt};

use super::{Pulse, Turn};
use crate::{
    actors::arbiter::{Kind, News},
    cluster::watch,
    telemetry::{health::Health, metrics::Metrics},
};

/// Says that everything is to be listed anew.
pub type Anew = tokio::sync::watch::Receiver<()>;

/// How a batch of one kind becomes the Arbiter's message.
pub type Wrap<T> = fn(Arc<Vec<watch::News<Arc<T>>>>) -> News;

/// See the module.
pub struct WatcherActor<T> {
    kind: Kind,
    wrap: Wrap<T>,
    arbiters: Vec<Recipient<News>>,
    health: Health,
    metrics: Metrics,
    pulse: Pulse,
}

impl<T> WatcherActor<T>
where
    T: Debug + Send + Sync + Unpin + 'static,
{
    /// A Watcher of `kind` that tells `arbiters`.
    #[must_use]
    pub fn new(
        kind: Kind,
        wrap: Wrap<T>,
        arbiters: Vec<Recipient<News>>,
        health: Health,
        metrics: Metrics,
    ) -> Self {
        health.expect_watch(kind.as_str());
        Self { kind, wrap, arbiters, health, metrics, pulse: Pulse::default() }
    }

    /// Follows what `begin` begins on the runtime's workers, and begins anew whenever `anew` says so: a watch from a
    /// version that a restored store has not reached would keep silent until it has, and miss what was before. A batch
    /// is taken when the one before it has reached every Arbiter, so that a busy Arbiter slows its watch and nothing
    /// piles up.
    pub fn follow<S>(me: &Addr<Self>, mut anew: Anew, begin: impl Fn() -> S + Send + 'static)
    where
        S: Stream<Item = Vec<watch::News<Arc<T>>>> + Send + 'static,
    {
        let me = me.clone();
        tokio::spawn(async move {
            loop {
                let mut batches = std::pin::pin!(begin());
                loop {
                    let batch = tokio::select! {
                        biased;
                        Ok(()) = anew.changed() => break,
                        batch = batches.next() => batch,
                    };
                    let Some(batch) = batch else { return };
                    if me.send(Batch(batch)).await.is_err() {
                        return;
                    }
                }
            }
        });
    }

    fn turned(&self, turn: Option<Turn>) {
        let kind = self.kind.as_str();
        match turn {
            Some(Turn::Broke(reason)) => tracing::warn!(kind, reason, "the watch is broken, trying again"),
            Some(Turn::Healed) => tracing::info!(kind, "the watch works again"),
            None => return,
        }
        self.health.problem(&format!("watch/{kind}"), self.pulse.problem());
    }

    fn note(&mut self, news: &watch::News<Arc<T>>) {
        let kind = self.kind.as_str();
        match news {
            watch::News::Broken(reason) => {
                let turn = self.pulse.broke(reason);
                self.turned(turn);
            }
            watch::News::Relisting => self.metrics.cluster.relisted(kind),
            watch::News::Synced => self.health.watch_synced(kind),
            watch::News::Seen(_) | watch::News::Gone(_) => self.metrics.cluster.watch_heard(kind),
        }
    }
}

impl<T: Unpin + 'static> Actor for WatcherActor<T> {
    type Context = Context<Self>;
}

/// A batch of news.
#[derive(Message)]
#[rtype(result = "()")]
struct Batch<T>(Vec<watch::News<Arc<T>>>);

impl<T> Handler<Batch<T>> for WatcherActor<T>
where
    T: Debug + Send + Sync + Unpin + 'static,
{
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Batch(batch): Batch<T>, _: &mut Self::Context) -> Self::Result {
        batch.iter().for_each(|news| self.note(news));
        let batch = Arc::new(batch);
        let sends: Vec<_> = self.arbiters.iter().map(|to| to.send((self.wrap)(batch.clone()))).collect();
        Box::pin(async move { drop(futures::future::join_all(sends).await) })
    }
}

/// The server began to answer a request of this watch.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Watched;

impl<T> Handler<Watched> for WatcherActor<T>
where
    T: Debug + Send + Sync + Unpin + 'static,
{
    type Result = ();

    fn handle(&mut self, _: Watched, _: &mut Self::Context) {
        self.metrics.cluster.watch_heard(self.kind.as_str());
        let turn = self.pulse.heard();
        self.turned(turn);
    }
}
