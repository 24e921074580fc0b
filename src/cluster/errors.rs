//! What can go wrong with a call to the API server, sorted by what follows from it.

use std::time::Duration;

use crate::lease::NotLeading;

/// Why a call to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The guard had ended: nothing was sent.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The object does not exist.
    #[error("{what}: not found")]
    NotFound {
        /// The call and its object.
        what: String,
    },
    /// An object of that name exists.
    #[error("{what}: it exists already")]
    AlreadyExists {
        /// The call and its object.
        what: String,
    },
    /// A precondition did not hold: the object is another one, or has changed.
    #[error("{what}: {message}")]
    Conflict {
        /// The call and its object.
        what: String,
        /// The server's words.
        message: String,
    },
    /// The server will never take this (400, 422).
    #[error("{what}: rejected by the API server: {message}")]
    Rejected {
        /// The call and its object.
        what: String,
        /// The server's words.
        message: String,
    },
    /// RBAC or admission says no (401, 403).
    #[error("{what}: {message}")]
    Forbidden {
        /// The call and its object.
        what: String,
        /// The server's words.
        message: String,
    },
    /// The server did not answer, or said that it can't now. The call may have had its effect.
    #[error("{what}: {message}")]
    Unavailable {
        /// The call and its object.
        what: String,
        /// What happened.
        message: String,
    },
}

impl CallError {
    /// Sorts what kube says about `what`, a call and its object.
    #[must_use]
    pub fn sort(what: String, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::sort_status(what, status.code, &status.reason, status.message),
            kube::Error::Service(inner) => match inner.downcast::<NotLeading>() {
                Ok(not_leading) => Self::NotLeading(*not_leading),
                Err(other) => Self::Unavailable { what, message: with_sources(&*other) },
            },
            other => Self::Unavailable { what, message: with_sources(&other) },
        }
    }

    fn sort_status(what: String, code: u16, reason: &str, message: String) -> Self {
        match (code, reason) {
            (404, _) => Self::NotFound { what },
            (409, "AlreadyExists") => Self::AlreadyExists { what },
            (409, _) => Self::Conflict { what, message },
            (400 | 413 | 422, _) => Self::Rejected { what, message },
            (401 | 403, _) => Self::Forbidden { what, message },
            _ => Self::Unavailable { what, message: format!("{code} {reason}: {message}") },
        }
    }

    /// A bounded word for what follows from it.
    #[must_use]
    pub const fn category(&self) -> &'static str {
        match self {
            Self::NotLeading(_) => "NotLeading",
            Self::NotFound { .. } => "NotFound",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::Conflict { .. } => "Conflict",
            Self::Rejected { .. } => "Rejected",
            Self::Forbidden { .. } => "Forbidden",
            Self::Unavailable { .. } => "Unavailable",
        }
    }

    /// The call took longer than it was given.
    #[must_use]
    pub fn timed_out(what: String, limit: Duration) -> Self {
        Self::Unavailable { what, message: format!("no answer from the API server within {limit:?}") }
    }
}

/// An error and what caused it, on one line.
pub(crate) fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_sorted_by_what_follows_from_them() {
        let sort = |code, reason: &str| {
            CallError::sort_status("create volume v".to_owned(), code, reason, "words".to_owned())
        };
        assert!(matches!(sort(404, "NotFound"), CallError::NotFound { .. }));
        assert!(matches!(sort(409, "AlreadyExists"), CallError::AlreadyExists { .. }));
        assert!(matches!(sort(409, "Conflict"), CallError::Conflict { .. }));
        assert!(matches!(sort(422, "Invalid"), CallError::Rejected { .. }));
        assert!(matches!(sort(403, "Forbidden"), CallError::Forbidden { .. }));
        for code in [408, 429, 500, 503, 504] {
            assert!(matches!(sort(code, "x"), CallError::Unavailable { .. }), "{code}");
        }
        assert_eq!(sort(422, "Invalid").to_string(), "create volume v: rejected by the API server: words");
    }

    #[test]
    fn an_ended_guard_is_recognised_through_the_client() {
        let epoch = crate::lease::Epoch { number: 3, lease_uid: "l".into() };
        let error = kube::Error::Service(Box::new(NotLeading { epoch }));
        assert!(matches!(CallError::sort("patch".to_owned(), error), CallError::NotLeading(_)));
    }
}
