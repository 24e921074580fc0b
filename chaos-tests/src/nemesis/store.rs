//! What etcd forgets: compaction, so that whoever reads on from an old place is told that it is gone.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    binaries::Program,
    control_plane::ControlPlane,
    http::{self, Answer},
};

/// What etcd says of a revision that it has thrown away.
const COMPACTED: &str = "has been compacted";

/// Throws the history of everything away, up to now; the revision that is the oldest from here on. Lists and watches
/// go on as long as the API server remembers what they need by itself: [`forget`] is for those.
///
/// # Errors
/// If etcd does not answer.
pub async fn compact(plane: &ControlPlane) -> Result<u64> {
    let now: Value = serde_json::from_str(&read(plane, 0).await?.body).context("etcd answers no JSON")?;
    let revision =
        now.pointer("/header/revision").and_then(Value::as_str).context("etcd names no revision")?;
    let request = json!({ "revision": revision, "physical": true });
    let answer = ask(plane, "compaction", &request).await?;
    // Nothing may have happened since the last time.
    let done = answer.status == 200 || answer.body.contains(COMPACTED);
    ensure!(done, "etcd does not compact up to {revision}: {}", answer.body);
    revision.parse().context("etcd's revision is no number")
}

/// As [`compact`], and the API server forgets too: it is started again. A watch that goes on from a place before
/// that is answered with 410.
///
/// # Errors
/// If etcd does not answer, or the API server does not come up again.
pub async fn forget(plane: &ControlPlane) -> Result<u64> {
    let revision = compact(plane).await?;
    plane.restart(Program::KubeApiserver).await?;
    Ok(revision)
}

/// Whether etcd can still tell how things were at a revision.
///
/// # Errors
/// If etcd does not answer.
pub async fn remembers(plane: &ControlPlane, revision: u64) -> Result<bool> {
    let answer = read(plane, revision).await?;
    ensure!(answer.status == 200 || answer.body.contains(COMPACTED), "etcd can't be read: {}", answer.body);
    Ok(answer.status == 200)
}

/// Any key, for what the answer tells beside it; 0 is now.
async fn read(plane: &ControlPlane, revision: u64) -> Result<Answer> {
    ask(plane, "range", &json!({ "key": "AA==", "revision": revision.to_string() })).await
}

async fn ask(plane: &ControlPlane, what: &str, request: &Value) -> Result<Answer> {
    http::post(&format!("{}/v3/kv/{what}", plane.etcd()?), &request.to_string()).await
}
