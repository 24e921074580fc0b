//! What a candidate is: the Lease it contests, its identity and its durations.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use super::LeaseTiming;

/// kube-leader-election sends the identity as field manager, of which the API server takes 128 characters.
const LONGEST_IDENTITY: usize = 128;

/// The Lease that is contested, and how.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Labels that are put on it.
    pub labels: BTreeMap<String, String>,
    /// Its durations.
    pub timing: LeaseTiming,
}

impl LeaseOptions {
    /// The Lease of `provisioner` (and of one `instance` of it) in `namespace`, with default durations.
    #[must_use]
    pub fn new(namespace: impl Into<String>, provisioner: &str, instance: Option<&str>) -> Self {
        Self {
            namespace: namespace.into(),
            name: lease_name(provisioner, instance),
            labels: BTreeMap::new(),
            timing: LeaseTiming::DEFAULT,
        }
    }
}

/// The name of the Lease that the Go library uses too, so that both can contest it during a migration:
/// the provisioner's name with `-` for `/`. An instance has a Lease of its own.
#[must_use]
pub fn lease_name(provisioner: &str, instance: Option<&str>) -> String {
    let base = provisioner.replace('/', "-");
    match instance {
        Some(instance) => format!("{base}-{instance}"),
        None => base,
    }
}

/// The name under which one start of one replica holds the Lease: never the same twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(Arc<str>);

impl Identity {
    /// `pod` and `uid` with the nonce of this start, cut so that they fit (the nonce never is).
    #[must_use]
    pub fn new(pod: &str, uid: Option<&str>, nonce: u64) -> Self {
        let tail = uid.map_or_else(|| format!("_{nonce:016x}"), |uid| format!("_{uid}_{nonce:016x}"));
        // What follows the pod's name matters more than the name: it is what makes the identity unique.
        let tail = last_characters(&tail, LONGEST_IDENTITY - 1);
        let head: String =
            pod.chars().filter(char::is_ascii_graphic).take(LONGEST_IDENTITY - tail.len()).collect();
        Self(format!("{head}{tail}").into())
    }

    /// The identity of this process: `POD_NAME` or the host's name, `POD_UID`, and a fresh nonce.
    #[must_use]
    pub fn of_this_process() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let pod = variable("POD_NAME").unwrap_or_else(host_name);
        Self::new(&pod, variable("POD_UID").as_deref(), nonce())
    }

    /// The identity as it stands in the Lease.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn name(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn last_characters(text: &str, most: usize) -> String {
    let text: Vec<char> = text.chars().filter(char::is_ascii_graphic).collect();
    text.iter().skip(text.len().saturating_sub(most)).collect()
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "replica".into(), |name| name.trim().into())
}

/// 64 bits that no other start has: the standard library's random hash keys, mixed with time and process.
fn nonce() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    let since_epoch =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    RandomState::new().hash_one((since_epoch, std::process::id()))
}

/// A random part of `most`.
pub(super) fn jitter(most: Duration) -> Duration {
    most.mul_f64(crate::clock::jitter())
}

/// Everything that one campaign needs to know about its candidate.
#[derive(Clone, Debug)]
pub struct CandidateOptions {
    /// The Lease that is contested.
    pub lease: LeaseOptions,
    /// The full name of the provisioner, written into an annotation of the Lease.
    pub provisioner: String,
    /// The name under which this replica holds the Lease.
    pub identity: Identity,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_has_the_name_that_the_go_library_gives_it() {
        assert_eq!(lease_name("example.com/nfs", None), "example.com-nfs");
        assert_eq!(lease_name("example.com/nfs", Some("blue")), "example.com-nfs-blue");
    }

    #[test]
    fn an_identity_names_pod_and_start() {
        assert_eq!(Identity::new("pod-0", Some("uid"), 1).as_str(), "pod-0_uid_0000000000000001");
        assert_eq!(Identity::new("host", None, 255).as_str(), "host_00000000000000ff");
    }

    #[test]
    fn an_identity_never_exceeds_what_the_api_server_takes_and_keeps_its_nonce() {
        let long = "p".repeat(253);
        let identity = Identity::new(&long, Some(&"u".repeat(36)), 7);
        assert_eq!(identity.as_str().len(), 128);
        assert!(identity.as_str().ends_with("_0000000000000007"));
        let absurd = Identity::new(&long, Some(&"u".repeat(400)), 7);
        assert_eq!(absurd.as_str().len(), 128);
        assert!(absurd.as_str().ends_with("_0000000000000007"));
    }

    #[test]
    fn two_starts_have_two_identities() {
        assert_ne!(Identity::of_this_process(), Identity::of_this_process());
    }
}
