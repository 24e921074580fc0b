//! How requests and answers travel: one connection to the API server for each of the replica's.

use std::{io, sync::Arc};

use anyhow::{Context, Result, anyhow, ensure};
use http_body_util::{BodyExt, Full};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1::{self as client, SendRequest},
    header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
    http::request::Parts,
    server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Mutex,
    task::JoinSet,
};

use super::{
    Action, Request, Shared,
    flow::{Body, Error},
};
use crate::clock;

/// Serves until it is aborted; its connections end with it.
pub(super) async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let shared = shared.clone();
                connections.spawn(async move {
                    if let Err(error) = serve(shared, stream).await {
                        tracing::debug!("a connection through the proxy has ended: {error:#}");
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = shared.tls.accept(stream).await?;
    let upstream = Arc::new(Upstream { shared, sender: Mutex::new(None) });
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let upstream = upstream.clone();
        // A task of its own: a replica that goes away does not take back what it has asked for.
        let exchange = tokio::spawn(async move { upstream.exchange(request).await });
        async move { exchange.await?.map_err(io::Error::other) }
    });
    server::Builder::new().serve_connection(TokioIo::new(stream), service).await?;
    Ok(())
}

struct Upstream {
    shared: Arc<Shared>,
    sender: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Upstream {
    /// The answer to a request. An error cuts the replica's connection.
    async fn exchange(&self, request: hyper::Request<Incoming>) -> Result<Response<Body>> {
        let came = clock::raw_nanos();
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let query = parts.uri.query().unwrap_or_default();
        let about = Request::read(&parts.method, parts.uri.path(), query, &body);
        let action = self.shared.rules.decide(&about);
        let (answer, fate) = self.act(action, &about, parts, body).await;
        self.shared.log.add(came, &about, fate);
        answer
    }

    async fn act(
        &self,
        action: Action,
        about: &Request,
        parts: Parts,
        body: Bytes,
    ) -> (Result<Response<Body>>, String) {
        match action {
            Action::Pass => self.pass(about, parts, body).await,
            Action::Delay(time) => {
                tokio::time::sleep(time).await;
                self.pass(about, parts, body).await
            }
            Action::CutBefore => cut("cut before the server"),
            Action::Answer(status) => (refusal(status), format!("answered {status} by the proxy")),
            Action::HaltBefore(meeting) => match meeting.hold().await {
                true => self.pass(about, parts, body).await,
                false => cut("halted, then cut before the server"),
            },
            Action::CutAfter => match self.applied(parts, body).await {
                Ok(answer) => cut(&format!("answered {}, answer lost", answer.status().as_u16())),
                Err(error) => (Err(error), NO_ANSWER.to_owned()),
            },
            Action::HaltAfter(meeting) => {
                let answer = self.applied(parts, body).await;
                let passes = meeting.hold().await;
                match answer {
                    Ok(answer) if passes => passed(answer),
                    Ok(answer) => cut(&format!("answered {}, halted, answer lost", answer.status().as_u16())),
                    Err(error) => (Err(error), NO_ANSWER.to_owned()),
                }
            }
        }
    }

    async fn pass(&self, about: &Request, parts: Parts, body: Bytes) -> (Result<Response<Body>>, String) {
        match self.send(parts, body).await {
            Ok(answer) if about.verb == "watch" && answer.status().is_success() => {
                passed(answer.map(|body| self.shared.flows.body(&about.resource, body)))
            }
            Ok(answer) => passed(answer.map(|body| body.map_err(Error::from).boxed())),
            Err(error) => (Err(error), NO_ANSWER.to_owned()),
        }
    }

    /// The whole answer: the server has done what it does.
    async fn applied(&self, parts: Parts, body: Bytes) -> Result<Response<Body>> {
        let (parts, body) = self.send(parts, body).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response::from_parts(parts, whole(body)))
    }

    async fn send(&self, mut parts: Parts, body: Bytes) -> Result<Response<Incoming>> {
        parts.headers.remove(TRANSFER_ENCODING);
        if !body.is_empty() {
            parts.headers.insert(CONTENT_LENGTH, body.len().into());
        }
        let mut held = self.sender.lock().await;
        let mut sender = self.ready(held.take()).await?;
        let answer = sender.send_request(hyper::Request::from_parts(parts, Full::new(body))).await;
        *held = Some(sender);
        answer.context("the API server did not answer")
    }

    /// The sender that there is, or a new one if the server has closed its connection.
    async fn ready(&self, held: Option<SendRequest<Full<Bytes>>>) -> Result<SendRequest<Full<Bytes>>> {
        if let Some(mut sender) = held
            && sender.ready().await.is_ok()
        {
            return Ok(sender);
        }
        self.connect().await
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = self.shared.tls.connect(&self.shared.upstream).await?;
        let (sender, connection) = client::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

const NO_ANSWER: &str = "no answer of the server";

fn passed(answer: Response<Body>) -> (Result<Response<Body>>, String) {
    let fate = format!("answered {}", answer.status().as_u16());
    (Ok(answer), fate)
}

fn cut(fate: &str) -> (Result<Response<Body>>, String) {
    (Err(anyhow!("{fate}")), fate.to_owned())
}

fn whole(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed()
}

/// As the API server would say it.
fn refusal(status: u16) -> Result<Response<Body>> {
    ensure!((400..600).contains(&status), "{status} is no refusal");
    let code = StatusCode::from_u16(status)?;
    let reason = match status {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the fault proxy says so", "reason": reason, "code": status,
    });
    let answer = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    Ok(answer.body(whole(body.to_string().into()))?)
}
