//! What the API server's audit log proves of leadership: it has one clock, and knows who wrote what with which
//! effect.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde::Deserialize;

/// One request that was answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    stage: String,
    verb: String,
    user: User,
    object_ref: Option<Object>,
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Clone, Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Object {
    resource: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    code: u16,
}

impl Request {
    fn has_effect(&self) -> bool {
        let changes = ["create", "update", "patch", "delete"].contains(&&*self.verb);
        changes
            && self.stage == "ResponseComplete"
            && self.response_status.as_ref().is_some_and(|status| (200..300).contains(&status.code))
    }

    fn is_about(&self, resources: &[&str]) -> bool {
        self.object_ref.as_ref().is_some_and(|object| resources.contains(&&*object.resource))
    }
}

/// Checks that of `accounts` nobody changed a claim or volume after another one had written the Lease, unless it
/// had written the Lease again itself. Returns how many changes were looked at.
///
/// # Errors
/// If somebody did, or the log cannot be read.
pub fn check_one_writer(log: &Path, accounts: &[String]) -> Result<usize> {
    let text = fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
    check(&text, accounts)
}

fn check(log: &str, accounts: &[String]) -> Result<usize> {
    let requests = log.lines().filter_map(|line| serde_json::from_str::<Request>(line).ok());
    let effects: Vec<Request> = requests
        .filter(|request| request.has_effect() && accounts.contains(&request.user.username))
        .collect();
    let (mut leases, writes): (Vec<_>, Vec<_>) =
        effects.iter().partition(|request| request.is_about(&["leases"]));
    leases.sort_by_key(|request| request.stage_timestamp);
    let writes: Vec<_> = writes
        .into_iter()
        .filter(|request| request.is_about(&["persistentvolumes", "persistentvolumeclaims"]))
        .collect();
    for write in &writes {
        let later = leases.partition_point(|lease| lease.stage_timestamp < write.request_received_timestamp);
        let holder = leases.get(later.wrapping_sub(1)).map(|lease| &lease.user.username);
        ensure!(
            holder == Some(&write.user.username),
            "{} wrote ({} {:?}) while {holder:?} held the Lease, at {}",
            write.user.username,
            write.verb,
            write.object_ref,
            write.request_received_timestamp
        );
    }
    Ok(writes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(user: &str, verb: &str, resource: &str, code: u16, second: u32) -> String {
        let at = format!("2026-01-01T00:00:{second:02}.000000Z");
        serde_json::json!({
            "stage": "ResponseComplete", "verb": verb, "user": { "username": user },
            "objectRef": { "resource": resource }, "responseStatus": { "code": code },
            "requestReceivedTimestamp": at, "stageTimestamp": at,
        })
        .to_string()
    }

    fn check_lines(lines: &[String]) -> Result<usize> {
        check(&lines.join("\n"), &["a".to_owned(), "b".to_owned()])
    }

    #[test]
    fn a_write_after_somebody_else_took_the_lease_is_found() {
        let mut lines = vec![
            line("a", "patch", "leases", 200, 1),
            line("a", "create", "persistentvolumes", 201, 2),
            line("b", "patch", "leases", 200, 3),
            line("b", "create", "persistentvolumes", 201, 4),
        ];
        assert_eq!(check_lines(&lines).unwrap(), 2);
        lines.push(line("a", "create", "persistentvolumes", 409, 5));
        assert_eq!(check_lines(&lines).unwrap(), 2, "what had no effect does no harm");
        lines.push(line("a", "create", "persistentvolumes", 201, 6));
        assert!(check_lines(&lines).is_err());
    }
}
