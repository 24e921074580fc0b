//! `cargo chaos`: scenarios that break something on purpose and measure or check what follows. Command line only;
//! each scenario is in a file of its own, and tests run the quick ones too.

pub mod alerts;
pub mod audit;
pub mod burst;
pub mod cast;
pub mod churn;
pub mod clocks;
pub mod crash;
pub mod failover;
pub mod history;
pub mod load;
mod numbers;
pub mod stall;
pub mod terms;
pub mod tracing_cost;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};

/// Break things on a real control plane, and see what follows.
#[derive(Debug, Parser)]
#[command(name = "chaos", bin_name = "cargo chaos")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the scenarios
    List,
    /// Run a scenario; exits with 1 if what must hold does not
    Run {
        #[command(subcommand)]
        scenario: Scenario,
    },
}

#[derive(Debug, Subcommand)]
enum Scenario {
    Failover(failover::Failover),
    Churn(churn::Churn),
    Stall(stall::Stall),
    Clocks(clocks::Clocks),
    TracingCost(tracing_cost::TracingCost),
    Alerts(alerts::Alerts),
    CrashPoints(crash::CrashPoints),
    Burst(burst::Burst),
}

/// Runs the command on a runtime of its own.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let scenario = match cli.command {
        Command::List => {
            list();
            return Ok(());
        }
        Command::Run { scenario } => scenario,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(until_interrupted(scenario));
    // A build that was interrupted still blocks a thread: the end of this process ends the build.
    runtime.shutdown_background();
    result
}

fn list() {
    let cli = Cli::command();
    let scenarios = cli.find_subcommand("run").into_iter().flat_map(clap::Command::get_subcommands);
    for scenario in scenarios {
        let about = scenario.get_about().map(ToString::to_string).unwrap_or_default();
        println!("{:<12} {about}", scenario.get_name());
    }
}

/// An interrupted scenario stops what it has started.
async fn until_interrupted(scenario: Scenario) -> Result<()> {
    let scenario = async {
        match scenario {
            Scenario::Failover(options) => failover::run(&options).await,
            Scenario::Churn(options) => churn::run(options).await,
            Scenario::Stall(options) => stall::run(&options).await,
            Scenario::Clocks(options) => clocks::run(options).await,
            Scenario::TracingCost(options) => tracing_cost::run(&options).await,
            Scenario::Alerts(options) => alerts::run(&options).await,
            Scenario::CrashPoints(options) => crash::command(options).await,
            Scenario::Burst(options) => burst::run(&options).await,
        }
    };
    tokio::select! {
        result = scenario => result,
        signal = tokio::signal::ctrl_c() => {
            signal.context("cannot handle SIGINT")?;
            anyhow::bail!("interrupted")
        }
    }
}
