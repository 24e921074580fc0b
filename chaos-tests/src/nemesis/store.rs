//! What etcd forgets: compaction, so that whoever reads on from an old place is told that it is gone.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{binaries::Program, control_plane::ControlPlane, http};

/// Throws the history of everything away, up to now; the revision that is the oldest from here on. The next page of
/// a list begun before is answered with 410. Watches go on as long as the API server remembers their events itself.
///
/// # Errors
/// If etcd does not answer.
pub async fn compact(plane: &ControlPlane) -> Result<u64> {
    let etcd = plane.etcd()?;
    // Any key: the answer's header tells the revision.
    let now = ask(&format!("{etcd}/v3/kv/range"), &json!({ "key": "AA==" })).await?;
    let revision =
        now.pointer("/header/revision").and_then(Value::as_str).context("etcd names no revision")?;
    ask(&format!("{etcd}/v3/kv/compaction"), &json!({ "revision": revision, "physical": true })).await?;
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

async fn ask(url: &str, request: &Value) -> Result<Value> {
    let answer = http::post(url, &request.to_string()).await?;
    ensure!(answer.status == 200, "{url} answers {}: {}", answer.status, answer.body);
    serde_json::from_str(&answer.body).with_context(|| format!("{url} answers no JSON"))
}
