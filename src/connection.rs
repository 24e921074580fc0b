//! How connections to the API server are put together, for every client of the program.
//!
//! What a client may send, and for how long, is its maker's business (`cluster::clients`, `lease`).

use http::{HeaderValue, Request, Response, header::USER_AGENT};
use http_body_util::BodyExt;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ClientBuilder, ConfigExt, DynBody},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, util::BoxService};

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
pub(crate) fn named(mut config: Config) -> Config {
    if config.headers.iter().all(|(name, _)| name != USER_AGENT) {
        let agent = concat!("kube-provisioner/", env!("CARGO_PKG_VERSION"));
        config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    }
    config
}
