//! The options of leader election: which Lease, and its three durations.

use std::{collections::BTreeMap, time::Duration};

use super::{ControllerOptions, InvalidOption, names};
use crate::lease::{LeaseTiming, TimingError, lease_name};

/// Where a Pod finds the namespace it runs in.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The Lease that replicas contest, and how long it lasts.
///
/// Three durations with one relation: three renewals fit in a hold, and a hold ends, by a tenth for
/// clocks that run at different rates, before another replica may take the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionOptions {
    /// The namespace of the Lease; [`namespace`](Self::namespace) where absent.
    pub lease_namespace: Option<String>,
    /// The name of the Lease; [`name_for`](Self::name_for) where absent.
    pub lease_name: Option<String>,
    /// Labels for a Lease that we create.
    pub lease_labels: BTreeMap<String, String>,
    /// How long the other replicas wait, after the last renewal they saw, before they take the Lease. In
    /// whole seconds.
    pub lease_duration: Duration,
    /// How long after sending a renewal its sender takes itself for the leader.
    pub lease_hold: Duration,
    /// The time from one renewal to the next.
    pub lease_renew: Duration,
}

impl LeaderElectionOptions {
    /// A takeover within about three seconds, for more traffic and less patience with a slow API server.
    #[must_use]
    pub fn fast() -> Self {
        Self::of(LeaseTiming::FAST)
    }

    fn of(timing: LeaseTiming) -> Self {
        Self {
            lease_namespace: None,
            lease_name: None,
            lease_labels: BTreeMap::new(),
            lease_duration: timing.lease(),
            lease_hold: timing.hold(),
            lease_renew: timing.renew(),
        }
    }

    /// The namespace of the Lease: the one asked for, else `POD_NAMESPACE`, else that of the Pod's service
    /// account, else `default`.
    #[must_use]
    pub fn namespace(&self) -> String {
        let environment = || std::env::var("POD_NAMESPACE").ok();
        let account = || std::fs::read_to_string(NAMESPACE_FILE).ok();
        self.namespace_from(environment, account)
    }

    fn namespace_from(
        &self,
        environment: impl FnOnce() -> Option<String>,
        account: impl FnOnce() -> Option<String>,
    ) -> String {
        let named = |text: String| Some(text.trim().to_owned()).filter(|name| !name.is_empty());
        self.lease_namespace
            .clone()
            .or_else(|| environment().and_then(named))
            .or_else(|| account().and_then(named))
            .unwrap_or_else(|| "default".to_owned())
    }

    /// The name of the Lease for this provisioner: the one asked for, else the provisioner's name with `-`
    /// for `/`, as the Go library has it, and the instance behind it where there is one.
    #[must_use]
    pub fn name_for(&self, controller: &ControllerOptions) -> String {
        let derived = || lease_name(&controller.provisioner_name, controller.instance.as_deref());
        self.lease_name.clone().unwrap_or_else(derived)
    }

    /// Holds the options against what a Lease and the election can work with.
    ///
    /// # Errors
    /// The first option that breaks a rule, and the rule.
    pub fn validate(&self, controller: &ControllerOptions) -> Result<(), InvalidOption> {
        self.lease_namespace.as_deref().map_or(Ok(()), |name| names::label("lease_namespace", name))?;
        names::subdomain("lease_name", &self.name_for(controller))?;
        for (key, value) in &self.lease_labels {
            names::label_key("lease_labels", key)?;
            names::label_value("lease_labels", value)?;
        }
        self.validate_durations()
    }

    fn validate_durations(&self) -> Result<(), InvalidOption> {
        let Self { lease_duration, lease_hold, lease_renew, .. } = *self;
        LeaseTiming::new(lease_duration, lease_hold, lease_renew).map(drop).map_err(|error| {
            let option = match error {
                TimingError::NotWholeSeconds(_) | TimingError::OutOfRange(_) => "lease_duration",
                TimingError::HoldTooLong { .. } => "lease_hold",
                TimingError::RenewTooSlow { .. } => "lease_renew",
            };
            InvalidOption { option, rule: format!("must fit the others: {error}") }
        })
    }

    /// The three durations together; the default ones where these break a rule, which
    /// [`validate`](Self::validate) tells.
    #[must_use]
    pub fn timing(&self) -> LeaseTiming {
        LeaseTiming::new(self.lease_duration, self.lease_hold, self.lease_renew).unwrap_or_default()
    }
}

impl Default for LeaderElectionOptions {
    /// The Go library's durations.
    fn default() -> Self {
        Self::of(LeaseTiming::DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(duration: u64, hold: u64, renew: u64) -> &'static str {
        let options = LeaderElectionOptions {
            lease_duration: Duration::from_millis(duration),
            lease_hold: Duration::from_millis(hold),
            lease_renew: Duration::from_millis(renew),
            ..LeaderElectionOptions::default()
        };
        options.validate(&ControllerOptions::new("a/b")).expect_err("a broken relation is refused").option
    }

    #[test]
    fn both_profiles_keep_the_relations() {
        let controller = ControllerOptions::new("a/b");
        assert_eq!(LeaderElectionOptions::default().validate(&controller), Ok(()));
        assert_eq!(LeaderElectionOptions::fast().validate(&controller), Ok(()));
    }

    #[test]
    fn a_relation_that_is_broken_names_the_duration_to_change() {
        assert_eq!(refused(900, 500, 100), "lease_duration");
        assert_eq!(refused(2500, 2000, 100), "lease_duration");
        assert_eq!(refused(10_000, 10_000, 2000), "lease_hold");
        assert_eq!(refused(15_000, 10_000, 3334), "lease_renew");
        assert_eq!(refused(15_000, 10_000, 0), "lease_renew");
    }

    #[test]
    fn the_lease_is_named_as_the_go_library_names_it_unless_said_otherwise() {
        let mut controller = ControllerOptions::new("example.com/disk");
        let mut options = LeaderElectionOptions::default();
        assert_eq!(options.name_for(&controller), "example.com-disk");
        controller.instance = Some("rack-7".into());
        assert_eq!(options.name_for(&controller), "example.com-disk-rack-7");
        options.lease_name = Some("mine".into());
        assert_eq!(options.name_for(&controller), "mine");
    }

    #[test]
    fn a_provisioner_name_that_makes_no_lease_name_asks_for_one() {
        let controller = ControllerOptions::new("Example.com/disk");
        let options = LeaderElectionOptions::default();
        assert_eq!(options.validate(&controller).unwrap_err().option, "lease_name");
    }

    #[test]
    fn the_namespace_is_looked_for_where_a_pod_has_it() {
        let some = |text: &'static str| move || Some(text.to_owned());
        let mut options = LeaderElectionOptions::default();
        assert_eq!(options.namespace_from(|| None, || None), "default");
        assert_eq!(options.namespace_from(|| None, some("account\n")), "account");
        assert_eq!(options.namespace_from(some("pod"), some("account")), "pod");
        assert_eq!(options.namespace_from(some(""), some("account")), "account");
        options.lease_namespace = Some("asked".into());
        assert_eq!(options.namespace_from(some("pod"), some("account")), "asked");
    }
}
