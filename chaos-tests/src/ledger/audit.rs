//! The API server's audit log, as far as tests ask it: who sent which request about what, and what came of it.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::Value;

/// A request as it is on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The program that sent it.
    pub user_agent: String,
    /// The name of the ServiceAccount that sent it.
    pub account: String,
    /// The token that it was sent with: one per replica.
    pub credential: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// The kind of object, in the plural; empty for what is no object.
    pub resource: String,
    /// The object's name, if the request names one.
    pub name: String,
    /// The status of the answer.
    pub status: u64,
    /// When it came, as the API server writes it. Sorts as text.
    pub at: String,
}

/// Every answered request of the ServiceAccounts of `namespace`, in the order of the log. Watches are on record when
/// they end.
///
/// # Errors
/// If the log cannot be read.
pub fn requests_of(log: &Path, namespace: &str) -> Result<Vec<Sent>> {
    requests(log, "/user/username", &format!("system:serviceaccount:{namespace}:"))
}

/// Every answered request of programs whose user agent begins so, in the order of the log: for who has no account
/// of its own.
///
/// # Errors
/// If the log cannot be read.
pub fn requests_with(log: &Path, user_agent: &str) -> Result<Vec<Sent>> {
    requests(log, "/userAgent", user_agent)
}

/// Those whose part at `pointer` begins with `words`.
fn requests(log: &Path, pointer: &str, words: &str) -> Result<Vec<Sent>> {
    let text = fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
    // The last line may be half written, and lines about others need not be parsed.
    let lines = text.lines().filter(|line| line.contains(words));
    let records = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let wanted = |record: &Value| part(record, pointer).starts_with(words);
    let answered = |record: &Value| part(record, "/stage") == "ResponseComplete";
    Ok(records.filter(|record| wanted(record) && answered(record)).map(|record| sent(&record)).collect())
}

fn sent(record: &Value) -> Sent {
    let user = part(record, "/user/username");
    Sent {
        account: user.rsplit(':').next().unwrap_or_default().to_owned(),
        user_agent: part(record, "/userAgent").to_owned(),
        credential: part(record, "/user/extra/authentication.kubernetes.io~1credential-id/0").to_owned(),
        verb: part(record, "/verb").to_owned(),
        resource: part(record, "/objectRef/resource").to_owned(),
        name: part(record, "/objectRef/name").to_owned(),
        status: record.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
        at: part(record, "/requestReceivedTimestamp").to_owned(),
    }
}

fn part<'a>(record: &'a Value, pointer: &str) -> &'a str {
    record.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
