//! A scripted API server for one Lease: enough of GET, POST, merge PATCH, LIST and WATCH, with faults.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Body as AnyBody;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// What happens to one request instead of being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Answered with this status, nothing done.
    Status(u16),
    /// Carried out, answered with this status.
    DoneBut(u16),
    /// Carried out, never answered.
    DoneUnanswered,
    /// Neither carried out nor answered.
    Swallowed,
    /// Served after this time.
    Late(Duration),
}

#[derive(Default)]
struct Store {
    version: u64,
    lease: Option<Value>,
    faults: VecDeque<(Method, Fault)>,
    /// Applies to every request of this method until it is lifted.
    rule: Option<(Option<Method>, Fault)>,
    requests: Vec<(Method, Value)>,
}

#[derive(Clone)]
pub(super) struct Server {
    store: Arc<Mutex<Store>>,
    events: broadcast::Sender<Value>,
}

impl Server {
    pub(super) fn new() -> Self {
        let store = Store { version: 100, ..Store::default() };
        Self { store: Arc::new(Mutex::new(store)), events: broadcast::channel(64).0 }
    }

    pub(super) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        kube::Client::new(service, "ns")
    }

    /// Replaces the Lease by hand, as a third party would.
    pub(super) fn put(&self, spec: Value) {
        self.write(|lease| {
            let made = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": "lease", "namespace": "ns", "uid": "uid-1" }, "spec": spec,
            });
            *lease = Some(made);
        });
    }

    /// Edits the Lease by hand: a merge patch without a version.
    pub(super) fn edit(&self, patch: &Value) {
        self.write(|lease| merge(lease.as_mut().unwrap(), patch));
    }

    pub(super) fn delete(&self) {
        let gone = {
            let mut store = self.store.lock().unwrap();
            store.version += 1;
            let mut gone = store.lease.take().unwrap();
            gone["metadata"]["resourceVersion"] = store.version.to_string().into();
            gone
        };
        let _ = self.events.send(json!({ "type": "DELETED", "object": gone }));
    }

    /// As after a restore of the store: the same Lease at an older version.
    pub(super) fn go_back_to(&self, version: u64) {
        let mut store = self.store.lock().unwrap();
        store.version = version;
        store.lease.as_mut().unwrap()["metadata"]["resourceVersion"] = version.to_string().into();
    }

    pub(super) fn lease(&self) -> Option<Value> {
        self.store.lock().unwrap().lease.clone()
    }

    pub(super) fn holder(&self) -> String {
        let lease = self.lease().unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn transitions(&self) -> i64 {
        self.lease().unwrap()["spec"]["leaseTransitions"].as_i64().unwrap_or_default()
    }

    pub(super) fn version(&self) -> u64 {
        self.store.lock().unwrap().version
    }

    /// The next request of this method meets this fault.
    pub(super) fn once(&self, method: Method, fault: Fault) {
        self.store.lock().unwrap().faults.push_back((method, fault));
    }

    /// All requests (of this method) meet this fault from now on; `None` lifts it.
    pub(super) fn always(&self, rule: Option<(Option<Method>, Fault)>) {
        self.store.lock().unwrap().rule = rule;
    }

    /// The bodies of the requests of this method so far.
    pub(super) fn requests(&self, method: &Method) -> Vec<Value> {
        let store = self.store.lock().unwrap();
        store.requests.iter().filter(|(made, _)| made == method).map(|(_, body)| body.clone()).collect()
    }

    async fn serve(&self, request: Request<Body>) -> Response<AnyBody> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        if parts.method == Method::GET && query.contains("watch=true") {
            return self.watch();
        }
        let single = parts.uri.path().ends_with("/leases/lease");
        let fault = self.fault(&parts.method, &body);
        match fault {
            None => self.answer(&parts.method, single, &body),
            Some(Fault::Status(code)) => failure(code),
            Some(Fault::DoneBut(code)) => {
                self.answer(&parts.method, single, &body);
                failure(code)
            }
            Some(Fault::DoneUnanswered) => {
                self.answer(&parts.method, single, &body);
                std::future::pending().await
            }
            Some(Fault::Swallowed) => std::future::pending().await,
            Some(Fault::Late(delay)) => {
                tokio::time::sleep(delay).await;
                self.answer(&parts.method, single, &body)
            }
        }
    }

    fn fault(&self, method: &Method, body: &Value) -> Option<Fault> {
        let mut store = self.store.lock().unwrap();
        store.requests.push((method.clone(), body.clone()));
        if let Some((ruled, fault)) = &store.rule
            && ruled.as_ref().is_none_or(|ruled| ruled == method)
        {
            return Some(*fault);
        }
        let at = store.faults.iter().position(|(meant, _)| meant == method)?;
        store.faults.remove(at).map(|(_, fault)| fault)
    }

    fn answer(&self, method: &Method, single: bool, body: &Value) -> Response<AnyBody> {
        let stored = self.lease();
        match (method, stored) {
            (&Method::GET, lease) if !single => {
                let version = self.version().to_string();
                let items: Vec<Value> = lease.into_iter().collect();
                success(&json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                    "metadata": { "resourceVersion": version }, "items": items,
                }))
            }
            (&Method::GET, Some(lease)) => success(&lease),
            (&Method::POST, None) => {
                let mut made = body.clone();
                made["metadata"]["uid"] = format!("uid-{}", self.version()).into();
                success(&self.write(|lease| *lease = Some(made)))
            }
            (&Method::POST, Some(_)) => failure(409),
            (&Method::PATCH, Some(lease)) => {
                let wanted = &body["metadata"]["resourceVersion"];
                if !wanted.is_null() && *wanted != lease["metadata"]["resourceVersion"] {
                    return failure(409);
                }
                success(&self.write(|lease| merge(lease.as_mut().unwrap(), body)))
            }
            _ => failure(404),
        }
    }

    fn write(&self, change: impl FnOnce(&mut Option<Value>)) -> Value {
        let lease = {
            let mut store = self.store.lock().unwrap();
            store.version += 1;
            let version = store.version.to_string();
            change(&mut store.lease);
            let lease = store.lease.as_mut().unwrap();
            lease["metadata"]["resourceVersion"] = version.into();
            lease.clone()
        };
        let _ = self.events.send(json!({ "type": "MODIFIED", "object": lease }));
        lease
    }

    fn watch(&self) -> Response<AnyBody> {
        let lines = futures::stream::unfold(self.events.subscribe(), |mut events| async move {
            let event = events.recv().await.ok()?;
            Some((Ok::<_, Infallible>(format!("{event}\n")), events))
        });
        Response::new(AnyBody::from_stream(lines))
    }
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}

fn success(content: &Value) -> Response<AnyBody> {
    Response::new(AnyBody::from(content.to_string()))
}

fn failure(code: u16) -> Response<AnyBody> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": "Scripted",
        "message": "scripted",
    });
    let mut response = Response::new(AnyBody::from(status.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
