//! The exec protocol, version 1, as types: what is written to the program and what it may answer.
//!
//! `docs/reference/exec.md` is this file in words. Programs are written against it: fields may be added,
//! none may change.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, VolumeNodeAffinity},
    storage::v1::StorageClass,
};
use serde::{Deserialize, Serialize};

use crate::provisioner::{Asset, AssetClaim, Call, ReclaimPolicy, VolumeOptions};

const API_VERSION: &str = "exec.kube-provisioner.dev/v1";

/// What the program is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Capabilities,
    Provision,
    Delete,
    Keep,
    List,
}

impl Operation {
    /// The program's last argument, and the request's `operation`.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::Provision => "provision",
            Self::Delete => "delete",
            Self::Keep => "keep",
            Self::List => "list",
        }
    }
}

/// One request. The fields are written in this order, small ones first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    api_version: &'static str,
    operation: &'static str,
    provisioner: &'a str,
    installation: &'a str,
    deadline: String,
    epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(flatten)]
    subject: Subject<'a>,
}

/// What the request is about.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Subject<'a> {
    /// The program itself.
    Program {},
    /// A volume to make.
    Options(Box<Options<'a>>),
    /// A volume that was made.
    Volume(Made<'a>),
    /// All assets, from where the last page ended.
    Page {
        #[serde(skip_serializing_if = "Option::is_none")]
        r#continue: Option<&'a str>,
    },
}

/// What a provision request has of its own.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Options<'a> {
    volume_name: &'a str,
    reclaim_policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    selected_node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selected_node_labels: Option<&'a BTreeMap<String, String>>,
    parameters: &'a BTreeMap<String, String>,
    storage_class: &'a StorageClass,
    claim: &'a PersistentVolumeClaim,
}

/// What a delete or keep request has of its own.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Made<'a> {
    volume_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<&'a PersistentVolume>,
}

impl<'a> Options<'a> {
    pub(super) fn of(options: &'a VolumeOptions) -> Self {
        Self {
            volume_name: &options.pv_name,
            reclaim_policy: options.persistent_volume_reclaim_policy.as_str(),
            selected_node: options.selected_node.as_ref().map(|node| node.name.as_str()),
            selected_node_labels: options.selected_node.as_ref().map(|node| &node.labels),
            parameters: &options.parameters,
            storage_class: &options.storage_class,
            claim: &options.pvc,
        }
    }
}

impl<'a> Made<'a> {
    /// A PV without a spec stands for an orphan, of which only the name is left.
    pub(super) fn of(volume: &'a PersistentVolume) -> Self {
        let volume_name = volume.metadata.name.as_deref().unwrap_or_default();
        Self { volume_name, volume: volume.spec.is_some().then_some(volume) }
    }
}

impl<'a> Request<'a> {
    pub(super) fn new(operation: Operation, call: &'a Call, subject: Subject<'a>) -> Self {
        Self {
            api_version: API_VERSION,
            operation: operation.as_str(),
            provisioner: &call.provisioner,
            installation: &call.installation,
            deadline: rfc3339(call.deadline),
            epoch: call.epoch,
            traceparent: call.traceparent.as_deref(),
            subject,
        }
    }
}

/// A call made outside any leadership, cut off after `limit`.
pub(super) fn bare_call(limit: Duration) -> Call {
    let now = SystemTime::now();
    Call {
        provisioner: "".into(),
        installation: "".into(),
        epoch: 0,
        deadline: now.checked_add(limit).unwrap_or(now),
        traceparent: None,
    }
}

fn rfc3339(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX).to_string()
}

/// What the program says of its one operation.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    #[serde(default)]
    pub(super) message: Option<String>,
    /// With `done` to `provision`.
    #[serde(default)]
    pub(super) volume: Option<AnsweredVolume>,
    /// With `done` to `capabilities`, as are those below.
    #[serde(default)]
    pub(super) operations: Vec<String>,
    #[serde(default)]
    pub(super) block: bool,
    #[serde(default)]
    pub(super) topology: bool,
    #[serde(default)]
    pub(super) selector: bool,
    /// With `done` to `list`, as is the one below.
    #[serde(default)]
    pub(super) assets: Vec<AnsweredAsset>,
    #[serde(default)]
    pub(super) r#continue: Option<String>,
}

impl Answer {
    /// An answer of nothing but its outcome.
    pub(super) fn bare(outcome: Outcome) -> Self {
        Self {
            outcome,
            message: None,
            volume: None,
            operations: Vec::new(),
            block: false,
            topology: false,
            selector: false,
            assets: Vec::new(),
            r#continue: None,
        }
    }
}

/// An asset in an answer to `list`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnsweredAsset {
    volume_name: String,
    #[serde(default)]
    installation: Option<String>,
    #[serde(default)]
    claim: Option<AnsweredClaim>,
    #[serde(default)]
    reclaim_policy: Option<String>,
    /// A program that does not say is taken to have been told to keep it: nothing is removed then.
    #[serde(default = "yes")]
    kept: bool,
    #[serde(default)]
    unused: bool,
    #[serde(default)]
    source: Option<serde_json::Value>,
}

const fn yes() -> bool {
    true
}

/// The claim of an asset in an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnsweredClaim {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    uid: String,
    #[serde(default)]
    resource_version: String,
}

impl From<AnsweredAsset> for Asset {
    fn from(answered: AnsweredAsset) -> Self {
        let claim = answered.claim.map(|claim| AssetClaim {
            namespace: claim.namespace,
            name: claim.name,
            uid: claim.uid,
            resource_version: claim.resource_version,
        });
        Self {
            volume_name: answered.volume_name,
            installation: answered.installation,
            claim,
            reclaim_policy: answered.reclaim_policy.as_deref().and_then(ReclaimPolicy::parse),
            kept: answered.kept,
            unused: answered.unused,
            source: answered.source,
        }
    }
}

/// The outcomes of all operations; which of them fit an operation is its caller's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Outcome {
    Done,
    Background,
    NoChange,
    Reschedule,
    Infeasible,
    Ignored,
    InUse,
    Failed,
}

/// The volume in an answer to `provision`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AnsweredVolume {
    pub(super) source: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    pub(super) capacity: Option<String>,
    #[serde(default)]
    pub(super) access_modes: Option<Vec<String>>,
    #[serde(default)]
    pub(super) volume_mode: Option<String>,
    #[serde(default)]
    pub(super) mount_options: Option<Vec<String>>,
    #[serde(default)]
    pub(super) node_affinity: Option<VolumeNodeAffinity>,
    #[serde(default)]
    pub(super) labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::provisioner::{ReclaimPolicy, SelectedNode};

    fn call() -> Call {
        Call {
            provisioner: "example.com/shelf".into(),
            installation: "uid/example.com/shelf".into(),
            epoch: 18_446_744_073_709_551_615,
            deadline: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            traceparent: Some("00-aa-bb-01".into()),
        }
    }

    #[test]
    fn a_provision_request_is_written_as_the_protocol_says() {
        let options = VolumeOptions {
            persistent_volume_reclaim_policy: ReclaimPolicy::Retain,
            pv_name: "pvc-1".into(),
            pvc: Arc::default(),
            parameters: BTreeMap::from([("tier".into(), "cold".into())]),
            storage_class: Arc::new(StorageClass {
                provisioner: "example.com/shelf".into(),
                ..Default::default()
            }),
            mount_options: vec![],
            selected_node: Some(SelectedNode { name: "n1".into(), labels: BTreeMap::new() }),
            call: call(),
        };
        let subject = Subject::Options(Box::new(Options::of(&options)));
        let written =
            serde_json::to_value(Request::new(Operation::Provision, &options.call, subject)).unwrap();
        let expected = json!({
            "apiVersion": "exec.kube-provisioner.dev/v1",
            "operation": "provision",
            "provisioner": "example.com/shelf",
            "installation": "uid/example.com/shelf",
            "deadline": "2027-01-15T08:00:00Z",
            "epoch": 18_446_744_073_709_551_615_u64,
            "traceparent": "00-aa-bb-01",
            "volumeName": "pvc-1",
            "reclaimPolicy": "Retain",
            "selectedNode": "n1",
            "selectedNodeLabels": {},
            "parameters": {"tier": "cold"},
            "storageClass": {
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {},
                "provisioner": "example.com/shelf",
            },
            "claim": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}},
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn a_delete_request_has_the_volume_and_an_orphan_only_its_name() {
        let mut volume = PersistentVolume::default();
        volume.metadata.name = Some("pvc-1".into());
        let call = Call { traceparent: None, ..call() };
        let write = |volume: &PersistentVolume| {
            let request = Request::new(Operation::Delete, &call, Subject::Volume(Made::of(volume)));
            serde_json::to_value(request).unwrap()
        };
        let orphan = write(&volume);
        assert_eq!(orphan["volumeName"], "pvc-1");
        assert!(orphan.get("volume").is_none() && orphan.get("traceparent").is_none());
        volume.spec = Some(Default::default());
        assert_eq!(write(&volume)["volume"]["metadata"]["name"], "pvc-1");
    }

    #[test]
    fn a_capabilities_request_has_only_what_every_request_has() {
        let call = bare_call(Duration::from_secs(10));
        let written = serde_json::to_value(Request::new(Operation::Capabilities, &call, Subject::Program {}));
        let written = written.unwrap();
        let keys: Vec<_> = written.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["apiVersion", "deadline", "epoch", "installation", "operation", "provisioner"]);
    }

    #[test]
    fn an_answer_may_have_fields_that_are_not_known_yet_but_its_volume_may_not() {
        let answer: Answer = serde_json::from_str(r#"{"outcome":"noChange","later":1}"#).unwrap();
        assert_eq!(answer.outcome, Outcome::NoChange);
        let typo = r#"{"outcome":"done","volume":{"source":{},"acessModes":[]}}"#;
        assert!(serde_json::from_str::<Answer>(typo).unwrap_err().to_string().contains("acessModes"));
    }
}
