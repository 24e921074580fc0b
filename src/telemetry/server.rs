//! The HTTP server for probes and metrics, bounded so that no client can make it a burden.
//!
//! It answers from shared memory on tokio's workers, so it also answers while the actor thread is stuck.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
    serve::Listener,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
    time::{Sleep, sleep},
};

use super::{
    health::{Health, Report},
    metrics::{Format, Metrics},
};

/// Connections served at once: the kubelet and a few scrapers. Further ones wait in the backlog.
const CONNECTIONS: usize = 32;

/// How long one connection may live, idle or not. Scrapers that keep connections open reconnect.
const CONNECTION_LIFE: Duration = Duration::from_secs(60);

/// How long open connections may hold up a stop.
const DRAIN: Duration = Duration::from_secs(1);

/// A server that runs: its address, and its end.
#[derive(Debug)]
pub struct Server {
    /// The address it listens on, with the port that the system chose for port 0.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Waits until the server has stopped.
    pub async fn stopped(self) {
        // The task is never aborted, and a panic in it was told by the panic hook.
        let _ = self.task.await;
    }
}

/// Serves `/metrics`, `/livez`, `/readyz` and `/healthz` on `address` until `stop` is ready.
///
/// Must be called on the multi-thread runtime.
///
/// # Errors
/// When the address can't be listened on.
pub async fn serve(
    address: SocketAddr,
    health: Health,
    metrics: Metrics,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<Server> {
    let listener = Limited {
        listener: TcpListener::bind(address).await?,
        free: Arc::new(Semaphore::new(CONNECTIONS)),
        life: CONNECTION_LIFE,
    };
    let address = Listener::local_addr(&listener)?;
    let task = tokio::spawn(run(listener, routes(health, metrics), stop));
    Ok(Server { address, task })
}

async fn run(listener: Limited, routes: Router, stop: impl Future<Output = ()> + Send + 'static) {
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let stop = async move {
        stop.await;
        let _ = stopping.send(());
    };
    let serving = axum::serve(listener, routes).with_graceful_shutdown(stop);
    let drained = async move {
        let _ = stopped.await;
        sleep(DRAIN).await;
    };
    tokio::select! {
        _ = serving => {}
        () = drained => {}
    }
}

fn routes(health: Health, metrics: Metrics) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .with_state(health)
        .merge(Router::new().route("/metrics", get(scrape)).with_state(metrics))
}

/// `?verbose`, with or without a value.
#[derive(Debug, serde::Deserialize)]
struct Detail {
    verbose: Option<String>,
}

async fn livez(State(health): State<Health>, Query(detail): Query<Detail>) -> Response {
    answer(&health.live(), &detail)
}

async fn readyz(State(health): State<Health>, Query(detail): Query<Detail>) -> Response {
    answer(&health.ready(), &detail)
}

fn answer(report: &Report, detail: &Detail) -> Response {
    let status = if report.passed() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, report.text(detail.verbose.is_some())).into_response()
}

async fn scrape(State(metrics): State<Metrics>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::accepted(accept);
    match metrics.encode(format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A listener that accepts only so many connections at once, each for a limited time.
struct Limited {
    listener: TcpListener,
    free: Arc<Semaphore>,
    life: Duration,
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            // The semaphore is never closed; without a permit the connection would only be unlimited.
            let permit = Arc::clone(&self.free).acquire_owned().await.ok();
            // The trait's own accept sleeps on errors such as too many open files.
            let (stream, peer) = Listener::accept(&mut self.listener).await;
            if let Some(permit) = permit {
                return (Connection { stream, end: Box::pin(sleep(self.life)), _permit: permit }, peer);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails at the end of its life, so that a client that dawdles is cut off.
struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    /// Its drop lets the next connection in.
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn alive(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.alive(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.alive(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{Ipv4Addr, TcpStream},
        sync::mpsc,
    };

    use tokio::sync::oneshot;

    use super::*;
    use crate::telemetry::{health::Role, testing::ManualClock};

    const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    /// One request on a connection of its own, from outside the runtime.
    fn request(address: SocketAddr, path: &str, accept: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    struct Running {
        runtime: tokio::runtime::Runtime,
        server: Server,
        health: Health,
        clock: ManualClock,
        stop: oneshot::Sender<()>,
    }

    fn start() -> Running {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let clock = ManualClock::default();
        let health = Health::new(clock.shared());
        let metrics = Metrics::new(&clock.shared());
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            let _ = stopped.await;
        };
        let server = runtime.block_on(serve(LOOPBACK, health.clone(), metrics, stopped)).unwrap();
        Running { runtime, server, health, clock, stop }
    }

    #[test]
    fn probes_answer_with_their_status_and_their_checks() {
        let running = start();
        let address = running.server.address;
        assert!(request(address, "/livez", "*/*").starts_with("HTTP/1.1 200 OK"));
        assert!(request(address, "/readyz", "*/*").starts_with("HTTP/1.1 500 "));
        running.health.watch_synced("claims");
        running.health.role("x", Role::Standby);
        assert!(request(address, "/readyz", "*/*").ends_with("\r\n\r\nok"));
        assert!(request(address, "/readyz?verbose", "*/*").contains("[+]watch/claims ok"));
        assert!(request(address, "/healthz?verbose=1", "*/*").contains("[+]ping ok"));
        assert!(request(address, "/nothing", "*/*").starts_with("HTTP/1.1 404 "));
    }

    #[test]
    fn metrics_come_in_the_format_that_was_asked_for() {
        let running = start();
        let plain = request(running.server.address, "/metrics", "*/*");
        assert!(plain.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{plain}");
        assert!(plain.contains("workqueue_depth"), "{plain}");
        let open = request(running.server.address, "/metrics", "application/openmetrics-text;version=1.0.0");
        assert!(open.contains("content-type: application/openmetrics-text;"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
    }

    #[test]
    fn it_answers_while_the_thread_of_the_actors_is_stuck() {
        let Running { runtime, server, health, clock, stop } = start();
        let (release, stuck) = mpsc::channel::<()>();
        health.expect_beats("arbiter", Duration::from_secs(10));
        // As the actors run: futures of one thread that blocks on the runtime.
        let actors = std::thread::spawn(move || runtime.block_on(async move { stuck.recv() }));
        clock.advance(Duration::from_secs(11));
        let answer = request(server.address, "/livez", "*/*");
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("[-]loop/arbiter failed"), "{answer}");
        release.send(()).unwrap();
        actors.join().unwrap().unwrap();
        drop(stop);
    }

    #[test]
    fn a_stop_ends_it_even_while_a_connection_is_open() {
        let Running { runtime, server, stop, .. } = start();
        let address = server.address;
        let open = TcpStream::connect(address).unwrap();
        assert!(request(address, "/livez", "*/*").starts_with("HTTP/1.1 200 OK"));
        stop.send(()).unwrap();
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(10), server.stopped()).await })
            .unwrap();
        assert!(TcpStream::connect(address).is_err(), "still listening");
        drop(open);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_limited_in_number_and_in_time() {
        let mut listener = Limited {
            listener: TcpListener::bind(LOOPBACK).await.unwrap(),
            free: Arc::new(Semaphore::new(1)),
            life: Duration::from_secs(60),
        };
        let address = Listener::local_addr(&listener).unwrap();
        let _one = TcpStream::connect(address).unwrap();
        let _two = TcpStream::connect(address).unwrap();
        let (mut first, _) = Listener::accept(&mut listener).await;
        let second = tokio::time::timeout(Duration::from_secs(1), Listener::accept(&mut listener)).await;
        assert!(second.is_err(), "a second connection was let in");
        let read = tokio::io::AsyncReadExt::read_u8(&mut first).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(first);
        Listener::accept(&mut listener).await;
    }
}
