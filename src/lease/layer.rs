//! The tower service around the calls of kube-leader-election: it shows the crate what the machine decides,
//! completes its writes, and tells the machine how they ended.
//!
//! It decides nothing. One [`LeaseWire`] serves exactly one `LeaseLock`, whose calls come one at a time.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, Service};

#[cfg(test)]
use super::machine::slips;
use super::{
    desk::Desk,
    machine::{Fate, Kind, Shown, Stamp},
    trouble::{Trouble, Troubles},
    wire::{self, Marks},
};

/// A client for kube-leader-election alone.
#[derive(Clone)]
pub(super) struct LeaseWire {
    /// The client that reaches the API server: no retry of its own, short timeouts, own connections.
    pub(super) server: kube::Client,
    pub(super) desk: Arc<Desk>,
    pub(super) marks: Arc<Marks>,
    pub(super) name: Arc<str>,
    pub(super) lease: Duration,
    pub(super) troubles: Arc<Troubles>,
}

impl Service<Request<Body>> for LeaseWire {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wire = self.clone();
        async move {
            match *request.method() {
                Method::GET => wire.read(request).await,
                Method::PATCH => wire.write(request).await,
                // Nothing else is expected: an absent Lease is never shown as absent.
                _ => Ok(conflict()),
            }
        }
        .boxed()
    }
}

impl LeaseWire {
    async fn read(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let path = request.uri().path().to_owned();
        let found = self.read_once(&path, request).await?;
        // What is told changes the Lease: the next write builds on it as it is then.
        if self.tell_of_restore(&path).await? {
            return self.read_once(&path, Request::get(&path).body(Body::empty())?).await;
        }
        Ok(found)
    }

    /// Writes into the Lease that the store was restored, if that is known and does not stand there. Whether it did.
    /// Leader or not: whoever finds it out may be the only one who can.
    async fn tell_of_restore(&self, path: &str) -> Result<bool, BoxError> {
        let now = wire::wall_stamp();
        let patch = self.desk.with(|machine, _| {
            machine.untold().map(|(relapse, found)| self.marks.restored(found, relapse, now))
        });
        let Some(patch) = patch else { return Ok(false) };
        let request = Request::patch(path)
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(Body::from(serde_json::to_vec(&patch)?))?;
        let (status, body) = self.send("patch", request).await?;
        if !status.is_success() {
            return Ok(false);
        }
        let stored = wire::read(&serde_json::from_slice(&body)?)?;
        self.desk.with(|machine, now| machine.told(now, stored));
        Ok(true)
    }

    async fn read_once(&self, path: &str, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let ticket = self.desk.with(|machine, _| machine.begin_read());
        let (status, body) = self.send("get", request).await?;
        match status {
            StatusCode::OK => {
                let mut lease: Value = serde_json::from_slice(&body).unwrap_or_default();
                let stored = wire::read(&lease).inspect_err(|_| self.troubles.note(Trouble::Unreadable))?;
                let shown = self.desk.with(|machine, now| machine.end_read(now, ticket, Some(stored)));
                self.show(&mut lease, shown);
                Ok(answer(StatusCode::OK, &lease))
            }
            StatusCode::NOT_FOUND => {
                let shown = self.desk.with(|machine, now| machine.end_read(now, ticket, None));
                if shown == Shown::Absent {
                    self.make_vacant(path).await?;
                }
                Ok(answer(StatusCode::OK, &wire::absent(&self.name, &self.marks.me)))
            }
            _ => Ok(raw(status, body)),
        }
    }

    fn show(&self, lease: &mut Value, shown: Shown) {
        #[cfg(test)]
        if self.desk.with(|machine, _| slips!(machine, MissingFieldsKept)) {
            return super::tests::show_without_filling(lease, &self.marks.me, shown);
        }
        wire::show(lease, &self.marks.me, shown);
    }

    /// Where there is no Lease, nothing can be observed that would tell one absence from another: a Lease
    /// might be made, held and deleted in between. So a vacant one is made, and its version observed.
    async fn make_vacant(&self, path: &str) -> Result<(), BoxError> {
        let collection = path.rsplit_once('/').map_or(path, |(collection, _)| collection);
        let vacant = self.marks.vacant(&self.name, self.lease);
        let request = Request::post(collection)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(serde_json::to_vec(&vacant)?))?;
        let (status, body) = self.send("create", request).await?;
        if status.is_success() {
            let stored = wire::read(&serde_json::from_slice(&body)?)?;
            tracing::info!(
                lease = self.desk.lease(),
                wait = ?self.lease,
                "made the Lease, which was absent: whoever held it before may rely on it for one lease duration"
            );
            self.desk.with(|machine, now| machine.watched(now, stored));
        }
        Ok(())
    }

    async fn write(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let mut patch: Value = serde_json::from_slice(&body.collect_bytes().await?)?;
        let kind = wire::kind(&patch);
        let Some((version, stamp)) = self.begin_write(kind) else { return Ok(conflict()) };
        self.marks.complete(&mut patch, kind, version, stamp);
        let mut request = Request::from_parts(parts, Body::from(serde_json::to_vec(&patch)?));
        request.headers_mut().remove(header::CONTENT_LENGTH);
        // Dropped or failed from here on, the write stays in doubt until a read settles it.
        let (status, body) = self.send("patch", request).await?;
        let fate = match wire::read(&serde_json::from_slice(&body).unwrap_or_default()) {
            Ok(stored) if status.is_success() => Fate::Written(stored),
            _ => Fate::of_status(status.as_u16()),
        };
        self.desk.with(|machine, now| machine.end_write(now, stamp, fate));
        Ok(raw(status, body))
    }

    fn begin_write(&self, kind: Kind) -> Option<(Option<u64>, Stamp)> {
        self.desk.with(|machine, now| {
            let stamp = machine.fresh_stamp(wire::wall_stamp());
            let version = machine.begin_write(now, kind, stamp).ok()?;
            let version = Some(version);
            #[cfg(test)]
            let version = version.filter(|_| {
                let unconditional = kind == Kind::StepDown && slips!(machine, UnconditionalStepDown);
                !unconditional && !slips!(machine, NoCompareAndSwap)
            });
            Some((version, stamp))
        })
    }

    /// Sends to the API server and collects the answer. What went wrong is kept with its verb.
    async fn send(
        &self,
        verb: &'static str,
        request: Request<Body>,
    ) -> Result<(StatusCode, Vec<u8>), BoxError> {
        let answer = self.exchange(request).await;
        let trouble = match &answer {
            Ok((status, _)) => Trouble::of_status(verb, status.as_u16()),
            Err(_) => Some(Trouble::Unreachable),
        };
        if let Some(trouble) = trouble {
            tracing::debug!(lease = self.desk.lease(), verb, answer = ?answer.as_ref().map(|(status, _)| status), "failed");
            self.troubles.note(trouble);
        }
        answer
    }

    async fn exchange(&self, request: Request<Body>) -> Result<(StatusCode, Vec<u8>), BoxError> {
        let (parts, body) = self.server.send(request).await?.into_parts();
        Ok((parts.status, body.collect().await?.to_bytes().into()))
    }
}

fn answer(status: StatusCode, content: &Value) -> Response<Body> {
    raw(status, content.to_string().into_bytes())
}

fn raw(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}

/// What the API server answers when a resourceVersion does not match: nothing was sent.
fn conflict() -> Response<Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
        "message": "the Lease was not read before this write, or it may not be written now",
    });
    answer(StatusCode::CONFLICT, &status)
}
