//! The watch on the Lease: it feeds the machine's observation, and is what makes a standby act at once.
//!
//! Nothing rests on it: a watch that is late, cut or missing only makes a takeover later.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube_runtime::{
    WatchStreamExt as _,
    utils::Backoff,
    watcher::{self, Event},
};

use tokio::sync::watch;

use super::{
    LeaseStatus,
    desk::{Desk, Reporter},
    options::jitter,
    trouble::Trouble,
    wire,
};

/// The server ends a watch after so long. A half-open connection is noticed a few seconds later.
const WATCH_SECONDS: u32 = 25;

/// Reads of the watch's connection may take so long: the watch itself and 5 s for the server's slowness.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

/// The pause before a watch that failed is tried again, and what chance may add to it. It does not grow:
/// one LIST of one object per second is no burden, and every pause delays a takeover.
const RETRY: Duration = Duration::from_millis(500);

struct Pauses;

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(RETRY + jitter(RETRY))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {}
}

/// Follows the Lease until it is dropped.
pub(super) async fn follow(api: Api<Lease>, name: &str, desk: Arc<Desk>) {
    let mut status = desk.subscribe();
    loop {
        // A watch from a version that the restored store has not reached keeps silent until it has.
        tokio::select! {
            () = follow_once(api.clone(), name, &desk) => {}
            () = restored(&mut status) => {}
        }
    }
}

async fn restored(status: &mut watch::Receiver<LeaseStatus>) {
    let seen = status.borrow_and_update().restores;
    while status.changed().await.is_ok() {
        if status.borrow_and_update().restores != seen {
            return;
        }
    }
    std::future::pending().await
}

async fn follow_once(api: Api<Lease>, name: &str, desk: &Desk) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let mut events = std::pin::pin!(watcher::watcher(api, config).backoff(Pauses));
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => take_in(event, desk),
            Err(error) => failed(&error, desk),
        }
    }
}

fn take_in(event: Event<Lease>, desk: &Desk) {
    match event {
        // Comes before each LIST, so it does not say that anything works.
        Event::Init => {}
        Event::InitDone => desk.report(Reporter::Watch, None),
        Event::Apply(lease) | Event::InitApply(lease) => {
            desk.report(Reporter::Watch, None);
            tell(desk, &lease, |machine, now, stored| machine.watched(now, stored));
        }
        Event::Delete(lease) => {
            tell(desk, &lease, |machine, now, stored| machine.watched_deletion(now, stored.version));
        }
    }
}

fn tell(
    desk: &Desk,
    lease: &Lease,
    input: impl FnOnce(&mut super::machine::Machine, crate::clock::BootTime, super::machine::Stored),
) {
    let read = serde_json::to_value(lease).ok().and_then(|lease| wire::read(&lease).ok());
    if let Some(stored) = read {
        desk.with(|machine, now| input(machine, now, stored));
    }
}

/// Only a missing permission is reported: it stays until somebody acts. The rest passes by itself, and the
/// attempts tell of an API server that is away.
fn failed(error: &watcher::Error, desk: &Desk) {
    tracing::debug!(lease = desk.lease(), %error, "watch failed");
    let (verb, status) = match error {
        watcher::Error::InitialListFailed(error) => ("list", status_of(error)),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            ("watch", status_of(error))
        }
        watcher::Error::WatchError(status) => ("watch", Some(status.code)),
        _ => return,
    };
    if let Some(trouble @ Trouble::Forbidden { .. }) = status.and_then(|code| Trouble::of_status(verb, code))
    {
        desk.report(Reporter::Watch, Some(trouble.describe(desk.lease())));
    }
}

fn status_of(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
