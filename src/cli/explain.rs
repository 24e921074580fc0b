//! `explain`: reads the cluster once and says why a claim waits or a volume stays.

use std::{io::Write as _, path::PathBuf};

use clap::{Args, Subcommand};
use tokio::runtime::Builder;

use super::{Failure, run};
use crate::{
    clock::SystemClock,
    cluster::{
        CallError, Calls, Permissions, clients,
        evidence::{self, Hints},
        with_sources,
    },
    lifecycle::explain::{self, Explanation},
    telemetry::metrics::Metrics,
};

/// What to explain, and how.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    object: Object,
    /// Print the answer as JSON (docs/reference/explain.md).
    #[arg(long, global = true)]
    json: bool,
    /// The kubeconfig that says where the API server is and who we are.
    #[arg(long, global = true, value_name = "PATH", env = "KUBE_PROVISIONER_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The provisioner to ask about; by default the one that the claim, its class or the volume names.
    /// Given again: its additional names.
    #[arg(long, global = true, value_name = "NAME")]
    provisioner_name: Vec<String>,
    /// The namespace of its Lease; by default it is searched in all.
    #[arg(long, global = true, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// The name of its Lease; by default it is found by its annotation, or by the provisioner's name.
    #[arg(long, global = true, value_name = "NAME")]
    lease_name: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Object {
    /// Why a PersistentVolumeClaim is pending.
    Pvc {
        /// The claim.
        #[arg(value_name = "NAMESPACE/NAME", value_parser = path)]
        claim: (String, String),
    },
    /// Why a PersistentVolume is not deleted.
    Pv {
        /// The volume.
        #[arg(value_name = "NAME")]
        volume: String,
    },
}

fn path(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("must be the claim's namespace and name with a slash between".to_owned()),
    }
}

/// Prints the explanation.
pub(super) fn explain(arguments: &Arguments) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Runtime(format!("cannot start a runtime: {error}")))?;
    let explanation = runtime.block_on(find_out(arguments))?;
    let text = if arguments.json { as_json(&explanation)? } else { explanation.to_string() };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::Runtime(format!("cannot write to standard output: {error}")))
}

fn as_json(explanation: &Explanation) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(explanation);
    text.map(|text| text + "\n").map_err(|error| Failure::Internal(error.to_string()))
}

async fn find_out(arguments: &Arguments) -> Result<Explanation, Failure> {
    let config = run::cluster(arguments.kubeconfig.as_deref()).await?;
    let client = clients::for_requests(&config, &Metrics::new(&SystemClock::shared())).map_err(|error| {
        Failure::Unreachable(format!("no client for the cluster: {}", with_sources(&error)))
    })?;
    let calls = Calls::new(client, Permissions::untold());
    let hints = Hints {
        provisioners: arguments.provisioner_name.clone(),
        lease_namespace: arguments.lease_namespace.clone(),
        lease_name: arguments.lease_name.clone(),
        default_namespace: config.default_namespace,
    };
    match &arguments.object {
        Object::Pvc { claim: (namespace, name) } => {
            let facts = evidence::of_claim(&calls, &hints, namespace, name).await;
            let facts = facts.map_err(|error| unreadable(&error, "get persistentvolumeclaims"))?;
            let facts = facts.ok_or_else(|| missing(&format!("claim {namespace}/{name}")))?;
            Ok(explain::claim(&facts))
        }
        Object::Pv { volume } => {
            let facts = evidence::of_volume(&calls, &hints, volume).await;
            let facts = facts.map_err(|error| unreadable(&error, "get persistentvolumes"))?;
            Ok(explain::volume(&facts.ok_or_else(|| missing(&format!("volume {volume}")))?))
        }
    }
}

fn missing(what: &str) -> Failure {
    Failure::Runtime(format!("there is no {what}"))
}

fn unreadable(error: &CallError, permission: &str) -> Failure {
    Failure::Runtime(match error {
        CallError::Forbidden { .. } => format!("{error}; it takes the permission to {permission}"),
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn a_claim_is_named_by_namespace_and_name() {
        assert_eq!(path("team/data"), Ok(("team".to_owned(), "data".to_owned())));
        for wrong in ["data", "/data", "team/", "a/b/c", ""] {
            assert!(path(wrong).is_err(), "{wrong:?}");
        }
    }
}
