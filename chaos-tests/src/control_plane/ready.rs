//! When a control plane that was just started, or a part of it, can be used.
//!
//! This is the one place that polls: a program that does not listen yet cannot be watched.

use std::{fs, future::Future, time::Duration};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::ControlPlane;
use crate::{binaries::Program, http, wait};

/// Ready is a matter of 10 s; a machine that builds on all its cores meanwhile may take several times that.
const DEADLINE: Duration = Duration::from_secs(120);

const POLL_EVERY: Duration = Duration::from_millis(100);

/// An API server that takes a request and never answers is asked again after this.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

const LOG_LINES: usize = 15;

/// Waits until the API server says that it is ready, etcd behind it included.
pub(super) async fn api_server(plane: &ControlPlane) -> Result<()> {
    let client = plane.client().await?;
    let probe = || async {
        let request = ::http::Request::get("/readyz").body(Vec::new()).context("cannot make a request")?;
        client.request_text(request).await.map(drop).map_err(Into::into)
    };
    poll(plane, Program::KubeApiserver, probe).await
}

/// Waits until pods and claims can be created in the namespace `default`. The controller manager makes both
/// objects, so this also tells that it works.
pub(super) async fn default_namespace(plane: &ControlPlane) -> Result<()> {
    let client = plane.client().await?;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let account = wait::until_exists(&accounts, "default", DEADLINE);
    let map = wait::until_exists(&maps, "kube-root-ca.crt", DEADLINE);
    let program = Program::KubeControllerManager;
    tokio::try_join!(account, map).map(drop).with_context(|| told_by_log(plane, program, "does not work"))
}

/// Waits until Jaeger answers queries, if there is one.
pub(super) async fn jaeger(plane: &ControlPlane) -> Result<()> {
    let Some(jaeger) = plane.jaeger() else { return Ok(()) };
    let url = format!("{}/api/services", jaeger.query);
    let probe = || async {
        match http::get(&url).await? {
            answer if answer.status == 200 => Ok(()),
            answer => bail!("{url} answers {}", answer.status),
        }
    };
    poll(plane, Program::Jaeger, probe).await
}

async fn poll<F: Future<Output = Result<()>>>(
    plane: &ControlPlane,
    program: Program,
    probe: impl Fn() -> F,
) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    let mut ticks = interval(POLL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        fail_if_ended(plane)?;
        let failure = match tokio::time::timeout(PROBE_TIMEOUT, probe()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_) => anyhow::anyhow!("no answer within {PROBE_TIMEOUT:?}"),
        };
        if Instant::now() > deadline {
            return Err(failure.context(told_by_log(plane, program, "is not ready after two minutes")));
        }
    }
}

fn fail_if_ended(plane: &ControlPlane) -> Result<()> {
    let ended = |program: &Program| plane.with(*program, |running| Ok(running.process.exit_status()));
    for program in plane.pids().keys() {
        if let Some(status) = ended(program)? {
            bail!(told_by_log(plane, *program, &format!("ended ({status})")));
        }
    }
    Ok(())
}

fn told_by_log(plane: &ControlPlane, program: Program, what: &str) -> String {
    let log = fs::read_to_string(plane.log(program)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail =
        lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).copied().collect::<Vec<_>>().join("\n  ");
    format!("{} {what}; the end of its log:\n  {tail}", program.name())
}
