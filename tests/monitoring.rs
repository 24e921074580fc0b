//! The Grafana dashboard and the Prometheus rules in `deploy/monitoring` ask for metrics that exist, by labels
//! that they have. The reference page, which another test holds to the code, says which those are.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;

/// Labels that scraping adds, and the one of a histogram's buckets.
const ADDED: [&str; 3] = ["instance", "job", "le"];

/// PromQL's words that stand where a metric could. A new one is added here.
const WORDS: [&str; 20] = [
    "and",
    "bool",
    "by",
    "count",
    "group_left",
    "histogram_quantile",
    "ignoring",
    "increase",
    "max",
    "min",
    "min_over_time",
    "on",
    "or",
    "rate",
    "sum",
    "topk",
    "unless",
    "without",
    "offset",
    "label_values",
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The series that there are, and the labels of each.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let mut series = BTreeMap::new();
    for row in read("docs/reference/metrics.md").lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, ..] = cells[..] else { panic!("{row}") };
        let name = name.trim_matches('`');
        let labels = labels.split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels: BTreeSet<_> = labels.filter(|label| !label.is_empty()).collect();
        let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        for suffix in suffixes {
            series.insert(format!("{name}{suffix}"), labels.clone());
        }
    }
    series
}

/// What an expression names: metrics, and labels.
#[derive(Debug, Default)]
struct Named {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
}

fn named(expression: &str) -> Named {
    let (mut named, mut rest, mut inside_braces, mut list_of_labels) =
        (Named::default(), expression, false, false);
    let mut grouping = false;
    while let Some(next) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
        let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        let mut length = next.len_utf8();
        match next {
            '"' => length = rest[1..].find('"').unwrap() + 2,
            '[' => length = rest.find(']').unwrap() + 1,
            '{' => inside_braces = true,
            '}' => inside_braces = false,
            '(' => list_of_labels = grouping,
            ')' => list_of_labels = false,
            c if c.is_ascii_digit() => length = word.len(),
            _ if !word.is_empty() => {
                length = word.len();
                if inside_braces || list_of_labels {
                    named.labels.insert(word.to_owned());
                } else if !WORDS.contains(&word) {
                    named.metrics.insert(word.to_owned());
                }
                grouping = matches!(word, "by" | "on" | "ignoring" | "group_left" | "without");
            }
            ' ' | '\n' => {}
            _ => grouping = false,
        }
        rest = &rest[length..];
    }
    named
}

/// All texts under the key `expr`, however deep.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| expressions(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

fn check(source: &str, value: &Value) -> BTreeSet<String> {
    let (series, mut all, mut used) = (series(), Vec::new(), BTreeSet::new());
    expressions(value, &mut all);
    assert!(all.len() > 10, "only {} expressions in {source}", all.len());
    for expression in all {
        let Named { metrics, labels } = named(&expression);
        assert!(!metrics.is_empty(), "{source}: {expression:?} asks for nothing");
        let mut known: BTreeSet<String> = ADDED.map(str::to_owned).into();
        for metric in &metrics {
            let of_metric = series.get(metric);
            known.extend(of_metric.unwrap_or_else(|| panic!("{source}: there is no {metric}")).clone());
        }
        let strange: Vec<_> = labels.difference(&known).collect();
        assert!(strange.is_empty(), "{source}: {metrics:?} have no labels {strange:?}");
        used.extend(metrics);
    }
    used
}

#[test]
fn every_alert_asks_for_metrics_and_labels_that_exist() {
    let rules: Value = serde_saphyr::from_str(&read("deploy/monitoring/alerts.yaml")).unwrap();
    let used = check("alerts.yaml", &rules);
    for subject in ["leader_election_master_status", "kube_provisioner_orphans", "workqueue_depth"] {
        assert!(used.contains(subject), "nobody is told when {subject} is wrong");
    }
    let groups = rules.pointer("/groups/0/rules").unwrap().as_array().unwrap();
    for rule in groups {
        for needed in
            ["/alert", "/expr", "/labels/severity", "/annotations/summary", "/annotations/description"]
        {
            assert!(rule.pointer(needed).is_some(), "{rule} has no {needed}");
        }
    }
}

#[test]
fn every_panel_asks_for_metrics_and_labels_that_exist_and_nearly_every_metric_has_a_panel() {
    let dashboard: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap();
    let used = check("dashboard.json", &dashboard);
    assert!(used.len() >= 28, "only {} metrics are shown", used.len());
    let panels = dashboard.pointer("/panels").unwrap().as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "panels share an id");
}

#[test]
fn expressions_are_read_right() {
    let read = named(r#"sum by (class, le) (rate(a_bucket{job=~"$job",x!="y{"}[5m])) > 0.5 unless on () b"#);
    assert_eq!(read.metrics, ["a_bucket", "b"].map(str::to_owned).into());
    assert_eq!(read.labels, ["class", "job", "le", "x"].map(str::to_owned).into());
}
