//! The history of a run: what all parties have told, put together on one clock.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

use super::world::World;
use crate::{
    clock,
    history::{Entry, What},
    ledger::audit,
};

/// A line of the log of a replica.
#[derive(Debug, Deserialize)]
struct Line {
    at: u64,
    left: u64,
    epoch: u64,
    message: String,
    #[serde(default)]
    what: String,
}

/// Everything that was told.
///
/// # Errors
/// If a log can't be read.
pub(super) async fn history(world: &World<'_>) -> Result<Vec<Entry>> {
    let mut entries = world.chronicle.entries();
    for actor in &world.actors {
        let log = actor.replica.lock().await.log_text()?;
        entries.extend(beliefs(&actor.name, &log));
        let records = actor.proxy.records().into_iter();
        entries.extend(records.map(|record| Entry {
            at: record.came,
            party: actor.name.clone(),
            what: What::Request(record),
        }));
    }
    let calls = world.stage.ledger.log()?.into_iter();
    entries.extend(calls.map(|call| Entry {
        at: call.at,
        party: "ledger".to_owned(),
        what: What::Call(call),
    }));
    entries.extend(audited(world)?);
    Ok(entries)
}

/// The lines of a replica's history.
fn beliefs(party: &str, log: &str) -> Vec<Entry> {
    let lines = log.lines().filter(|line| line.contains("kube_provisioner::history"));
    let lines = lines.filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines
        .filter_map(|Line { at, left, epoch, message, what }| {
            let what = match message.as_str() {
                "believes" => What::Believes { epoch, left },
                "begins" => What::Begins { epoch, left, effect: what },
                _ => return None,
            };
            Some(Entry { at, party: party.to_owned(), what })
        })
        .collect()
}

/// The API server's own record of what the replicas asked for.
fn audited(world: &World<'_>) -> Result<Vec<Entry>> {
    let scope = &world.stage.scope;
    let log = scope.plane().audit_log().context("the control plane has no audit log")?;
    let (raw, wall) = (i128::from(clock::raw_nanos()), Timestamp::now().as_nanosecond());
    let requests = audit::requests_of(log, scope.namespace())?.into_iter();
    let entries = requests.filter_map(|sent| {
        let party = world.actors.iter().find(|actor| actor.name == sent.account)?.name.clone();
        let came = sent.at.parse::<Timestamp>().ok()?.as_nanosecond();
        let at = u64::try_from(raw - (wall - came)).ok()?;
        let audit::Sent { verb, resource, name, status, .. } = sent;
        Some(Entry { at, party, what: What::Audited { verb, resource, name, status } })
    });
    Ok(entries.collect())
}

/// Keeps the files of a run that people look at when something went wrong.
///
/// # Errors
/// If they can't be copied.
pub(super) fn keep_files(world: &World<'_>, directory: &Path) -> Result<()> {
    let own = world.stage.scope.directory();
    for entry in fs::read_dir(own).with_context(|| format!("cannot list {}", own.display()))? {
        let path = entry?.path();
        let wanted = path.extension().is_some_and(|it| it == "log" || it == "jsonl" || it == "yaml");
        if let (true, Some(name)) = (wanted, path.file_name()) {
            fs::copy(&path, directory.join(name))
                .with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_replicas_history_are_entries_and_others_are_not() {
        let line = |message: &str, what: &str| {
            format!(
                r#"{{"at":7,"epoch":5,"left":3,"level":"DEBUG","message":"{message}","target":"kube_provisioner::history"{what}}}"#
            )
        };
        let log = [line("believes", ""), line("begins", r#","what":"provision pvc-1""#), "{}".to_owned()];
        let entries = beliefs("r1", &log.join("\n"));
        assert_eq!(entries.len(), 2);
        assert!(matches!(entries[0].what, What::Believes { epoch: 5, left: 3 }));
        assert!(matches!(&entries[1].what, What::Begins { effect, .. } if effect == "provision pvc-1"));
        assert!(entries.iter().all(|entry| entry.at == 7 && entry.party == "r1"));
    }
}
