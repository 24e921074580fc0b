//! `cargo chaos`: scenarios that break something on purpose and measure or check what follows. Command line only;
//! each scenario is in a file of its own, and tests run the quick ones too.

pub mod alerts;
pub mod audit;
pub mod burst;
pub mod cast;
pub mod check;
pub mod churn;
pub mod clocks;
pub mod crash;
pub mod crowd;
pub mod failover;
pub mod history;
pub mod load;
mod numbers;
pub mod random;
pub mod stall;
pub mod terms;
pub mod tracing_cost;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

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
    #[command(args_conflicts_with_subcommands = true)]
    Run {
        #[command(flatten)]
        random: random::Random,
        #[command(subcommand)]
        scenario: Option<Scenario>,
    },
    /// Judge a history that a run has left; exits with 1 if something must not be
    Check(check::Check),
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
    /// What `run` does without a command
    #[command(skip)]
    Random(random::Random),
    Burst(burst::Burst),
    Crowd(crowd::Crowd),
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
        Command::Check(options) => return check::run(&options),
        Command::Run { scenario: Some(scenario), .. } => scenario,
        Command::Run { random, scenario: None } => Scenario::Random(random),
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
        println!("{:<14} {about}", scenario.get_name());
    }
    println!("\nby seed (--scenario NAME --seed N, or --all):");
    for scenario in random::Scenario::ALL {
        let value = scenario.to_possible_value();
        let about = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string);
        println!("{:<14} {}", scenario.name(), about.unwrap_or_default());
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
            Scenario::Random(options) => random::command(options).await,
            Scenario::Burst(options) => burst::run(&options).await,
            Scenario::Crowd(options) => crowd::run(&options).await,
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
