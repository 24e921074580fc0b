//! Real scrapes as the series of a promtool test, and what is expected of expressions on them. Makes text; runs nothing.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::metrics_in;

/// How long the last value goes on, in minutes.
const LASTS: usize = 20;
/// When expressions are evaluated: two scrapes a minute apart lie within five minutes of it.
const AT: &str = "3m";

/// Scrapes in the order of time.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// By series with its labels: what each scrape had of it.
    series: BTreeMap<String, Vec<Option<String>>>,
    /// Every metric that there is, by the reference: what has not happened yet has no series in a scrape.
    known: BTreeSet<String>,
    scrapes: usize,
}

impl Samples {
    /// None yet, of the metrics that the reference page has.
    pub(super) fn of(reference: &str) -> Self {
        let rows = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        Self { known: rows.map(str::to_owned).collect(), ..Self::default() }
    }

    /// The metrics of `expressions` that no scrape had.
    pub(super) fn unseen<'a>(&self, expressions: &'a [String]) -> BTreeSet<&'a str> {
        let asked = expressions.iter().flat_map(|expression| metrics_in(expression));
        asked.filter(|metric| !self.has_series(metric)).collect()
    }

    /// One scrape of all replicas: the name of each, and its text.
    pub(super) fn scraped(&mut self, texts: &[(String, String)]) {
        for (instance, text) in texts {
            for line in text.lines() {
                self.line(instance, line);
            }
        }
        self.scrapes += 1;
    }

    fn line(&mut self, instance: &str, line: &str) {
        if let Some((series, value)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) {
            let values = self.series.entry(scraped_from(instance, series)).or_default();
            values.resize(self.scrapes, None);
            values.push(Some(value.to_owned()));
        }
    }

    /// The test in which promtool evaluates `expressions`, and how many of them must come to something there: all
    /// whose every metric has series, unless they compare.
    pub(super) fn test(&self, expressions: &[String]) -> Result<(Value, usize)> {
        let mut tests = Vec::new();
        let mut with_data = 0;
        for expression in expressions {
            let must = self.must_come_to_something(expression)?;
            with_data += usize::from(must);
            // An expression that fails to evaluate fails the test either way.
            let wrapped = match must {
                true => format!("count({expression}) > bool 0"),
                false => format!("(count({expression}) or vector(0)) >= bool 0"),
            };
            let expected = [json!({ "labels": "{}", "value": 1 })];
            tests.push(json!({ "expr": wrapped, "eval_time": AT, "exp_samples": expected }));
        }
        ensure!(
            with_data * 2 > expressions.len(),
            "only {with_data} expressions have data: the scrapes are poor"
        );
        let test = json!({ "interval": "1m", "input_series": self.input(), "promql_expr_test": tests });
        Ok((json!({ "evaluation_interval": "1m", "tests": [test] }), with_data))
    }

    fn must_come_to_something(&self, expression: &str) -> Result<bool> {
        let asked = metrics_in(expression);
        ensure!(!asked.is_empty(), "{expression:?} asks for none of our metrics");
        for metric in &asked {
            ensure!(self.is_known(metric), "{expression:?} asks for {metric}, which no replica has");
        }
        let compares = ["<", ">", " and ", " unless "].iter().any(|sign| expression.contains(sign));
        Ok(!compares && asked.iter().all(|metric| self.has_series(metric)))
    }

    /// The reference has histograms without their suffixes.
    fn is_known(&self, metric: &str) -> bool {
        let bare = ["_bucket", "_sum", "_count"].iter().filter_map(|end| metric.strip_suffix(end));
        bare.chain([metric]).any(|name| self.known.contains(name))
    }

    fn has_series(&self, metric: &str) -> bool {
        self.series.keys().any(|series| series.split('{').next() == Some(metric))
    }

    fn input(&self) -> Vec<Value> {
        let input = self.series.iter().map(|(series, values)| {
            let each = values.iter().map(|value| value.as_deref().unwrap_or("_"));
            let last = values.last().and_then(Option::as_deref).map(|last| format!("{last}x{LASTS}"));
            let values: Vec<&str> = each.chain(last.as_deref()).collect();
            json!({ "series": series, "values": values.join(" ") })
        });
        input.collect()
    }
}

/// With the labels that a scrape adds.
fn scraped_from(instance: &str, series: &str) -> String {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let comma = if labels == "}" { "" } else { "," };
    format!("{name}{{instance=\"{instance}\",job=\"kube-provisioner\"{comma}{labels}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Samples {
        let mut samples =
            Samples::of("| `workqueue_depth` | gauge |\n| `workqueue_adds_total` | counter |\n");
        let scrape =
            |depth: &str| format!("# TYPE workqueue_depth gauge\nworkqueue_depth{{name=\"a\"}} {depth}\n");
        samples.scraped(&[("r0".to_owned(), scrape("1"))]);
        samples.scraped(&[("r0".to_owned(), scrape("2")), ("r1".to_owned(), scrape("0"))]);
        samples
    }

    #[test]
    fn a_series_has_the_labels_of_its_scrape_and_gaps_where_it_was_not() {
        let input = samples().input();
        let series = r#"workqueue_depth{instance="r0",job="kube-provisioner",name="a"}"#;
        assert_eq!(input[0], json!({ "series": series, "values": "1 2 2x20" }));
        assert_eq!(input[1]["values"], "_ 0 0x20");
        assert_eq!(scraped_from("r", "up"), r#"up{instance="r",job="kube-provisioner"}"#);
    }

    #[test]
    fn expressions_with_data_must_come_to_something_and_others_must_be_right() {
        let ask = |expression: &str| samples().test(&["workqueue_depth".to_owned(), expression.to_owned()]);
        assert_eq!(ask("sum(workqueue_depth)").unwrap().1, 2);
        assert!(ask("sum(workqueue_gone)").unwrap_err().to_string().contains("workqueue_gone"));
        assert!(ask("up").is_err(), "none of ours");
        let poor = ask("rate(workqueue_adds_total[5m])").unwrap_err().to_string();
        assert!(poor.contains("only 1"), "{poor}");
        let asked = ["sum(workqueue_depth)", "rate(workqueue_adds_total[5m])"].map(str::to_owned);
        assert_eq!(samples().unseen(&asked), BTreeSet::from(["workqueue_adds_total"]));
    }
}
