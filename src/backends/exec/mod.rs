//! The exec backend: a program in any language makes and removes the volumes, started once per call.
//!
//! The protocol is in `protocol` and `docs/reference/exec.md`; running the program in `process`; what
//! its end means in `verdict`. This file maps that to the contract.

use std::{
    process::Stdio,
    time::{Duration, SystemTime},
};

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::{process::Command, sync::OnceCell};

use self::{
    process::{End, Run},
    protocol::{Answer, Made, Operation, Options, Outcome, Request, Subject, bare_call},
    verdict::{Unknown, judge},
};
use super::BackendError;
use crate::provisioner::{
    Asset, AssetPage, Call, Capabilities, Cause, DeleteError, IgnoredError, ProvisionError, Provisioner,
    VolumeOptions, async_trait,
};

mod config;
mod log;
mod process;
mod protocol;
#[cfg(test)]
mod tests;
mod verdict;
mod volume;

pub use config::ExecConfig;

/// How long the program may take to tell what it can do.
const CAPABILITIES_LIMIT: Duration = Duration::from_secs(10);

/// How often a program is asked at start that could not tell, and how long it is left alone in between: machines
/// run out of processes and files for moments, and programs get killed.
const CAPABILITIES_TRIES: u32 = 3;
const CAPABILITIES_PAUSE: Duration = Duration::from_millis(300);

/// How long a deletion may take that comes without a deadline.
const BARE_DELETE_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Asks a program, once per call. Dropping a call kills the program and every process of its group.
#[derive(Debug)]
pub struct ExecBackend {
    config: ExecConfig,
    /// What the program said of itself, asked until it has.
    capabilities: OnceCell<Capabilities>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    /// The program did not run, so nothing has changed.
    #[error("{0}")]
    NotStarted(String),
    /// It ran, and what it did is unknown.
    #[error(transparent)]
    Unknown(#[from] Unknown),
}

impl ExecBackend {
    /// A backend with these settings. Whether the program is there is seen at each call.
    ///
    /// # Errors
    /// [`BackendError`] names the setting that can't work.
    pub fn new(config: ExecConfig) -> Result<Self, BackendError> {
        config.check()?;
        Ok(Self { config, capabilities: OnceCell::new() })
    }

    /// Runs the program for one operation and gives its answer.
    async fn ask(&self, operation: Operation, call: &Call, subject: Subject<'_>) -> Result<Answer, NoAnswer> {
        Ok(judge(operation, &self.run(operation, call, subject).await?)?)
    }

    async fn run(&self, operation: Operation, call: &Call, subject: Subject<'_>) -> Result<Run, NoAnswer> {
        let not_started = |why: String| NoAnswer::NotStarted(why);
        let request = serde_json::to_vec(&Request::new(operation, call, subject))
            .map_err(|error| not_started(format!("the request could not be written: {error}")))?;
        let limit = call.deadline.duration_since(SystemTime::now());
        let limit =
            limit.map_err(|_| not_started("the deadline had passed before the program started".into()))?;
        let run = process::run(&mut self.command(operation, call), &request, limit).await;
        let run = run.map_err(|error| not_started(self.cannot_start(&error)))?;
        tell(operation, &run);
        Ok(run)
    }

    fn command(&self, operation: Operation, call: &Call) -> Command {
        let mut words = self.config.command.iter();
        let mut command = Command::new(words.next().map_or("", String::as_str));
        command.args(words).arg(operation.as_str()).current_dir(&self.config.working_directory);
        command.env_clear();
        let passed = self.config.pass_env.iter();
        command.envs(passed.filter_map(|name| std::env::var_os(name).map(|value| (name, value))));
        command.envs(&self.config.env);
        command.envs(call.traceparent.iter().map(|value| ("TRACEPARENT", value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn cannot_start(&self, error: &std::io::Error) -> String {
        let program = self.config.command.first().map_or("", String::as_str);
        format!("program {program} can't be started in {}: {error}", self.config.working_directory)
    }

    /// What the program can do. A program that was not let tell it is not one that can do little: for good, that
    /// would be forgotten assets and an audit that takes what is people's.
    async fn told_capabilities(&self) -> Result<Capabilities, NoAnswer> {
        self.capabilities.get_or_try_init(|| self.ask_capabilities()).await.copied()
    }

    async fn ask_capabilities(&self) -> Result<Capabilities, NoAnswer> {
        let call = bare_call(CAPABILITIES_LIMIT);
        let run = self.run(Operation::Capabilities, &call, Subject::Program {}).await?;
        let reason = match judge(Operation::Capabilities, &run) {
            Ok(answer) if answer.outcome == Outcome::Done => return Ok(capabilities(&answer)),
            Ok(answer) => answer.message.unwrap_or_default(),
            Err(unknown) if run.end.is_its_own() => unknown.to_string(),
            Err(unknown) => return Err(unknown.into()),
        };
        tracing::info!(reason, "the program did not tell its capabilities: provision and delete are assumed");
        Ok(Capabilities::default())
    }

    /// As `told_capabilities`, asked several times.
    async fn insist_on_capabilities(&self) -> Result<Capabilities, NoAnswer> {
        let mut tries = 1;
        loop {
            match self.told_capabilities().await {
                Err(_) if tries < CAPABILITIES_TRIES => tokio::time::sleep(CAPABILITIES_PAUSE).await,
                told => return told,
            }
            tries += 1;
        }
    }

    async fn ask_delete(&self, volume: &PersistentVolume, call: &Call) -> Result<(), DeleteError> {
        let subject = Subject::Volume(Made::of(volume));
        let answer = self.ask(Operation::Delete, call, subject).await.map_err(DeleteError::failed)?;
        let message = answer.message.unwrap_or_default();
        match answer.outcome {
            Outcome::Done => Ok(()),
            Outcome::Ignored => Err(IgnoredError::new(message).into()),
            Outcome::InUse => Err(DeleteError::InUse(message.into())),
            Outcome::Failed => Err(DeleteError::failed(message)),
            odd => Err(DeleteError::failed(misfit(Operation::Delete, odd))),
        }
    }
}

#[async_trait]
impl Provisioner for ExecBackend {
    async fn provision(&self, options: VolumeOptions) -> Result<PersistentVolume, ProvisionError> {
        let subject = Subject::Options(Box::new(Options::of(&options)));
        let answer = self.ask(Operation::Provision, &options.call, subject).await?;
        let message: Cause = answer.message.unwrap_or_default().into();
        match answer.outcome {
            Outcome::Done => {
                let made = answer.volume.ok_or_else(|| bad_answer(&"it has no volume"))?;
                volume::build(made, &options).map_err(|why| bad_answer(&why))
            }
            Outcome::Background => Err(ProvisionError::Background(message)),
            Outcome::NoChange => Err(ProvisionError::NoChange(message)),
            Outcome::Reschedule => Err(ProvisionError::Reschedule(message)),
            Outcome::Infeasible => Err(ProvisionError::Infeasible(message)),
            Outcome::Ignored => Err(IgnoredError::new(message.to_string()).into()),
            Outcome::Failed => Err(ProvisionError::Finished(message)),
            odd @ Outcome::InUse => Err(ProvisionError::background(misfit(Operation::Provision, odd))),
        }
    }

    async fn delete(&self, volume: &PersistentVolume) -> Result<(), DeleteError> {
        self.ask_delete(volume, &bare_call(BARE_DELETE_LIMIT)).await
    }

    async fn delete_with(&self, volume: &PersistentVolume, call: &Call) -> Result<(), DeleteError> {
        self.ask_delete(volume, call).await
    }

    async fn keep(&self, volume: &PersistentVolume, call: &Call) -> Result<(), Cause> {
        if !self.told_capabilities().await?.keep {
            return Ok(());
        }
        let answer = self.ask(Operation::Keep, call, Subject::Volume(Made::of(volume))).await?;
        match answer.outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed => Err(answer.message.unwrap_or_default().into()),
            odd => Err(misfit(Operation::Keep, odd)),
        }
    }

    async fn list(&self, page: Option<String>, call: &Call) -> Result<AssetPage, Cause> {
        let subject = Subject::Page { r#continue: page.as_deref() };
        let answer = self.ask(Operation::List, call, subject).await?;
        match answer.outcome {
            Outcome::Done => Ok(AssetPage {
                assets: answer.assets.into_iter().map(Asset::from).collect(),
                next: answer.r#continue.filter(|next| !next.is_empty()),
            }),
            Outcome::Failed => Err(answer.message.unwrap_or_default().into()),
            odd => Err(misfit(Operation::List, odd)),
        }
    }

    async fn capabilities(&self) -> Capabilities {
        let told = tokio::time::timeout(CAPABILITIES_LIMIT, self.insist_on_capabilities()).await;
        let reason = match told {
            Ok(Ok(told)) => return told,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {CAPABILITIES_LIMIT:?}"),
        };
        tracing::warn!(
            reason,
            "the program could not tell its capabilities: provision and delete are assumed"
        );
        Capabilities::default()
    }
}

impl From<NoAnswer> for ProvisionError {
    fn from(error: NoAnswer) -> Self {
        match error {
            NoAnswer::NotStarted(_) => Self::NoChange(error.into()),
            NoAnswer::Unknown(_) => Self::Background(error.into()),
        }
    }
}

fn capabilities(answer: &Answer) -> Capabilities {
    let Answer { block, topology, selector, .. } = *answer;
    let knows = |operation: Operation| answer.operations.iter().any(|known| known == operation.as_str());
    let (list, keep) = (knows(Operation::List), knows(Operation::Keep));
    Capabilities { block, topology, selector, list, keep, ..Capabilities::default() }
}

/// The program says it made something, and we can't tell what: it is asked again.
fn bad_answer(why: &dyn std::fmt::Display) -> ProvisionError {
    ProvisionError::background(log::plain(&format!("the program's answer can't become a volume: {why}")))
}

fn misfit(operation: Operation, outcome: Outcome) -> Cause {
    format!("the program answered {outcome:?}, which is no outcome of {}", operation.as_str()).into()
}

/// The last lines of the program's log, in ours.
fn tell(operation: Operation, run: &Run) {
    let operation = operation.as_str();
    let well = matches!(run.end, End::Exited(status) if status.success());
    for line in run.log.last_lines() {
        if well {
            tracing::info!(operation, "program: {line}");
        } else {
            tracing::warn!(operation, "program: {line}");
        }
    }
}
