//! What stands before the first claim: permissions, a storage class, a directory for volumes, three replicas.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::table::{self, ReplicaRow};
use crate::{
    cluster::Scope,
    control_plane::ControlPlane,
    manifests,
    ports::Port,
    replica::{Replica, Spec},
};

/// As `deploy/` has them.
pub(super) const NAMESPACE: &str = "kube-provisioner";
pub(super) const PROVISIONER: &str = "directory.kube-provisioner.dev";
pub(super) const CLASS: &str = "directory";
const ACCOUNT: &str = "kube-provisioner";

/// What is for nodes, of which there are none: here the replicas are processes.
const FOR_NODES: [&str; 2] = ["Deployment", "PodDisruptionBudget"];

const REPLICAS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How much of its log each replica shows if the demo fails.
const TAIL_LINES: usize = 20;

/// The replicas and what they work with.
pub(super) struct Stage<'a> {
    pub(super) scope: Scope<'a>,
    /// Where the volumes are.
    pub(super) base: PathBuf,
    pub(super) replicas: Vec<Replica>,
}

impl<'a> Stage<'a> {
    /// Applies the manifests and makes the directory. No replica runs yet.
    pub(super) async fn set(plane: &'a ControlPlane) -> Result<Self> {
        let scope = Scope::named(plane, NAMESPACE, PROVISIONER).await?;
        let base = scope.directory().join("volumes");
        fs::create_dir(&base).with_context(|| format!("cannot create {}", base.display()))?;
        manifests::apply(&scope.client(), NAMESPACE, &shipped()?).await?;
        Ok(Self { scope, base, replicas: Vec::new() })
    }

    /// Starts the replicas and waits until all are ready.
    pub(super) async fn start_replicas(&mut self, program: &Path) -> Result<()> {
        for number in 1..=REPLICAS {
            let replica = self.start_replica(program, format!("replica-{number}")).await?;
            self.replicas.push(replica);
        }
        for replica in &self.replicas {
            replica.wait_ready(READY_WITHIN).await?;
        }
        Ok(())
    }

    async fn start_replica(&self, program: &Path, name: String) -> Result<Replica> {
        let http = Port::claim()?;
        let kubeconfig = self.scope.service_account_kubeconfig(ACCOUNT, None).await?;
        let args = self.arguments(&http);
        let env = [
            ("POD_NAME", name.as_str()),
            ("POD_NAMESPACE", NAMESPACE),
            // Traces are looked at seconds after they are made.
            ("OTEL_BSP_SCHEDULE_DELAY", "500"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Replica::start(&self.scope, Spec { name, program: program.to_owned(), args, env, kubeconfig, http })
    }

    fn arguments(&self, http: &Port) -> Vec<String> {
        let mut args: Vec<String> =
            ["run", "--provisioner-name", PROVISIONER, "--lease-profile", "fast", "--log-format", "human"]
                .map(str::to_owned)
                .to_vec();
        args.extend(["--backend".to_owned(), "directory".to_owned()]);
        args.extend(["--directory-path".to_owned(), self.base.display().to_string()]);
        args.extend(["--http-address".to_owned(), format!("127.0.0.1:{}", http.number())]);
        if let Some(jaeger) = self.scope.plane().jaeger() {
            args.extend(["--otlp-endpoint".to_owned(), jaeger.otlp.clone()]);
        }
        args
    }

    /// The replica of this name.
    pub(super) fn replica(&self, name: &str) -> Result<&Replica> {
        let found = self.replicas.iter().find(|replica| replica.name() == name);
        found.with_context(|| format!("the Lease is held by {name:?}, which is none of the demo's replicas"))
    }

    /// Starts a replica that was killed again, and waits until it is ready.
    pub(super) async fn restart(&mut self, name: &str) -> Result<()> {
        for replica in self.replicas.iter_mut().filter(|replica| replica.name() == name) {
            replica.restart()?;
            replica.wait_ready(READY_WITHIN).await?;
        }
        Ok(())
    }

    /// How the replicas look when `leader` holds the Lease.
    pub(super) fn rows(&self, leader: Option<&str>) -> Vec<ReplicaRow> {
        let row = |replica: &Replica| {
            let role = table::role(replica.name(), replica.exit_status().is_none(), leader);
            ReplicaRow { name: replica.name().to_owned(), pid: replica.pid(), role }
        };
        self.replicas.iter().map(row).collect()
    }

    /// The ends of the replicas' logs.
    pub(super) fn log_tails(&self) -> String {
        self.replicas.iter().map(|replica| tail(replica.name(), replica.log_text())).collect()
    }
}

/// The objects of `deploy/` that make sense without nodes.
fn shipped() -> Result<Vec<Value>> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut objects = manifests::read(&package.parent().unwrap_or(package).join("deploy"), &[])?;
    let for_nodes =
        |object: &Value| object.get("kind").and_then(Value::as_str).is_some_and(|k| FOR_NODES.contains(&k));
    objects.retain(|object| !for_nodes(object));
    Ok(objects)
}

fn tail(name: &str, log: Result<String>) -> String {
    match log {
        Ok(log) => {
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(TAIL_LINES);
            let end: String = lines.iter().skip(from).map(|line| format!("{line}\n")).collect();
            format!("-- the end of the log of {name}\n{end}")
        }
        Err(error) => format!("-- no log of {name}: {error:#}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deploy_ships_agrees_with_the_names_here() {
        let objects = shipped().unwrap();
        let find = |kind: &str, name: &str| {
            let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
            objects.iter().find(is).unwrap_or_else(|| panic!("no {kind} {name}")).clone()
        };
        assert_eq!(find("StorageClass", CLASS)["provisioner"], PROVISIONER);
        assert_eq!(find("ServiceAccount", ACCOUNT)["metadata"]["namespace"], NAMESPACE);
        assert!(objects.iter().all(|object| !FOR_NODES.iter().any(|kind| object["kind"] == *kind)));
    }

    #[test]
    fn a_tail_is_the_end_of_a_log() {
        let log: String = (1..=30).map(|number| format!("line {number}\n")).collect();
        let tail = tail("r", Ok(log));
        assert!(
            tail.contains("line 11\n") && tail.ends_with("line 30\n") && !tail.contains("line 10\n"),
            "{tail}"
        );
    }
}
