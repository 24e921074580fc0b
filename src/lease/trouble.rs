//! What can go wrong on the way to the API server, in words that a readiness message can carry.
//!
//! Few and bounded: the same outage always reads the same, so that it is logged once.

use std::sync::{Mutex, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// 401.
    Unauthenticated,
    /// 403: RBAC does not grant the verb.
    Forbidden { verb: &'static str },
    /// Another status that is no part of the protocol.
    Status { verb: &'static str, status: u16 },
    /// No connection, a broken one, or no answer in time: which of them changes from try to try.
    Unreachable,
    /// An answer that is no Lease.
    Unreadable,
}

impl Trouble {
    /// 404 and 409 are part of the protocol, no trouble.
    pub(super) const fn of_status(verb: &'static str, status: u16) -> Option<Self> {
        match status {
            200..=299 | 404 | 409 => None,
            401 => Some(Self::Unauthenticated),
            403 => Some(Self::Forbidden { verb }),
            _ => Some(Self::Status { verb, status }),
        }
    }

    pub(super) fn describe(self, lease: &str) -> String {
        match self {
            Self::Unauthenticated => {
                format!("the API server does not accept our credentials for the Lease {lease} (401)")
            }
            Self::Forbidden { verb } => format!(
                "may not {verb} the Lease {lease} (403): grant the verb {verb:?} on leases.coordination.k8s.io"
            ),
            Self::Status { verb, status } => {
                format!("the API server answered {status} to {verb} of the Lease {lease}")
            }
            Self::Unreachable => format!("the API server does not answer in time for the Lease {lease}"),
            Self::Unreadable => format!("the answer to a read of the Lease {lease} is no Lease"),
        }
    }
}

/// The trouble of the attempt that is under way.
#[derive(Debug, Default)]
pub(super) struct Troubles(Mutex<Option<Trouble>>);

impl Troubles {
    pub(super) fn note(&self, trouble: Trouble) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
    }

    pub(super) fn take(&self) -> Option<Trouble> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_is_told_with_its_verb() {
        let trouble = Trouble::of_status("patch", 403).unwrap();
        assert!(trouble.describe("ns/name").contains("grant the verb \"patch\""));
    }

    #[test]
    fn a_lost_race_and_an_absent_lease_are_no_trouble() {
        assert_eq!(Trouble::of_status("patch", 409), None);
        assert_eq!(Trouble::of_status("get", 404), None);
        assert!(Trouble::of_status("get", 500).is_some());
    }
}
