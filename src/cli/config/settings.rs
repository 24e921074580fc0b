//! The validated layer: `Settings`, whose types allow only what the program can work with.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc};

use super::{
    ConfigError,
    backend::Section,
    merged::{Merged, MergedProvisioner, Values},
    values,
};
use crate::{
    backends::BackendConfig,
    options::{ControllerOptions, InvalidOption, LeaderElectionOptions},
    provisioner::Provisioner,
    telemetry::logs::LogFormat,
};

/// All that the program was told, ready to act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The kubeconfig to use; where absent, `KUBECONFIG`, `~/.kube/config` or the Pod's service account.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where probes and metrics are served.
    pub(crate) http_address: SocketAddr,
    /// How log lines look; where absent, human on a terminal and JSON elsewhere.
    pub(crate) log_format: Option<LogFormat>,
    /// A filter in the form that `tracing_subscriber::EnvFilter` reads; has been read once.
    pub(crate) log_level: String,
    /// Where traces go, if anywhere.
    pub(crate) otlp_endpoint: Option<String>,
    /// At least one; no name twice, no Lease twice.
    pub(crate) provisioners: Vec<ProvisionerSettings>,
}

/// One provisioner of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProvisionerSettings {
    /// How its controller works.
    pub(crate) controller: ControllerOptions,
    /// The Lease that it contests.
    pub(crate) leader_election: LeaderElectionOptions,
    /// What makes its volumes.
    pub(crate) backend: BackendSection,
}

/// A backend's configuration as it was written: `{"<kind>": {<options>}}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackendSection(Section);

impl BackendSection {
    /// Reads the section and makes the backend.
    ///
    /// # Errors
    /// The first setting that can't work, with the section's source.
    pub(crate) fn build(&self) -> Result<Arc<dyn Provisioner>, ConfigError> {
        let config: BackendConfig =
            serde_json::from_value(self.0.value.clone()).map_err(|error| self.refuse(error))?;
        config.build().map_err(|error| self.refuse(error))
    }

    /// The section as it was written.
    #[cfg(test)]
    pub(crate) fn written(&self) -> &serde_json::Value {
        &self.0.value
    }

    fn refuse(&self, problem: impl std::fmt::Display) -> ConfigError {
        ConfigError::misplaced(&self.0.source, format!("backend: {problem}"))
    }
}

impl Settings {
    /// Validates what was merged.
    ///
    /// # Errors
    /// The first value that its option doesn't allow, or two provisioners in each other's way.
    pub(in crate::cli) fn validate(merged: &Merged) -> Result<Self, ConfigError> {
        let process = &merged.process;
        let settings = Self {
            kubeconfig: process.optional("kubeconfig", values::text)?.map(PathBuf::from),
            http_address: process.required("http_address", values::address)?,
            log_format: process.optional("log_format", values::log_format)?,
            log_level: process.required("log_level", values::log_level)?,
            otlp_endpoint: process.optional("otlp_endpoint", values::http_url)?,
            provisioners: merged.provisioners.iter().map(provisioner).collect::<Result<_, _>>()?,
        };
        refuse_shared(merged, &settings.provisioners)?;
        Ok(settings)
    }
}

fn provisioner(merged: &MergedProvisioner) -> Result<ProvisionerSettings, ConfigError> {
    let refuse = |invalid: InvalidOption| merged.values.refuse(invalid.option, invalid.rule);
    let controller = controller(&merged.values)?;
    controller.validate().map_err(refuse)?;
    let leader_election = leader_election(&merged.values)?;
    leader_election.validate(&controller).map_err(refuse)?;
    Ok(ProvisionerSettings { controller, leader_election, backend: BackendSection(merged.backend.clone()) })
}

fn controller(given: &Values) -> Result<ControllerOptions, ConfigError> {
    Ok(ControllerOptions {
        provisioner_name: given.required("provisioner_name", values::text)?,
        additional_provisioner_names: given
            .list("additional_provisioner_names", |names| Ok(names.to_vec()))?,
        resync_period: given.required("resync_period", values::duration)?,
        exponential_backoff_on_error: given.required("exponential_backoff_on_error", values::switch)?,
        retry_initial: given.required("retry_initial", values::duration)?,
        retry_max: given.required("retry_max", values::duration)?,
        failed_provision_threshold: given.required("failed_provision_threshold", values::threshold)?,
        failed_delete_threshold: given.required("failed_delete_threshold", values::threshold)?,
        provision_workers: given.required("provision_workers", values::workers)?,
        delete_workers: given.required("delete_workers", values::workers)?,
        provision_timeout: given.required("provision_timeout", values::duration)?,
        deletion_timeout: given.required("deletion_timeout", values::duration)?,
        add_finalizer: given.required("add_finalizer", values::switch)?,
        volume_name_prefix: given.required("volume_name_prefix", values::text)?,
        volume_name_uuid_length: given.optional("volume_name_uuid_length", values::digits)?,
        instance: given.optional("instance", values::text)?,
        event_verbosity: given.required("event_verbosity", values::event_verbosity)?,
        audit_interval: given.required("audit_interval", values::duration)?,
        orphans: given.required("orphans", values::orphans)?,
        drain_budget: given.required("drain_budget", values::duration)?,
    })
}

fn leader_election(given: &Values) -> Result<LeaderElectionOptions, ConfigError> {
    let profile = given.required("lease_profile", profile)?;
    Ok(LeaderElectionOptions {
        lease_namespace: given.optional("lease_namespace", values::text)?,
        lease_name: given.optional("lease_name", values::text)?,
        lease_labels: given.list("lease_labels", values::pairs)?,
        lease_duration: given.optional("lease_duration", values::duration)?.unwrap_or(profile.lease_duration),
        lease_hold: given.optional("lease_hold", values::duration)?.unwrap_or(profile.lease_hold),
        lease_renew: given.optional("lease_renew", values::duration)?.unwrap_or(profile.lease_renew),
    })
}

fn profile(text: &str) -> values::Parsed<LeaderElectionOptions> {
    match text {
        "default" => Ok(LeaderElectionOptions::default()),
        "fast" => Ok(LeaderElectionOptions::fast()),
        _ => Err("must be default or fast".into()),
    }
}

/// Two provisioners with one name would both take its claims; with one Lease only one would ever work.
fn refuse_shared(merged: &Merged, provisioners: &[ProvisionerSettings]) -> Result<(), ConfigError> {
    let (mut names, mut leases) = (BTreeMap::new(), BTreeMap::new());
    for (given, ProvisionerSettings { controller, leader_election, .. }) in
        merged.provisioners.iter().zip(provisioners)
    {
        let own = &controller.provisioner_name;
        for name in std::iter::once(own).chain(&controller.additional_provisioner_names) {
            if let Some(other) = names.insert(name, own) {
                let rule = format!("serves {name}, which the provisioner {other} of this process serves too");
                return Err(given.values.refuse("provisioner_name", rule));
            }
        }
        let lease = (leader_election.namespace(), leader_election.name_for(controller));
        if let Some(other) = leases.insert(lease, own) {
            let rule = format!(
                "is the Lease of the provisioner {other} of this process too; give one of them its own"
            );
            return Err(given.values.refuse("lease_name", rule));
        }
    }
    Ok(())
}
