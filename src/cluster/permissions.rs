//! What RBAC refuses us, by verb and resource: told when it is first refused, and taken back with the next answer of
//! the same kind.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use http::Method;

use super::CallError;

/// Hears of a permission (`patch persistentvolumes`) that is missing, with the server's words, or is there again.
type Tell = dyn Fn(&str, Option<&str>) + Send + Sync;

/// The permissions of one identity. Clones share them.
#[derive(Clone)]
pub struct Permissions {
    missing: Arc<Mutex<BTreeSet<String>>>,
    tell: Arc<Tell>,
}

impl Permissions {
    /// Nothing is known to be missing. `tell` hears of every change.
    pub fn new(tell: impl Fn(&str, Option<&str>) + Send + Sync + 'static) -> Self {
        Self { missing: Arc::default(), tell: Arc::new(tell) }
    }

    /// Whoever calls looks at each answer: nothing is remembered for anybody else.
    #[must_use]
    pub fn untold() -> Self {
        Self::new(|_, _| {})
    }

    /// Takes note of what an answer says about the permission that its request needed.
    pub(super) fn judge<T>(&self, permission: &str, answer: &Result<T, CallError>) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Err(CallError::Forbidden { message, .. }) if is_of_rbac(message) => {
                if missing.insert(permission.to_owned()) {
                    (self.tell)(permission, Some(message));
                }
            }
            // It did not get as far as being authorized.
            Err(CallError::Forbidden { .. } | CallError::Unavailable { .. } | CallError::NotLeading(_)) => {}
            _ => {
                if missing.remove(permission) {
                    (self.tell)(permission, None);
                }
            }
        }
    }
}

/// Admission says 403 too, about one object. An authorizer says what the user cannot do.
fn is_of_rbac(message: &str) -> bool {
    message.contains("User ") && message.contains(" cannot ")
}

/// The permission that a request needs, as a Role would grant it. `None` for events: they are never needed.
pub(super) fn needed(method: &Method, path: &str) -> Option<String> {
    let mut parts = path.split('?').next()?.split('/').filter(|part| !part.is_empty());
    match parts.next()? {
        "api" => parts.next()?,
        "apis" => parts.nth(1)?,
        _ => return None,
    };
    let mut resource = parts.next()?;
    let mut name = parts.next();
    if resource == "namespaces"
        && let Some(inner) = parts.next()
    {
        resource = inner;
        name = parts.next();
    }
    let verb = match (method, name) {
        (&Method::GET, Some(_)) => "get",
        (&Method::GET, None) => "list",
        (&Method::POST, _) => "create",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, _) => "delete",
        _ => return None,
    };
    (resource != "events").then(|| format!("{verb} {resource}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_needs_what_a_role_would_grant() {
        let cases = [
            (Method::GET, "/api/v1/persistentvolumes/pvc-1", Some("get persistentvolumes")),
            (Method::GET, "/api/v1/persistentvolumeclaims?&limit=1", Some("list persistentvolumeclaims")),
            (Method::POST, "/api/v1/persistentvolumes?", Some("create persistentvolumes")),
            (Method::DELETE, "/api/v1/persistentvolumes/pvc-1?", Some("delete persistentvolumes")),
            (
                Method::PATCH,
                "/api/v1/namespaces/ns/persistentvolumeclaims/c",
                Some("patch persistentvolumeclaims"),
            ),
            (Method::GET, "/api/v1/namespaces/kube-system", Some("get namespaces")),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/ns/events?", None),
            (Method::GET, "/version", None),
        ];
        for (method, path, permission) in cases {
            assert_eq!(needed(&method, path).as_deref(), permission, "{method} {path}");
        }
    }

    #[test]
    fn a_refusal_is_told_once_and_taken_back_by_an_answer_only() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let permissions = Permissions::new(move |permission, problem| {
            heard.lock().unwrap().push((permission.to_owned(), problem.is_some()));
        });
        let refusal = |message: &str| -> Result<(), _> {
            Err(CallError::Forbidden { what: "patch v".to_owned(), message: message.to_owned() })
        };
        let rbac = "volumes \"v\" is forbidden: User \"u\" cannot patch resource \"volumes\"";
        let away = || -> Result<(), _> {
            Err(CallError::Unavailable { what: "patch v".to_owned(), message: "away".to_owned() })
        };
        for answer in [refusal("denied by a webhook"), refusal(rbac), refusal(rbac), away(), Ok(()), Ok(())] {
            permissions.judge("patch volumes", &answer);
        }
        let expected = [true, false].map(|missing| ("patch volumes".to_owned(), missing));
        assert_eq!(*told.lock().unwrap(), expected);
    }
}
