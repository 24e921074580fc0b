//! Marks: what the ledger remembers of an asset beside the asset, and the answer to `list`.
//!
//! A mark is there before its asset and goes after it: a call may be killed between any two steps.

use std::{fs, io, path::Path};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::record::{ASSETS, MARKS};

/// Assets in one answer to `list`.
const PAGE: usize = 100;

/// What a provision request says that must be known of its asset later. In the words of the answer to `list`.
pub(super) fn of_request(request: &Value) -> Value {
    let part = |pointer| request.pointer(pointer).cloned().unwrap_or_default();
    json!({
        "installation": part("/installation"),
        "claim": {
            "namespace": part("/claim/metadata/namespace"),
            "name": part("/claim/metadata/name"),
            "uid": part("/claim/metadata/uid"),
            "resourceVersion": part("/claim/metadata/resourceVersion"),
        },
        "reclaimPolicy": part("/reclaimPolicy"),
        "kept": false,
    })
}

/// Writes the mark of a volume's asset at once or not at all.
pub(super) fn write(root: &Path, volume: &str, mark: &Value) -> Result<()> {
    let new = root.join(MARKS).join(format!(".{volume}.{}", std::process::id()));
    fs::write(&new, serde_json::to_vec(mark)?).context("cannot write a mark")?;
    fs::rename(new, root.join(MARKS).join(volume)).context("cannot put a mark in place")
}

/// Removes a mark; it may be gone.
pub(super) fn remove(root: &Path, volume: &str) -> Result<()> {
    match fs::remove_file(root.join(MARKS).join(volume)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("cannot remove a mark"),
        _ => Ok(()),
    }
}

/// Marks an asset as kept; whether it was not before. What has no mark needs none: it is nobody's orphan.
pub(super) fn keep(root: &Path, volume: &str) -> Result<bool> {
    let Some(mut mark) = read(root, volume)? else { return Ok(false) };
    let kept = mark.insert("kept".to_owned(), true.into());
    write(root, volume, &mark.into())?;
    Ok(kept != Some(true.into()))
}

fn read(root: &Path, volume: &str) -> Result<Option<Map<String, Value>>> {
    match fs::read(root.join(MARKS).join(volume)) {
        Ok(mark) => Ok(Some(serde_json::from_slice(&mark).context("a strange mark")?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("cannot read a mark"),
    }
}

/// The answer to `list`, from the asset after `after` on.
pub(super) fn list(root: &Path, after: Option<&str>) -> Result<Value> {
    let entries = fs::read_dir(root.join(ASSETS)).context("cannot list assets")?;
    let mut names: Vec<String> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.retain(|name| after.is_none_or(|after| name.as_str() > after));
    names.sort();
    let more = names.len() > PAGE;
    names.truncate(PAGE);
    let assets: Result<Vec<Value>> = names.iter().map(|name| asset(root, name)).collect();
    let mut answer = json!({ "outcome": "done", "assets": assets? });
    if let (true, Some(last), Some(answer)) = (more, names.pop(), answer.as_object_mut()) {
        answer.insert("continue".to_owned(), last.into());
    }
    Ok(answer)
}

fn asset(root: &Path, volume: &str) -> Result<Value> {
    let path = root.join(ASSETS).join(volume);
    // What is removed meanwhile is as good as empty.
    let unused = fs::read_dir(&path).map_or(true, |mut entries| entries.next().is_none());
    let mut asset =
        read(root, volume)?.unwrap_or_else(|| Map::from_iter([("kept".to_owned(), false.into())]));
    asset.insert("volumeName".to_owned(), volume.into());
    asset.insert("unused".to_owned(), unused.into());
    asset.insert("source".to_owned(), json!({ "hostPath": { "path": path } }));
    Ok(asset.into())
}
