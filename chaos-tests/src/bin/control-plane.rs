//! `cargo control-plane up`: a control plane in the foreground, for people and scripts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use chaos_tests::control_plane::{ControlPlane, Options};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

/// A real Kubernetes control plane on loopback.
#[derive(Parser)]
#[command(name = "control-plane", bin_name = "cargo control-plane")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a control plane and keep it up until Ctrl-C or SIGTERM.
    ///
    /// Starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler on free ports of 127.0.0.1, with
    /// RBAC and an own certificate authority, and prints one line of JSON on standard output when they are ready:
    /// kubeconfig, server, directory, processes (the process id of each program) and, if asked for, audit_log,
    /// jaeger_query and jaeger_otlp. Everything else goes to standard error. Any number can run side by side.
    ///
    /// Programs are taken from KUBEBUILDER_ASSETS, then PATH, then the user's cache directory; what is missing is
    /// built with Go into the cache, once, which takes about 17 minutes for all.
    ///
    /// All processes and files are gone afterwards, also if this command is killed.
    Up(Up),
}

#[derive(Args)]
struct Up {
    /// Directory for kubeconfig, keys, logs and data; must be absent or empty, and is removed at the end
    /// [default: a new temporary directory]
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,

    /// Requests per second that kube-controller-manager allows itself (burst: half as much again); its default
    /// binds about 4 claims per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    kcm_qps: Option<u32>,

    /// Also run Jaeger, for traces over OTLP/HTTP
    #[arg(long)]
    jaeger: bool,

    /// Log every request to the API server, a JSON object per line
    #[arg(long)]
    audit_log: bool,

    /// Do without kube-scheduler
    #[arg(long)]
    no_scheduler: bool,
}

fn main() -> ExitCode {
    let Cli { command: Command::Up(up) } = Cli::parse();
    let result = run(up);
    if let Err(error) = &result {
        eprintln!("error: {error:#}");
    }
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(up: Up) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(keep_up(up));
    // A build that was interrupted still blocks a thread: the end of this process ends the build.
    runtime.shutdown_background();
    result
}

async fn keep_up(Up { dir, kcm_qps, jaeger, audit_log, no_scheduler }: Up) -> Result<()> {
    let options = Options {
        directory: dir,
        controller_manager_qps: kcm_qps,
        jaeger,
        audit_log,
        scheduler: !no_scheduler,
    };
    let mut stop = std::pin::pin!(stop_signal()?);
    let plane = tokio::select! {
        plane = ControlPlane::start(options) => plane?,
        () = &mut stop => return Ok(()),
    };
    println!("{}", announcement(&plane)?);
    eprintln!("the control plane is up: export KUBECONFIG={}", plane.kubeconfig().display());
    stop.await;
    eprintln!("stopping the control plane");
    drop(plane);
    Ok(())
}

/// Completes at the first SIGINT or SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
    })
}

/// The line on standard output. Scripts read it: names stay.
#[derive(Serialize)]
struct Announcement<'a> {
    kubeconfig: &'a Path,
    server: &'a str,
    directory: &'a Path,
    processes: BTreeMap<&'static str, u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_log: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jaeger_query: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jaeger_otlp: Option<&'a str>,
}

fn announcement(plane: &ControlPlane) -> Result<String> {
    let line = Announcement {
        kubeconfig: plane.kubeconfig(),
        server: plane.server(),
        directory: plane.directory(),
        processes: plane.pids().into_iter().map(|(program, pid)| (program.name(), pid)).collect(),
        audit_log: plane.audit_log(),
        jaeger_query: plane.jaeger().map(|jaeger| jaeger.query.as_str()),
        jaeger_otlp: plane.jaeger().map(|jaeger| jaeger.otlp.as_str()),
    };
    serde_json::to_string(&line).context("cannot describe the control plane")
}
