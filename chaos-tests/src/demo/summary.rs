//! What a demo comes to: the line for programs and the verdict.

use std::{path::PathBuf, time::Duration};

use serde::{Serialize, Serializer};

use super::mistyped::Explained;

/// The numbers of a demo, as far as it got. Scripts read it: names stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// Whether all that was promised has happened.
    pub(super) ok: bool,
    /// Claims that were Bound.
    pub(super) bound: usize,
    /// Volumes and parts of volumes that are left after everything was deleted; absent if it did not come to that.
    pub(super) leaked: Option<usize>,
    /// From the SIGKILL to the first volume of the successor.
    #[serde(rename = "takeoverSeconds", serialize_with = "seconds")]
    pub(super) takeover: Option<Duration>,
    /// Which replica was killed.
    pub(super) killed: Option<String>,
    /// Which replica went on.
    pub(super) successor: Option<String>,
    /// From the first claim of the first twenty to the last of them being Bound.
    #[serde(rename = "firstBatchSeconds", serialize_with = "seconds")]
    pub(super) first_batch: Option<Duration>,
    /// From the first deletion to the last volume being gone.
    #[serde(rename = "deletionSeconds", serialize_with = "seconds")]
    pub(super) deletion: Option<Duration>,
    /// All of it, without what was built.
    #[serde(rename = "totalSeconds", serialize_with = "seconds")]
    pub(super) total: Option<Duration>,
    /// What `explain` said about the claim that was made wrong on purpose.
    pub(super) explained: Option<Explained>,
    /// The trace of a claim that the successor provisioned; there as long as the demo stays up.
    pub(super) trace: Option<String>,
    /// For the administrator; there as long as the demo stays up.
    pub(super) kubeconfig: Option<PathBuf>,
    /// What went wrong.
    pub(super) error: Option<String>,
}

impl Summary {
    /// The one line.
    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!(r#"{{"ok":false,"error":"{error}"}}"#))
    }
}

fn seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        // Milliseconds are as fine as it was measured.
        Some(duration) => serializer.serialize_some(&((duration.as_secs_f64() * 1_000.0).round() / 1_000.0)),
        None => serializer.serialize_none(),
    }
}

/// The middle and the longest of sorted durations, in words.
pub(super) fn spread(sorted: &[Duration]) -> String {
    let seconds = |duration: Option<&Duration>| duration.copied().unwrap_or_default().as_secs_f32();
    let (median, longest) = (seconds(sorted.get(sorted.len() / 2)), seconds(sorted.last()));
    format!("median {median:.2} s, longest {longest:.2} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_one_line_with_seconds_as_numbers() {
        let summary = Summary {
            ok: true,
            bound: 40,
            leaked: Some(0),
            takeover: Some(Duration::from_micros(3_214_567)),
            ..Summary::default()
        };
        let line = summary.line();
        assert!(line.starts_with(r#"{"ok":true,"bound":40,"leaked":0,"takeoverSeconds":3.215,"#), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }

    #[test]
    fn what_was_not_reached_is_null_and_not_zero() {
        let summary = Summary { error: Some("two\nlines".into()), ..Summary::default() };
        let value: serde_json::Value = serde_json::from_str(&summary.line()).unwrap();
        assert_eq!(
            (&value["leaked"], &value["takeoverSeconds"]),
            (&serde_json::Value::Null, &serde_json::Value::Null)
        );
        assert!(!summary.line().contains('\n'));
    }

    #[test]
    fn a_spread_of_nothing_is_no_error() {
        assert_eq!(spread(&[]), "median 0.00 s, longest 0.00 s");
        let durations: Vec<Duration> = (1..=5).map(Duration::from_secs).collect();
        assert_eq!(spread(&durations), "median 3.00 s, longest 5.00 s");
    }
}
