//! The client layer that every request passes last: what changes something is sent only under a valid
//! leader guard.

use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use http::{Method, Request};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use crate::lease::LeaderGuard;

/// On whose authority a request changes something. Put into the request's extensions.
#[derive(Clone, Debug)]
pub enum Authority {
    /// A leader's: valid as long as its guard.
    Leader(LeaderGuard),
    /// Events are told by every replica.
    Events,
}

/// Lets reads pass and lets changes pass only with an [`Authority`] that holds at that moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuardedLayer;

impl<S> Layer<S> for GuardedLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded { inner }
    }
}

/// See [`GuardedLayer`].
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    inner: S,
}

/// A change was about to be sent by code that has no authority to make it.
#[derive(Debug, thiserror::Error)]
#[error("internal error: {method} {path} has no authority to change anything; nothing was sent")]
pub(super) struct Unauthorised {
    method: Method,
    path: String,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<futures::future::ErrInto<S::Future, BoxError>, Ready<Result<S::Response, BoxError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        use futures::TryFutureExt;
        match check(&request) {
            Ok(()) => Either::Left(self.inner.call(request).err_into()),
            Err(error) => Either::Right(ready(Err(error))),
        }
    }
}

fn check(request: &Request<Body>) -> Result<(), BoxError> {
    if request.method() == Method::GET {
        return Ok(());
    }
    match request.extensions().get::<Authority>() {
        Some(Authority::Leader(guard)) => {
            Ok(guard.begin(format_args!("{} {}", request.method(), request.uri().path())).map(drop)?)
        }
        Some(Authority::Events) if is_event(request.uri().path()) => Ok(()),
        _ => Err(Box::new(Unauthorised {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
        })),
    }
}

/// `/apis/events.k8s.io/v1/namespaces/NS/events[/NAME]`
fn is_event(path: &str) -> bool {
    path.starts_with("/apis/events.k8s.io/") && path.split('/').nth(6) == Some("events")
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{clock::SystemClock, lease::Epoch};

    fn request(method: Method, path: &str, authority: Option<Authority>) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        if let Some(authority) = authority {
            request.extensions_mut().insert(authority);
        }
        request
    }

    fn guard() -> LeaderGuard {
        let clock = SystemClock::shared();
        let epoch = Epoch { number: 1, lease_uid: "l".into() };
        LeaderGuard::new(epoch, clock.now() + Duration::from_secs(60), Arc::clone(&clock))
    }

    #[test]
    fn reads_need_no_authority_and_changes_do() {
        assert!(check(&request(Method::GET, "/api/v1/persistentvolumes", None)).is_ok());
        for method in [Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
            let error = check(&request(method, "/api/v1/persistentvolumes", None)).unwrap_err();
            assert!(error.is::<Unauthorised>());
        }
    }

    #[test]
    fn a_leaders_authority_ends_with_its_guard() {
        let guard = guard();
        let delete = || {
            let authority = Authority::Leader(guard.clone());
            check(&request(Method::DELETE, "/api/v1/persistentvolumes/v", Some(authority)))
        };
        assert!(delete().is_ok());
        guard.end();
        assert!(delete().unwrap_err().is::<crate::lease::NotLeading>());
    }

    #[test]
    fn the_authority_to_tell_events_is_for_events_only() {
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        assert!(check(&request(Method::POST, path, Some(Authority::Events))).is_ok());
        let volume = "/api/v1/persistentvolumes";
        assert!(check(&request(Method::POST, volume, Some(Authority::Events))).is_err());
    }
}
