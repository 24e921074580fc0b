//! What is printed when a test fails: its logs, events and objects, as they are at that moment.

use std::{fmt::Display, fmt::Write as _, fs, path::Path, thread, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Api, Client, Config, ResourceExt, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};

use super::Scope;
use crate::control_plane;

/// Of each log, this many lines from its end.
const LOG_LINES: usize = 200;

/// The test may have stopped the API server.
const DEADLINE: Duration = Duration::from_secs(10);

/// Describes the state of `scope`. Blocks, so that it can be called while a test unwinds.
pub(super) fn of(scope: &Scope<'_>) -> String {
    let mut text = format!("== state of {} ({})\n", scope.namespace, scope.provisioner);
    append(
        &mut text,
        thread::scope(|threads| {
            threads
                .spawn(|| objects_blocking(scope))
                .join()
                .unwrap_or_else(|_| Ok("the report of the objects panicked\n".to_owned()))
        }),
    );
    append(&mut text, logs(&scope.directory));
    text
}

fn append(text: &mut String, part: Result<String>) {
    match part {
        Ok(part) => text.push_str(&part),
        Err(error) => add_line(text, format_args!("cannot say more: {error:#}")),
    }
}

fn add_line(text: &mut String, line: impl Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// On a runtime of its own: the test's is unwinding, and its clients with it.
fn objects_blocking(scope: &Scope<'_>) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = control_plane::client_config(scope.plane.kubeconfig()).await?;
        let objects = tokio::time::timeout(DEADLINE, objects(scope, config)).await;
        objects.context("the API server does not answer")?
    })
}

async fn objects(scope: &Scope<'_>, config: Config) -> Result<String> {
    let client = Client::try_from(config)?;
    let mut text = String::new();
    let namespace = &scope.namespace;
    list(&mut text, Api::<StorageClass>::all(client.clone()), |class| class.provisioner == scope.provisioner)
        .await?;
    list(&mut text, Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace), |_| true).await?;
    list(&mut text, Api::<PersistentVolume>::all(client.clone()), |volume| concerns(scope, volume)).await?;
    list(&mut text, Api::<Lease>::namespaced(client.clone(), namespace), |_| true).await?;
    let events = Api::<Event>::namespaced(client, namespace).list(&ListParams::default()).await?;
    add_line(&mut text, "-- events");
    for event in events {
        add_line(&mut text, describe_event(&event));
    }
    Ok(text)
}

fn concerns(scope: &Scope<'_>, volume: &PersistentVolume) -> bool {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    claim.and_then(|claim| claim.namespace.as_ref()) == Some(&scope.namespace)
        || volume.annotations().get(super::PROVISIONED_BY) == Some(&scope.provisioner)
}

async fn list<K>(text: &mut String, api: Api<K>, ours: impl Fn(&K) -> bool) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    add_line(text, format_args!("-- {}", K::plural(&())));
    for mut object in api.list(&ListParams::default()).await?.items.into_iter().filter(ours) {
        object.managed_fields_mut().clear();
        add_line(text, serde_json::to_string(&object)?);
    }
    Ok(())
}

fn describe_event(event: &Event) -> String {
    let about = &event.involved_object;
    let part = |value: &Option<String>| value.clone().unwrap_or_default();
    format!(
        "{} {} {}/{} x{}: {}",
        part(&event.type_),
        part(&event.reason),
        part(&about.kind),
        part(&about.name),
        event.count.unwrap_or(1),
        part(&event.message)
    )
}

fn logs(directory: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let log = fs::read(&path).map(|log| String::from_utf8_lossy(&log).into_owned())?;
            add_line(&mut text, format_args!("-- {} (its last {LOG_LINES} lines)", path.display()));
            text.push_str(last_lines(&log));
        }
    }
    Ok(text)
}

fn last_lines(log: &str) -> &str {
    let start =
        log.trim_end().rmatch_indices('\n').nth(LOG_LINES - 1).map_or(0, |(position, _)| position + 1);
    log.get(start..).unwrap_or(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_logs_are_cut_at_their_start() {
        let log: String = (1..=500).map(|number| format!("{number}\n")).collect();
        assert_eq!(last_lines(&log).lines().count(), LOG_LINES);
        assert!(last_lines(&log).starts_with("301\n") && last_lines(&log).ends_with("500\n"));
        assert_eq!(last_lines("short\n"), "short\n");
    }
}
