//! The options of one provisioner as plain values with their defaults and the rules they must keep.
//!
//! A library user fills these in directly; the program fills them from flags, environment variables and
//! its configuration file (`cli`). Nothing here reads any of those.

mod election;
mod names;

use std::{fmt, num::NonZeroUsize, time::Duration};

pub use election::LeaderElectionOptions;

pub use crate::lifecycle::orphan::OrphanPolicy;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The number of hexadecimal digits in a UID once its dashes are gone.
const UID_DIGITS: u8 = 32;

/// A limit on calls in flight where nothing else is said.
const DEFAULT_WORKERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(99);

/// Which events are written on claims and volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventVerbosity {
    /// Successes and failures; no `Provisioning` event at the start, which would double the writes.
    #[default]
    Normal,
    /// All that the Go library writes.
    All,
}

/// How one provisioner works. [`new`](Self::new) has the defaults; [`validate`](Self::validate) the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerOptions {
    /// The name that storage classes give as their `provisioner`.
    pub provisioner_name: String,
    /// Further names whose claims and volumes are this provisioner's as well.
    pub additional_provisioner_names: Vec<String>,
    /// How often everything cached is looked at again. Never resets a backoff.
    pub resync_period: Duration,
    /// Whether the wait doubles with each failure. Otherwise it is always [`retry_initial`](Self::retry_initial).
    pub exponential_backoff_on_error: bool,
    /// The wait after the first failure of a claim or volume.
    pub retry_initial: Duration,
    /// The longest wait between two attempts.
    pub retry_max: Duration,
    /// Attempts to provision one version of a claim before it is left alone; 0 is for ever.
    pub failed_provision_threshold: u32,
    /// Attempts to delete one version of a volume before it is left alone; 0 is for ever.
    pub failed_delete_threshold: u32,
    /// How many volumes are provisioned at once.
    pub provision_workers: NonZeroUsize,
    /// How many volumes are deleted at once.
    pub delete_workers: NonZeroUsize,
    /// How long one provision call may take. Its outcome then counts as unknown.
    pub provision_timeout: Duration,
    /// How long one delete call may take. Its outcome then counts as unknown.
    pub deletion_timeout: Duration,
    /// Whether volumes carry the finalizer that keeps them until their asset is gone.
    pub add_finalizer: bool,
    /// What the name of a volume begins with, before a dash and the claim's UID.
    pub volume_name_prefix: String,
    /// How many digits of the claim's UID, without its dashes, a volume's name has. All of it, with its
    /// dashes, where this is absent. Few digits make two claims meet at one name sooner.
    pub volume_name_uuid_length: Option<u8>,
    /// Sets deployments under one provisioner name apart, for bases that are local to a node: volumes of
    /// another instance are never touched. Part of the Lease's name.
    pub instance: Option<String>,
    /// Which events are written.
    pub event_verbosity: EventVerbosity,
    /// How often the backend's assets are audited, while this replica leads.
    pub audit_interval: Duration,
    /// What happens to assets that belong to no volume and no claim.
    pub orphans: OrphanPolicy,
    /// How long running calls may go on after a stop was asked for; then they are cancelled.
    pub drain_budget: Duration,
}

impl ControllerOptions {
    /// The defaults, for a provisioner of this name.
    pub fn new(provisioner_name: impl Into<String>) -> Self {
        Self { provisioner_name: provisioner_name.into(), ..Self::default() }
    }

    /// Holds the options against what Kubernetes and the controller can work with.
    ///
    /// # Errors
    /// The first option that breaks a rule, and the rule.
    pub fn validate(&self) -> Result<(), InvalidOption> {
        self.validate_names()?;
        self.validate_times()?;
        let length = self.volume_name_uuid_length;
        require(
            length.is_none_or(|digits| (1..=UID_DIGITS).contains(&digits)),
            "volume_name_uuid_length",
            || format!("must be between 1 and {UID_DIGITS}, the digits of a UID without its dashes"),
        )
    }

    fn validate_names(&self) -> Result<(), InvalidOption> {
        names::provisioner("provisioner_name", &self.provisioner_name)?;
        for name in &self.additional_provisioner_names {
            names::provisioner("additional_provisioner_names", name)?;
        }
        names::volume_prefix("volume_name_prefix", &self.volume_name_prefix)?;
        self.instance.as_deref().map_or(Ok(()), |name| names::label("instance", name))
    }

    fn validate_times(&self) -> Result<(), InvalidOption> {
        at_least("resync_period", self.resync_period, SECOND)?;
        at_least("audit_interval", self.audit_interval, SECOND)?;
        at_least("retry_initial", self.retry_initial, Duration::from_millis(1))?;
        at_least("provision_timeout", self.provision_timeout, Duration::from_millis(1))?;
        at_least("deletion_timeout", self.deletion_timeout, Duration::from_millis(1))?;
        require(self.retry_max >= self.retry_initial, "retry_max", || {
            format!("must not be shorter than the first wait (retry_initial), {:?}", self.retry_initial)
        })
    }
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            provisioner_name: String::new(),
            additional_provisioner_names: Vec::new(),
            resync_period: 15 * MINUTE,
            exponential_backoff_on_error: true,
            retry_initial: 15 * SECOND,
            retry_max: 1000 * SECOND,
            failed_provision_threshold: 0,
            failed_delete_threshold: 0,
            provision_workers: DEFAULT_WORKERS,
            delete_workers: DEFAULT_WORKERS,
            provision_timeout: 5 * MINUTE,
            deletion_timeout: 5 * MINUTE,
            add_finalizer: true,
            volume_name_prefix: "pvc".into(),
            volume_name_uuid_length: None,
            instance: None,
            event_verbosity: EventVerbosity::Normal,
            audit_interval: 5 * MINUTE,
            orphans: OrphanPolicy::Auto,
            drain_budget: Duration::from_millis(100),
        }
    }
}

/// An option whose value breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidOption {
    /// The option, as its field is called.
    pub option: &'static str,
    /// The rule it breaks.
    pub rule: String,
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.option, self.rule)
    }
}

fn require(holds: bool, option: &'static str, rule: impl FnOnce() -> String) -> Result<(), InvalidOption> {
    if holds { Ok(()) } else { Err(InvalidOption { option, rule: rule() }) }
}

fn at_least(option: &'static str, value: Duration, least: Duration) -> Result<(), InvalidOption> {
    require(value >= least, option, || format!("must be at least {least:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut ControllerOptions)) -> &'static str {
        let mut options = ControllerOptions::new("example.com/disk");
        change(&mut options);
        options.validate().expect_err("a broken rule is refused").option
    }

    #[test]
    fn the_defaults_with_a_name_are_valid_and_without_one_are_not() {
        assert_eq!(ControllerOptions::new("example.com/disk").validate(), Ok(()));
        assert_eq!(ControllerOptions::default().validate().unwrap_err().option, "provisioner_name");
    }

    #[test]
    fn every_rule_names_the_option_that_breaks_it() {
        assert_eq!(refused(|o| o.provisioner_name = "a/b/c".into()), "provisioner_name");
        assert_eq!(
            refused(|o| o.additional_provisioner_names = vec!["ok".into(), "not ok".into()]),
            "additional_provisioner_names"
        );
        assert_eq!(refused(|o| o.volume_name_prefix = "PVC".into()), "volume_name_prefix");
        assert_eq!(refused(|o| o.volume_name_uuid_length = Some(0)), "volume_name_uuid_length");
        assert_eq!(refused(|o| o.volume_name_uuid_length = Some(33)), "volume_name_uuid_length");
        assert_eq!(refused(|o| o.instance = Some("a.b".into())), "instance");
        assert_eq!(refused(|o| o.retry_max = SECOND), "retry_max");
        assert_eq!(refused(|o| o.retry_initial = Duration::ZERO), "retry_initial");
        assert_eq!(refused(|o| o.resync_period = Duration::ZERO), "resync_period");
        assert_eq!(refused(|o| o.audit_interval = Duration::ZERO), "audit_interval");
        assert_eq!(refused(|o| o.provision_timeout = Duration::ZERO), "provision_timeout");
        assert_eq!(refused(|o| o.deletion_timeout = Duration::ZERO), "deletion_timeout");
    }
}
