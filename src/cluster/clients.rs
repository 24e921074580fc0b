//! How clients are made. Two kinds live here; the lease has a third of its own (`lease`).
//!
//! kube's own retry is off everywhere: it sits inside our layers and would send again without a check.

use std::time::Duration;

use http::{HeaderValue, Request, Response, header::USER_AGENT};
use http_body_util::BodyExt;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt, DynBody},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, util::BoxService, util::MapResponseLayer};

use super::{CountedLayer, GuardedLayer};
use crate::telemetry::metrics::Metrics;

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a request may be silent. Each call has its own, shorter limit on the whole of it.
const REQUEST_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the server keeps a watch open, in whole seconds. Short, so that a half-open connection is
/// noticed soon; a watch that ends goes on from where it was, without a list.
pub const WATCH_TIMEOUT_SECONDS: u32 = 25;
/// How long a watch may be silent: the server's own end of it plus 5 s for the way.
const WATCH_READ_TIMEOUT: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 5);

/// A client for single calls. Everything that changes something passes [`GuardedLayer`]; what is sent is
/// counted.
///
/// Make it on the runtime that will use it: its worker lives there.
///
/// # Errors
/// If the configuration's certificates or credentials can't be used.
pub fn for_requests(config: &Config, metrics: &Metrics) -> Result<Client, kube::Error> {
    let builder = builder(limited(config, REQUEST_READ_TIMEOUT))?;
    let counted = CountedLayer::new(&config.cluster_url, metrics);
    Ok(builder.with_layer(&counted).with_layer(&GuardedLayer).build())
}

/// A client for watches, with connections of its own. It can't change anything. `on_answer` is called for
/// each request that the server begins to answer: a quiet watch gives no other sign of life.
///
/// # Errors
/// If the configuration's certificates or credentials can't be used.
pub fn for_watches(
    config: &Config,
    metrics: &Metrics,
    on_answer: impl Fn() + Clone + Send + 'static,
) -> Result<Client, kube::Error> {
    let builder = builder(limited(config, WATCH_READ_TIMEOUT))?;
    let answered = MapResponseLayer::new(move |response: Response<Box<DynBody>>| {
        if response.status().is_success() {
            on_answer();
        }
        response
    });
    let counted = CountedLayer::new(&config.cluster_url, metrics);
    Ok(builder.with_layer(&counted).with_layer(&answered).with_layer(&GuardedLayer).build())
}

/// The requests of a client, as layers take them.
type Requests = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// What kube builds of a configuration without retry and proxy, with one difference: what is written is sent at
/// once. kube leaves Nagle's algorithm on. Head and body of a request are two segments, so the second would wait for
/// the acknowledgement of the first, which a server delays by 40 ms.
pub(crate) fn builder(config: Config) -> Result<ClientBuilder<Requests>, kube::Error> {
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        // Only kube knows the way through a proxy, and when credentials of a plugin expire.
        return ClientBuilder::try_from(config);
    }
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections(&config)?);
    let boxed = |body: hyper::body::Incoming| Box::new(body.map_err(BoxError::from)) as Box<DynBody>;
    let stack = stack.map_response(move |response: Response<_>| response.map(boxed)).boxed();
    Ok(ClientBuilder::new(stack, config.default_namespace))
}

fn connections(
    config: &Config,
) -> Result<
    impl Service<Request<Body>, Response = Response<hyper::body::Incoming>, Error = legacy::Error, Future: Send>
    + Clone
    + Send
    + use<>,
    kube::Error,
> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    Ok(legacy::Builder::new(TokioExecutor::new()).build(connector))
}

/// Who we are in the API server's audit log and flow control, unless the configuration says it already. kube
/// says nothing by itself.
#[must_use]
pub fn named(mut config: Config) -> Config {
    if config.headers.iter().all(|(name, _)| name != USER_AGENT) {
        let agent = concat!("kube-provisioner/", env!("CARGO_PKG_VERSION"));
        config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    }
    config
}

fn limited(config: &Config, read_timeout: Duration) -> Config {
    let mut config = config.clone();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(read_timeout);
    config.default_retry = false;
    config
}
