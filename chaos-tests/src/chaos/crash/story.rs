//! The stories: each the life of one claim, told step by step, with what the backend does to it. A step waits for
//! what must come, whoever brings it about.

use anyhow::Result;
use clap::ValueEnum;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use serde::Serialize;
use serde_json::json;

use super::DEADLINE;
use crate::{
    cluster,
    ledger::{
        Conduct, Rule,
        stage::{FINALIZER, Stage},
    },
    wait,
};

/// The claim of every story.
const CLAIM: &str = "data";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Story {
    /// Provisioned, bound, deleted.
    Life,
    /// The backend fails at first, both at making and at removing.
    Failures,
    /// Bound where its consumer is; the backend refuses the first node.
    Reschedule,
    /// Of a class that retains.
    Retained,
    /// Bound, then patched to Retain.
    Kept,
    /// Deleted while the backend works.
    Withdrawn,
}

impl Story {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Life, Self::Failures, Self::Reschedule, Self::Retained, Self::Kept, Self::Withdrawn];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Life => "life",
            Self::Failures => "failures",
            Self::Reschedule => "reschedule",
            Self::Retained => "retained",
            Self::Kept => "kept",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// How the `nth` call of an operation goes.
    pub(super) fn conduct(self, operation: &str, nth: usize) -> Conduct {
        match (self, operation, nth) {
            (Self::Failures, "provision" | "delete", 1) => Conduct::answer("failed", "not yet"),
            (Self::Reschedule, "provision", 1) => Conduct::answer("reschedule", "no room on this node"),
            (Self::Withdrawn, "provision", 1) => Conduct::behind("gate"),
            _ => Conduct::default(),
        }
    }

    /// The rules for the ledger that make its calls go so.
    pub(super) fn rules(self) -> Vec<Rule> {
        let first = |operation| Rule::on(operation).nth(1).conduct(self.conduct(operation, 1));
        vec![first("provision"), first("delete")]
    }

    /// Tells it.
    pub(super) async fn tell(self, stage: &Stage<'_>) -> Result<()> {
        match self {
            Self::Life | Self::Failures => {
                let class = stage.class("a", |_| ()).await?;
                let volume = stage.bound(CLAIM, &class).await?;
                stage.delete_claim(CLAIM).await?;
                stage.volume_gone(&volume).await
            }
            Self::Reschedule => reschedule(stage).await,
            Self::Retained => {
                let retain = |policy: &mut Option<String>| *policy = Some("Retain".to_owned());
                let class = stage.class("a", |class| retain(&mut class.reclaim_policy)).await?;
                let volume = stage.bound(CLAIM, &class).await?;
                stage.delete_claim(CLAIM).await?;
                wait_phase(stage, &volume, "Released").await
            }
            Self::Kept => kept(stage).await,
            Self::Withdrawn => {
                let class = stage.class("a", |_| ()).await?;
                stage.claim(CLAIM, &class).await?;
                stage.ledger.wait_begun("provision", 1, DEADLINE).await?;
                stage.delete_claim(CLAIM).await?;
                stage.ledger.open("gate")
            }
        }
    }
}

async fn wait_phase(stage: &Stage<'_>, volume: &PersistentVolume, phase: &str) -> Result<()> {
    let has_phase = |volume: &PersistentVolume| {
        volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
    };
    wait::until(&stage.scope.all_volumes(), &volume.name_any(), DEADLINE, has_phase).await.map(drop)
}

async fn kept(stage: &Stage<'_>) -> Result<()> {
    let class = stage.class("a", |_| ()).await?;
    let volume = stage.bound(CLAIM, &class).await?;
    let volumes = stage.scope.all_volumes();
    let retain = Patch::Merge(json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
    volumes.patch(&volume.name_any(), &PatchParams::default(), &retain).await?;
    let let_go = |volume: &PersistentVolume| !volume.finalizers().iter().any(|it| it == FINALIZER);
    wait::until(&volumes, &volume.name_any(), DEADLINE, let_go).await?;
    stage.delete_claim(CLAIM).await?;
    wait_phase(stage, &volume, "Released").await
}

/// Without a scheduler: the story puts the node on the claim, again each time it was taken off.
async fn reschedule(stage: &Stage<'_>) -> Result<()> {
    let nodes: Api<Node> = Api::all(stage.scope.client());
    let node = format!("{}-node", stage.scope.namespace());
    let metadata = ObjectMeta { name: Some(node.clone()), ..ObjectMeta::default() };
    cluster::create(&nodes, &Node { metadata, ..Node::default() }).await?;
    let waits = |mode: &mut Option<String>| *mode = Some("WaitForFirstConsumer".to_owned());
    let class = stage.class("a", |class| waits(&mut class.volume_binding_mode)).await?;
    stage.claim(CLAIM, &class).await?;
    let claims = stage.scope.claims();
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    let needs_node = |claim: &PersistentVolumeClaim| !claim.annotations().contains_key(SELECTED_NODE);
    let select = Patch::Merge(json!({ "metadata": { "annotations": { SELECTED_NODE: node } } }));
    while !is_bound(&wait::until(&claims, CLAIM, DEADLINE, |it| is_bound(it) || needs_node(it)).await?) {
        claims.patch(CLAIM, &PatchParams::default(), &select).await?;
    }
    let volume = stage.volume_of(CLAIM).await?;
    stage.delete_claim(CLAIM).await?;
    stage.volume_gone(&volume).await?;
    cluster::delete(&nodes, &node).await
}
