//! The client layer that counts requests to the API server: what was sent, what came back, how long it took.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use tower::{Layer, Service};

use crate::telemetry::metrics::Metrics;

/// Counts each request, until the server begins to answer it.
#[derive(Clone, Debug)]
pub struct CountedLayer {
    metrics: Metrics,
    /// The API server's `host:port`, as client-go's metric has it.
    host: Arc<str>,
}

impl CountedLayer {
    /// Counts the requests to `server` in `metrics`.
    #[must_use]
    pub fn new(server: &http::Uri, metrics: &Metrics) -> Self {
        let host = server.authority().map_or("", http::uri::Authority::as_str);
        Self { metrics: metrics.clone(), host: host.into() }
    }
}

impl<S> Layer<S> for CountedLayer {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Counted { inner, layer: self.clone() }
    }
}

/// See [`CountedLayer`].
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    layer: CountedLayer,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut pending = Pending {
            layer: self.layer.clone(),
            method: word(request.method()),
            code: None,
            since: Instant::now(),
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            pending.answered(answer.as_ref().ok());
            answer
        })
    }
}

/// Counts at its drop, so that a request that was given up counts as one without an answer.
struct Pending {
    layer: CountedLayer,
    method: &'static str,
    code: Option<u16>,
    since: Instant,
}

impl Pending {
    fn answered<B>(&mut self, answer: Option<&Response<B>>) {
        self.code = answer.map(|answer| answer.status().as_u16());
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let CountedLayer { metrics, host } = &self.layer;
        metrics.cluster.request_finished(self.method, host, self.code, self.since.elapsed());
    }
}

fn word(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::{clock::SystemClock, telemetry::metrics::Format};

    #[tokio::test]
    async fn answers_count_by_their_code_and_requests_given_up_as_errors() {
        let metrics = Metrics::new(&SystemClock::shared());
        let layer = CountedLayer::new(&"https://10.0.0.1:6443/".parse().unwrap(), &metrics);
        let request = || Request::post("/api/v1/persistentvolumes").body(Body::empty()).unwrap();
        let created = || Response::builder().status(201).body(());
        let server = service_fn(move |_| async move { created() });
        layer.layer(server).oneshot(request()).await.unwrap();
        let silent = service_fn(|_| futures::future::pending::<Result<Response<()>, http::Error>>());
        assert!(futures::poll!(layer.layer(silent).oneshot(request())).is_pending());
        let text = metrics.encode(Format::Prometheus).unwrap();
        for code in ["201", "<error>"] {
            let line = format!(
                r#"rest_client_requests_total{{code="{code}",method="POST",host="10.0.0.1:6443"}} 1"#
            );
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }
}
