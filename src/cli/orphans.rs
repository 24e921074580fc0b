//! `orphans`: what the audit would say of each asset now, and why. Changes nothing.

use std::io::Write as _;

use clap::Args;
use serde::Serialize;
use tokio::runtime::Builder;

use super::{
    Failure,
    config::{Flags, Merged, ProvisionerSettings, Settings},
    run,
};
use crate::{
    actors::auditor::{Subject, Survey},
    clock::SystemClock,
    cluster::{Calls, Permissions, clients, with_sources},
    lease::RESTORED_ANNOTATION,
    lifecycle::{
        names,
        orphan::{OrphanPolicy, Spared},
    },
    options::ControllerOptions,
    provisioner::{Asset, Capabilities},
    telemetry::metrics::Metrics,
};

/// What to list, and how: the configuration that `run` would use.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    flags: Flags,
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
}

/// What is said of one asset.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    provisioner: String,
    asset: String,
    /// `spared`, or `orphan`.
    state: &'static str,
    why: String,
}

/// Lists the assets of every provisioner of the configuration that belong to nothing or are not judged.
pub(super) fn orphans(arguments: &Arguments) -> Result<(), Failure> {
    let settings = Settings::validate(&Merged::load(&arguments.flags)?)?;
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Runtime(format!("cannot start threads: {error}")))?;
    let findings = runtime.block_on(find(&settings))?;
    let text = if arguments.json { lines(&findings)? } else { table(&findings) };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::Runtime(format!("cannot write to standard output: {error}")))
}

async fn find(settings: &Settings) -> Result<Vec<Finding>, Failure> {
    let config = run::cluster(settings.kubeconfig.as_deref()).await?;
    let uncounted = Metrics::new(&SystemClock::shared());
    let client = clients::for_requests(&config, &uncounted).map_err(|error| {
        Failure::Unreachable(format!("no client for the cluster: {}", with_sources(&error)))
    })?;
    let calls = Calls::new(client, Permissions::untold());
    let cluster = calls.cluster_uid().await.map_err(|error| Failure::Runtime(error.to_string()))?;
    let mut findings = Vec::new();
    for served in &settings.provisioners {
        findings.extend(survey(served, &calls, &cluster).await?);
    }
    Ok(findings)
}

async fn survey(served: &ProvisionerSettings, calls: &Calls, cluster: &str) -> Result<Vec<Finding>, Failure> {
    let options = &served.controller;
    let backend = served.backend.build()?;
    let capabilities = backend.capabilities().await;
    if !capabilities.list {
        let name = &options.provisioner_name;
        return Err(Failure::Runtime(format!(
            "the backend of {name} can't list its assets (operation \"list\")"
        )));
    }
    let subject = Subject {
        provisioner: backend,
        name: options.provisioner_name.as_str().into(),
        installation: names::installation(cluster, &options.provisioner_name, options.instance.as_deref()),
        calls: calls.clone(),
    };
    // Without a cache every suspect is read live.
    let survey = subject.survey(0, |suspects| async move { suspects }).await;
    let (namespace, lease) = (served.leader_election.namespace(), served.leader_election.name_for(options));
    // Who may not read the Lease still learns what the assets are.
    let restored = calls.lease_annotation(&namespace, &lease, RESTORED_ANNOTATION).await.ok().flatten();
    Ok(findings(options, capabilities, survey.map_err(Failure::Runtime)?, restored.is_some()))
}

fn findings(
    options: &ControllerOptions,
    backend: Capabilities,
    survey: Survey,
    restored: bool,
) -> Vec<Finding> {
    let finding = |asset: &Asset, state, why: String| Finding {
        provisioner: options.provisioner_name.clone(),
        asset: asset.volume_name.clone(),
        state,
        why,
    };
    let orphans = survey
        .unclaimed
        .iter()
        .map(|asset| finding(asset, "orphan", fate(options, backend, asset, restored)));
    let spared = survey.spared.iter().map(|(asset, why)| finding(asset, "spared", why.to_string()));
    orphans.chain(spared).collect()
}

/// What would become of an orphan once it was seen as one for long enough.
fn fate(options: &ControllerOptions, backend: Capabilities, asset: &Asset, restored: bool) -> String {
    let held = if asset.unused { "never held data" } else { "may hold data" };
    if restored {
        return format!("belongs to no volume and no claim, {held}; {}", Spared::StoreRestored);
    }
    let policy = if backend.keep { options.orphans } else { OrphanPolicy::Report };
    let removed = match policy {
        OrphanPolicy::Report => false,
        OrphanPolicy::Auto => asset.unused,
        OrphanPolicy::Delete => true,
    };
    let becomes = if removed { "removed" } else { "reported" };
    format!("belongs to no volume and no claim, {held}; if that lasts, the leader's audit has it {becomes}")
}

fn lines(findings: &[Finding]) -> Result<String, Failure> {
    let line = |finding| serde_json::to_string(finding).map(|text| text + "\n");
    let text = findings.iter().map(line).collect::<Result<String, _>>();
    text.map_err(|error| Failure::Internal(error.to_string()))
}

fn table(findings: &[Finding]) -> String {
    let wide = |of: fn(&Finding) -> &str| findings.iter().map(|f| of(f).len()).max().unwrap_or(0).max(11);
    let (first, second) = (wide(|f| &f.provisioner), wide(|f| &f.asset));
    let mut text = format!("{:first$}  {:second$}  {:6}  {}\n", "PROVISIONER", "ASSET", "STATE", "WHY");
    for Finding { provisioner, asset, state, why } in findings {
        text.push_str(&format!("{provisioner:first$}  {asset:second$}  {state:6}  {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asset(unused: bool) -> Asset {
        Asset { volume_name: "pvc-1".to_owned(), unused, ..Asset::default() }
    }

    #[test]
    fn each_asset_gets_its_line() {
        let options = ControllerOptions::new("example.com/disk");
        let backend = Capabilities { list: true, keep: true, ..Capabilities::default() };
        let survey = Survey {
            assets: 3,
            unclaimed: vec![asset(true), asset(false)],
            spared: vec![(asset(true), Spared::Kept)],
            ..Survey::default()
        };
        let restored = table(&findings(
            &options,
            backend,
            Survey { unclaimed: vec![asset(true)], ..Survey::default() },
            true,
        ));
        assert!(restored.trim_end().ends_with("is taken off the Lease"), "{restored}");
        let text = table(&findings(&options, backend, survey, false));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 4);
        assert!(rows[1].contains("orphan") && rows[1].ends_with("removed"), "{}", rows[1]);
        assert!(rows[2].contains("may hold data") && rows[2].ends_with("reported"), "{}", rows[2]);
        assert!(rows[3].contains("spared") && rows[3].ends_with("people chose to keep it"), "{}", rows[3]);
    }
}
