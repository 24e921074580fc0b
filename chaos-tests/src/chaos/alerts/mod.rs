//! The alerts and the dashboard of `deploy/monitoring` under promtool: the alerts' own tests, and every expression
//! on what real replicas told before and after they had work. What promtool is given is made in `series`.

mod series;

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use self::series::Samples;
use crate::{
    binaries::{self, Program},
    cluster::Scope,
    control_plane::{ControlPlane, Options},
    ledger::{
        Conduct, Rule,
        stage::{self, DEADLINE, Setup, Stage},
    },
    product,
};

const ALERTS: &str = "deploy/monitoring/alerts.yaml";
const DASHBOARD: &str = "deploy/monitoring/dashboard.json";
const REFERENCE: &str = "docs/reference/metrics.md";
const TESTS: &str = "chaos-tests/monitoring/alerts-test.yaml";

/// Try the alerts and the dashboard with promtool, on metrics of real replicas.
///
/// The first run on a machine builds promtool with Go, which takes about 8 minutes.
#[derive(Clone, Debug, Args)]
pub struct Alerts {}

/// Runs the scenario.
///
/// # Errors
/// If promtool finds something wrong, an alert has no test, or an expression asks for what no replica has.
pub async fn run(_: &Alerts) -> Result<()> {
    let promtool = tokio::task::spawn_blocking(|| binaries::locate_or_build(&[Program::Promtool])).await??;
    let promtool = Promtool(promtool.into_values().next().context("no path of promtool is known")?);
    promtool.run(&["check", "rules", ALERTS])?;
    promtool.run(&["test", "rules", TESTS])?;
    let alerts = every_alert_has_its_test()?;
    let dashboard = serde_json::from_str(&read(DASHBOARD)?).context("the dashboard is no JSON")?;
    let samples = scrapes().await?;
    let expressions = [alerts, dashboard].iter().flat_map(expressions).collect::<Vec<_>>();
    let file = tempfile::Builder::new().suffix(".json").tempfile().context("cannot make a file")?;
    let (test, with_data) = samples.test(&expressions)?;
    fs::write(file.path(), test.to_string()).context("cannot write what promtool is to test")?;
    promtool.run(&["test", "rules", &file.path().display().to_string()])?;
    println!(
        "{} expressions were evaluated on what a leader and a standby told, {with_data} of them came to something",
        expressions.len()
    );
    println!("what no replica told, as it did not happen: {:?}", samples.unseen(&expressions));
    Ok(())
}

struct Promtool(PathBuf);

impl Promtool {
    fn run(&self, args: &[&str]) -> Result<()> {
        let status = Command::new(&self.0).args(args).current_dir(stage::workspace()).status();
        let status = status.with_context(|| format!("cannot run {}", self.0.display()))?;
        ensure!(status.success(), "promtool {} found what is told above", args.join(" "));
        Ok(())
    }
}

fn read(path: &str) -> Result<String> {
    let path = stage::workspace().join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The alerts.
fn every_alert_has_its_test() -> Result<Value> {
    let alerts: Value = serde_saphyr::from_str(&read(ALERTS)?).context("the alerts are no YAML")?;
    let tests = read(TESTS)?;
    let names = alerts.pointer("/groups/0/rules").and_then(Value::as_array).into_iter().flatten();
    let names = names.filter_map(|rule| rule.get("alert")?.as_str());
    let untested: Vec<&str> =
        names.filter(|name| !tests.contains(&format!("alertname=\"{name}\""))).collect();
    ensure!(untested.is_empty(), "no test in {TESTS} lets these fire: {untested:?}");
    Ok(alerts)
}

/// All texts under the key `expr`, however deep, with Grafana's variables filled in.
fn expressions(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("expr").and_then(Value::as_str);
            let own = own.map(|text| text.replace("$__rate_interval", "5m").replace("$job", ".*"));
            own.into_iter().chain(fields.values().flat_map(expressions)).collect()
        }
        Value::Array(items) => items.iter().flat_map(expressions).collect(),
        _ => Vec::new(),
    }
}

/// What a leader and a standby tell before and after they had work, some of which fails.
async fn scrapes() -> Result<Samples> {
    let ledger = tokio::task::spawn_blocking(product::build_ledger).await??;
    let plane = ControlPlane::start(Options { scheduler: false, ..Options::default() }).await?;
    let stage = Stage::start(Scope::new(&plane).await?, &ledger, Setup::replicas(2)).await?;
    let mut samples = Samples::of(&read(REFERENCE)?);
    take(&stage, &mut samples).await?;
    work(&stage).await?;
    take(&stage, &mut samples).await?;
    Ok(samples)
}

async fn take(stage: &Stage<'_>, samples: &mut Samples) -> Result<()> {
    let mut texts = Vec::new();
    for replica in &stage.replicas {
        texts.push((replica.name().to_owned(), replica.get("/metrics").await?.body));
    }
    samples.scraped(&texts);
    Ok(())
}

async fn work(stage: &Stage<'_>) -> Result<()> {
    let class = stage.class("a", |_| ()).await?;
    let fail = |operation| Rule::on(operation).first(1).conduct(Conduct::answer("failed", "not now"));
    stage.ledger.set(&[fail("provision"), fail("delete")])?;
    for name in ["a", "b", "c"] {
        let volume = stage.bound(name, &class).await?;
        stage.delete_claim(name).await?;
        stage.volume_gone(&volume).await?;
    }
    // One is at work while the metrics are read: the seventh call, as each of the others was tried twice.
    stage.ledger.set(&[Rule::on("provision").conduct(Conduct::behind("gate"))])?;
    stage.claim("waits", &class).await?;
    stage.ledger.wait_begun("provision", 7, DEADLINE).await?;
    // Gauges are brought up to date once a second.
    let told = async || {
        let leader = stage.replica(stage.leader().await?)?;
        let metrics = leader.get("/metrics").await?.body;
        let line = metrics.lines().find(|line| line.starts_with("kube_provisioner_pending_claims{"));
        Ok(line.is_none().then(|| "no pending claims".to_owned()))
    };
    stage.eventually("pending claims are counted", told).await
}

/// The metrics that an expression asks for: all of ours begin so.
fn metrics_in(expression: &str) -> BTreeSet<&str> {
    const FAMILIES: [&str; 5] =
        ["controller_", "workqueue_", "leader_election_", "rest_client_", "kube_provisioner_"];
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| FAMILIES.iter().any(|family| word.starts_with(family))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_are_found_at_any_depth_with_grafanas_variables_filled_in() {
        let dashboard =
            json!({ "panels": [{ "targets": [{ "expr": "rate(a{job=~\"$job\"}[$__rate_interval])" }] }] });
        assert_eq!(expressions(&dashboard), ["rate(a{job=~\".*\"}[5m])"]);
    }

    #[test]
    fn every_alert_of_deploy_has_a_test_in_which_it_fires() {
        let alerts = every_alert_has_its_test().unwrap();
        assert!(expressions(&alerts).len() > 10 && stage::workspace().join(TESTS).exists());
    }

    #[test]
    fn the_metrics_of_an_expression_are_its_words_of_our_families() {
        let found =
            metrics_in("max by (name) (workqueue_depth{name=\"a\"}) > 0 and rate(kube_provisioner_x[5m])");
        assert_eq!(found, BTreeSet::from(["workqueue_depth", "kube_provisioner_x"]));
    }
}
