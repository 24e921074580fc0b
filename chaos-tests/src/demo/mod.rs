//! `cargo demo`: command line, signals, exit code. What is shown is in `story`, in which words and pictures in
//! `screen` and `table`.

mod leftovers;
mod mistyped;
mod observe;
mod screen;
mod stage;
mod story;
mod summary;
mod table;
mod world;

use std::{io::Write, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::signal::unix::{SignalKind, signal};

use self::{screen::Screen, story::Story, summary::Summary};
use crate::{
    control_plane::{self, ControlPlane},
    product::{self, Profile},
};

/// A highly available volume provisioner at work, on a real Kubernetes control plane on this machine.
///
/// Starts etcd, the API server, the controller manager, Jaeger and three replicas of kube-provisioner, creates 20
/// claims, explains one that was made wrong on purpose, kills the leader with SIGKILL in the middle of 20 more,
/// deletes everything, and shows on the way what happens and why. Everything listens on loopback only, and all processes and files are gone afterwards, also when
/// the demo is interrupted.
///
/// The first run on a machine builds the programs of the control plane with Go, which takes about 17 minutes.
///
/// Exit codes: 0 if all went as it should, 1 if anything failed, 130 or 143 if it was interrupted.
#[derive(Clone, Debug, Parser)]
#[command(name = "demo", bin_name = "cargo demo")]
pub struct Options {
    /// Stay up at the end, until Ctrl-C, for a look around with kubectl and Jaeger
    #[arg(long)]
    keep: bool,

    /// End with one line of JSON on standard output; everything else goes to standard error
    #[arg(long)]
    json: bool,

    /// Requests per second that kube-controller-manager, which binds claims to volumes, allows itself; with its own
    /// default of 20 it binds about 4 claims per second
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    kcm_qps: u32,
}

/// Completes with the number of the signal that asks this program to stop.
type Stop = Shared<BoxFuture<'static, u8>>;

/// Runs the demo on a runtime of its own.
#[must_use]
pub fn main(options: Options) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run(&options));
    // A build that was interrupted still blocks a thread: the end of this process ends the build.
    runtime.shutdown_background();
    code
}

async fn run(options: &Options) -> ExitCode {
    let mut screen = Screen::open(options.json);
    let mut summary = Summary::default();
    let stop = match stop_signal() {
        Ok(stop) => stop,
        Err(error) => {
            screen.failed(&format!("{error:#}"));
            return ExitCode::FAILURE;
        }
    };
    let result = show(options, &stop, &mut screen, &mut summary).await;
    if let (Err(error), false) = (&result, summary.ok) {
        summary.error.get_or_insert_with(|| format!("{error:#}"));
        tell(options, &summary);
    }
    match (result, stop.peek()) {
        (Ok(()), _) => ExitCode::SUCCESS,
        (Err(_), Some(number)) => {
            screen.failed("interrupted; everything that was started is stopped and removed");
            ExitCode::from(128 + number)
        }
        (Err(error), None) => {
            screen.failed(&format!("the demo failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// From nothing to the end. The control plane and the replicas are gone when this returns.
async fn show(options: &Options, stop: &Stop, screen: &mut Screen, summary: &mut Summary) -> Result<()> {
    screen.heading("kube-provisioner: from nothing to a highly available provisioner");
    let program = unless(stop, build(screen)).await?;
    let began = Instant::now();
    let plane = unless(stop, start_plane(options, screen)).await?;
    let mut story = Story::begin(&plane, screen, summary).await?;
    let told = unless(stop, story.tell(&program)).await;
    story.summary.total = Some(began.elapsed());
    match told {
        Ok(()) => stay(options, stop, &mut story).await,
        Err(error) => {
            if stop.peek().is_none() {
                eprint!("\n{}", story.log_tails());
            }
            Err(error)
        }
    }
}

async fn stay(options: &Options, stop: &Stop, story: &mut Story<'_>) -> Result<()> {
    story.where_to_look(options.keep)?;
    story.summary.ok = true;
    tell(options, story.summary);
    if options.keep {
        stop.clone().await;
        story.screen.say("Stopping everything.");
    }
    Ok(())
}

fn tell(options: &Options, summary: &Summary) {
    if options.json {
        // Nobody reads it: no reason to end other than well.
        let _ = writeln!(std::io::stdout(), "{}", summary.line());
    }
}

async fn build(screen: &mut Screen) -> Result<PathBuf> {
    screen.heading("1. The program");
    screen.say("Building kube-provisioner as it is released; the first time takes some minutes.");
    let program = tokio::task::spawn_blocking(|| product::build(Profile::Release)).await??;
    screen.done(&program.display().to_string());
    Ok(program)
}

async fn start_plane(options: &Options, screen: &mut Screen) -> Result<ControlPlane> {
    screen.heading("2. A Kubernetes control plane");
    screen.say("The real programs, on loopback: etcd, kube-apiserver, kube-controller-manager; and Jaeger for traces.");
    screen.say("What is not on this machine yet is built with Go: once, about 17 minutes for all.");
    let started = Instant::now();
    let plane = ControlPlane::start(control_plane::Options {
        controller_manager_qps: Some(options.kcm_qps),
        jaeger: true,
        // There are no Pods.
        scheduler: false,
        ..control_plane::Options::default()
    })
    .await
    .context("the control plane does not start")?;
    screen.done(&format!("serving at {} after {:.1} s", plane.server(), started.elapsed().as_secs_f32()));
    Ok(plane)
}

/// `work`, unless it is interrupted.
async fn unless<T>(stop: &Stop, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        result = work => result,
        _ = stop.clone() => Err(anyhow!("interrupted")),
    }
}

fn stop_signal() -> Result<Stop> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => 2,
            _ = terminate.recv() => 15,
        }
    };
    Ok(stop.boxed().shared())
}
