//! What a request to the API server is about, read from its method, path and body.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request in the words of the API server's own audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The kind of object, in the plural; empty for what is no object.
    pub resource: String,
    /// The namespace, if the path names one.
    pub namespace: String,
    /// The object's name: of a creation, that in the body.
    pub name: String,
    /// The claim that a created volume is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
}

impl Request {
    /// Reads a request. `body` is only looked at where the path does not tell the name.
    #[must_use]
    pub fn read(method: &Method, path: &str, query: &str, body: &[u8]) -> Self {
        let mut request = Self::from_path(path);
        request.verb = verb(method, !request.name.is_empty(), is_watch(query)).to_owned();
        if request.verb == "create" {
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            let text = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            if request.name.is_empty() {
                request.name = text("/metadata/name");
            }
            request.claim = text("/spec/claimRef/name");
        }
        request
    }

    /// Whether it changes something.
    #[must_use]
    pub fn is_mutating(&self) -> bool {
        !self.resource.is_empty() && !["get", "list", "watch"].contains(&&*self.verb)
    }

    fn from_path(path: &str) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let prefix = match parts.next() {
            Some("api") => parts.next(),
            Some("apis") => parts.next().and_then(|_| parts.next()),
            _ => None,
        };
        if prefix.is_none() {
            return Self::default();
        }
        let parts: Vec<&str> = parts.collect();
        let part = |place: usize| parts.get(place).map(|part| (*part).to_owned()).unwrap_or_default();
        // A namespace is the place of other objects, and an object itself.
        if parts.len() > 2 && parts.first() == Some(&"namespaces") {
            Self { namespace: part(1), resource: part(2), name: part(3), ..Self::default() }
        } else {
            Self { resource: part(0), name: part(1), ..Self::default() }
        }
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1"))
}

fn verb(method: &Method, named: bool, watch: bool) -> &'static str {
    match (method.as_str(), named) {
        ("GET", _) if watch => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, path: &str, query: &str, body: &str) -> [String; 4] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let Request { verb, resource, namespace, name, .. } =
            Request::read(&method, path, query, body.as_bytes());
        [verb, resource, namespace, name]
    }

    #[test]
    fn verb_resource_namespace_and_name_come_from_method_and_path() {
        let claims = "/api/v1/namespaces/ns/persistentvolumeclaims";
        let lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l";
        let table = [
            ("GET", claims, "", ["list", "persistentvolumeclaims", "ns", ""]),
            ("GET", claims, "limit=1&watch=true", ["watch", "persistentvolumeclaims", "ns", ""]),
            ("GET", "/api/v1/persistentvolumes", "watch=1", ["watch", "persistentvolumes", "", ""]),
            ("GET", "/api/v1/namespaces/kube-system", "", ["get", "namespaces", "", "kube-system"]),
            ("PATCH", lease, "fieldManager=x", ["patch", "leases", "ns", "l"]),
            ("DELETE", "/api/v1/persistentvolumes/pvc-1", "", ["delete", "persistentvolumes", "", "pvc-1"]),
            ("GET", "/version", "", ["list", "", "", ""]),
        ];
        for (method, path, query, expected) in table {
            assert_eq!(read(method, path, query, ""), expected, "{method} {path}?{query}");
        }
    }

    #[test]
    fn a_creation_has_its_name_and_its_claim_in_the_body() {
        let body = r#"{"metadata":{"name":"pvc-1"},"spec":{"claimRef":{"name":"data"}}}"#;
        let request = Request::read(&Method::POST, "/api/v1/persistentvolumes", "", body.as_bytes());
        assert_eq!((&*request.verb, &*request.name, &*request.claim), ("create", "pvc-1", "data"));
        assert!(request.is_mutating());
    }
}
