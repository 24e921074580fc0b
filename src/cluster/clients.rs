//! How clients are made. Two kinds live here; the lease has a third of its own (`lease`).
//!
//! kube's own retry is off everywhere: it sits inside our layers and would send again without a check.

use std::time::Duration;

use http::Response;
use kube::{Client, Config, client::DynBody};
use tower::util::MapResponseLayer;

use super::{CountedLayer, GuardedLayer};
use crate::{connection, telemetry::metrics::Metrics};

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a request may be silent. Each call has its own, shorter limit on the whole of it.
const REQUEST_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the server keeps a watch open, in whole seconds. Short, so that a half-open connection is
/// noticed soon; a watch that ends goes on from where it was, without a list.
pub const WATCH_TIMEOUT_SECONDS: u32 = 25;
/// How long a watch may be silent: the server's own end of it plus 3 s for the way. kube-runtime gives up after
/// 5 s, and begins anew without a word: readiness would not hear of a server that has gone silent.
const WATCH_READ_TIMEOUT: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 3);

/// A client for single calls. Everything that changes something passes [`GuardedLayer`]; what is sent is
/// counted.
///
/// Make it on the runtime that will use it: its worker lives there.
///
/// # Errors
/// If the configuration's certificates or credentials can't be used.
pub fn for_requests(config: &Config, metrics: &Metrics) -> Result<Client, kube::Error> {
    let builder = connection::builder(limited(config, REQUEST_READ_TIMEOUT))?;
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
    let builder = connection::builder(limited(config, WATCH_READ_TIMEOUT))?;
    let answered = MapResponseLayer::new(move |response: Response<Box<DynBody>>| {
        if response.status().is_success() {
            on_answer();
        }
        response
    });
    let counted = CountedLayer::new(&config.cluster_url, metrics);
    Ok(builder.with_layer(&counted).with_layer(&answered).with_layer(&GuardedLayer).build())
}

fn limited(config: &Config, read_timeout: Duration) -> Config {
    let mut config = config.clone();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(read_timeout);
    config.default_retry = false;
    config
}
