//! A proxy between one replica and the API server that breaks what a test wants broken, and logs every request.
//!
//! This is the tests' side: start it, set rules, meet requests, freeze watches. Which rule decides about a request
//! is in [`rule`], what a request is about in [`request`]; how requests and answers travel is in `serve`.

pub mod request;
pub mod rule;

mod flow;
mod record;
mod serve;
mod tls;

use std::{net::Ipv4Addr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio::{net::TcpListener, task::JoinHandle};

use self::{
    flow::{Flow, Flows},
    record::Log,
    rule::Rules,
    tls::Tls,
};
pub use self::{
    record::Record,
    request::Request,
    rule::{Action, Halt, Rule},
};
use crate::{control_plane::ControlPlane, ports::Port};

/// A running proxy. Dropping it ends it and all its connections.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
}

/// What all connections of a proxy use.
struct Shared {
    /// Where the API server listens, as host and port.
    upstream: String,
    tls: Tls,
    rules: Rules,
    flows: Flows,
    log: Log,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts a proxy before the API server of `plane`, on the runtime of the caller. Its log goes to `log`.
    ///
    /// # Errors
    /// If it cannot listen, or the control plane's certificates cannot be read.
    pub async fn start(plane: &ControlPlane, log: &Path) -> Result<Self> {
        Self::start_on(Ipv4Addr::LOCALHOST, plane, log).await
    }

    /// Starts a proxy on another address of this machine: [`Namespace::host`](crate::nemesis::network::Namespace).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_on(address: Ipv4Addr, plane: &ControlPlane, log: &Path) -> Result<Self> {
        let upstream = plane.server().trim_start_matches("https://").trim_end_matches('/').to_owned();
        let shared = Arc::new(Shared {
            upstream,
            tls: Tls::of(plane)?,
            rules: Rules::default(),
            flows: Flows::default(),
            log: Log::create(log)?,
        });
        let port = Port::claim()?.at(address);
        let listener = TcpListener::bind(port.socket()).await.context("the proxy cannot listen")?;
        let listener = tokio::spawn(serve::listen(shared.clone(), listener));
        Ok(Self { port, shared, listener })
    }

    /// The address that a replica behind this proxy is told.
    #[must_use]
    pub fn server(&self) -> String {
        format!("https://{}", self.port.socket())
    }

    /// Sets the rules. Of these the first that fits a request counts; their counting begins anew.
    pub fn set(&self, rules: Vec<Rule>) {
        self.shared.rules.set(rules);
    }

    /// Every request so far, in the order in which their fates were sealed.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.shared.log.records()
    }
}

/// Watches.
impl Proxy {
    /// Stops what open and later watches of a resource deliver. Nothing is lost.
    pub fn freeze(&self, resource: &str) {
        self.shared.flows.hold(resource, true);
    }

    /// Lets frozen watches of a resource go on.
    pub fn thaw(&self, resource: &str) {
        self.shared.flows.hold(resource, false);
    }

    /// Open and later watches of a resource deliver everything so much later, in the same order. Watches of other
    /// resources go on as they are, so what a replica sees first of two resources changes.
    pub fn delay_watch(&self, resource: &str, by: Duration) {
        self.shared.flows.delay(resource, by);
    }

    /// The open watches of a resource never deliver anything again, but their connections stay. How many there are.
    #[must_use]
    pub fn half_open(&self, resource: &str) -> usize {
        self.shared.flows.turn(resource, Flow::HalfOpen)
    }

    /// Cuts the open watches of a resource off. How many there are.
    #[must_use]
    pub fn cut_watches(&self, resource: &str) -> usize {
        self.shared.flows.turn(resource, Flow::Cut)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}
