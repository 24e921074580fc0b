//! A claim that waits for nobody, made wrong on purpose, and what the product says about it.

use std::{
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};
use kube::Api;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::process::Command;

use super::stage::{NAMESPACE, PROVISIONER};
use crate::{
    cluster::{self, Scope},
    wait,
};

/// Beside the replicas: a claim among the others would count with them.
const CLAIM: &str = "mistyped";
const CLASS: &str = "mistyped";
/// [`PROVISIONER`] but for one letter.
const TYPO: &str = "directory.kube-provisoner.dev";
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// What `explain` found. Scripts read it: names stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Explained {
    /// The claim, `namespace/name`.
    pub(super) claim: String,
    /// In a word.
    pub(super) state: String,
    /// The same in a sentence.
    pub(super) reason: String,
}

/// The claim and its class while they exist.
pub(super) struct Mistyped<'a> {
    scope: &'a Scope<'a>,
    program: PathBuf,
}

impl<'a> Mistyped<'a> {
    /// Creates both.
    pub(super) async fn create(scope: &'a Scope<'a>, program: &Path) -> Result<Self> {
        let class: StorageClass = serde_json::from_value(json!({
            "metadata": { "name": CLASS },
            "provisioner": TYPO,
        }))?;
        cluster::create(&Api::all(scope.client()), &class).await?;
        scope.create_claim(CLAIM, CLASS, |_| ()).await?;
        Ok(Self { scope, program: program.to_owned() })
    }

    /// The command that people type.
    pub(super) fn command() -> String {
        format!("kube-provisioner explain pvc {NAMESPACE}/{CLAIM}")
    }

    /// What the program says to people.
    pub(super) async fn in_words(&self) -> Result<String> {
        let output = self.explain(&[]).await?;
        String::from_utf8(output.stdout).context("explain does not write text")
    }

    /// What it says to programs, which must be the fault that was made and the name that was meant.
    pub(super) async fn as_data(&self) -> Result<Explained> {
        let output = self.explain(&["--json"]).await?;
        read(&output.stdout)
    }

    /// Removes both.
    pub(super) async fn remove(self) -> Result<()> {
        let claims: Api<PersistentVolumeClaim> = self.scope.claims();
        cluster::delete(&claims, CLAIM).await?;
        wait::until_gone(&claims, CLAIM, GONE_WITHIN).await?;
        cluster::delete(&Api::<StorageClass>::all(self.scope.client()), CLASS).await
    }

    async fn explain(&self, more: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(["explain", "pvc", &format!("{NAMESPACE}/{CLAIM}")]).args(more).kill_on_drop(true);
        command.env("KUBECONFIG", self.scope.plane().kubeconfig());
        let output = command.output().await.context("cannot run kube-provisioner explain")?;
        let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(output.status.success(), "kube-provisioner explain ended with {}: {}", output.status, said());
        Ok(output)
    }
}

fn read(json: &[u8]) -> Result<Explained> {
    let found: Value = serde_json::from_slice(json).context("explain --json does not write JSON")?;
    let text = |field: &str| found.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (state, reason) = (text("state"), text("summary"));
    let right = state == "WrongProvisionerName" && reason.contains(TYPO) && reason.contains(PROVISIONER);
    ensure!(right, "explain does not find the mistyped name of the provisioner: {found}");
    Ok(Explained { claim: format!("{NAMESPACE}/{CLAIM}"), state, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_names_the_fault_and_what_was_meant_will_do() {
        let answer = |state: &str, summary: &str| {
            let answer = json!({ "state": state, "summary": summary });
            read(answer.to_string().as_bytes())
        };
        let both = format!("{TYPO} is not served, {PROVISIONER} is");
        let found = answer("WrongProvisionerName", &both).unwrap();
        assert_eq!((found.claim.as_str(), found.reason), ("kube-provisioner/mistyped", both.clone()));
        assert!(answer("InProgress", &both).is_err());
        assert!(answer("WrongProvisionerName", &format!("{TYPO} is not served")).is_err());
    }
}
