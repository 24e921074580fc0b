//! When a control plane that was just started, or a part of it, can be used.
//!
//! This is the one place that polls: a program that does not listen yet cannot be watched.

use std::{fs, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use futures::{FutureExt, future::select_all};
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
    let ready = poll(plane, Program::KubeApiserver, probe);
    while_running(plane, &[Program::Etcd, Program::KubeApiserver], ready).await
}

/// Waits until pods and claims can be created in the namespace `default`. The controller manager makes both
/// objects, so this also tells that it works.
pub(super) async fn default_namespace(plane: &ControlPlane) -> Result<()> {
    let program = Program::KubeControllerManager;
    let client = plane.client().await?;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let ready = async {
        let account = wait::until_exists(&accounts, "default", DEADLINE);
        let map = wait::until_exists(&maps, "kube-root-ca.crt", DEADLINE);
        tokio::try_join!(account, map).map(drop).with_context(|| told_by_log(plane, program, "does not work"))
    };
    while_running(plane, &[program], ready).await
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
    while_running(plane, &[Program::Jaeger], poll(plane, Program::Jaeger, probe)).await
}

/// A program that has ended will not become ready: says so at once instead of at the deadline.
async fn while_running(
    plane: &ControlPlane,
    programs: &[Program],
    ready: impl Future<Output = Result<()>>,
) -> Result<()> {
    let end = |program: &Program| {
        let (program, ended) = (*program, plane.with(*program, |running| Ok(running.process.ended()))?);
        Ok(async move {
            ended.await;
            program
        }
        .boxed())
    };
    let ends = programs.iter().map(end).collect::<Result<Vec<_>>>()?;
    tokio::select! {
        ready = ready => ready,
        (program, ..) = select_all(ends) => bail!(told_by_log(plane, program, "has ended")),
    }
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
        let failure = match tokio::time::timeout(PROBE_TIMEOUT, probe()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_) => anyhow!("no answer within {PROBE_TIMEOUT:?}"),
        };
        if Instant::now() > deadline {
            return Err(failure.context(told_by_log(plane, program, "is not ready after two minutes")));
        }
    }
}

fn told_by_log(plane: &ControlPlane, program: Program, what: &str) -> String {
    let log = fs::read_to_string(plane.log(program)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail =
        lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).copied().collect::<Vec<_>>().join("\n  ");
    format!("{} {what}; the end of its log:\n  {tail}", program.name())
}
