//! What a run of the program means: its answer, or why there is none. Pure.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde_json::Value;

use super::{
    log::{Log, plain},
    process::{End, LONGEST_ANSWER, Run},
    protocol::{Answer, Operation, Outcome},
};

/// There is no answer that counts: what the program did is unknown. In its own words where it had any.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unknown(pub(super) String);

/// The answer of a run, its message filled in.
pub(super) fn judge(operation: Operation, run: &Run) -> Result<Answer, Unknown> {
    match &run.end {
        End::Exited(status) if status.success() => {
            let mut answer = read(operation, &run.answer)?;
            answer.message = Some(message(answer.message.as_deref(), &run.log));
            Ok(answer)
        }
        End::Exited(status) => Err(unknown(&run.log, &format!("the program {}", ended(*status)))),
        End::Deadline => Err(unknown(&run.log, "the program was killed at its deadline")),
        End::TooLong => Err(unknown(
            &run.log,
            &format!("the program was killed: its answer passed {LONGEST_ANSWER} bytes"),
        )),
        End::Broken(error) => Err(unknown(&run.log, &format!("the program was killed: {error}"))),
    }
}

fn read(operation: Operation, output: &[u8]) -> Result<Answer, Unknown> {
    if output.trim_ascii().is_empty() {
        let silent = if operation == Operation::Delete { Outcome::Done } else { Outcome::Failed };
        return Ok(Answer::bare(silent));
    }
    let not_one = |error| Unknown(plain(&format!("the program's output is not one JSON object: {error}")));
    let value: Value = serde_json::from_slice(output).map_err(not_one)?;
    if !value.is_object() {
        return Err(Unknown("the program's output is JSON, but not an object".to_owned()));
    }
    serde_json::from_value(value)
        .map_err(|e| Unknown(plain(&format!("the program's answer is not understood: {e}"))))
}

fn message(said: Option<&str>, log: &Log) -> String {
    let said = said.map(plain).filter(|words| !words.is_empty());
    said.or_else(|| log.reason()).unwrap_or_else(|| "the program gave no reason".to_owned())
}

fn unknown(log: &Log, what: &str) -> Unknown {
    Unknown(match log.reason() {
        Some(reason) => format!("{reason} ({what})"),
        None => what.to_owned(),
    })
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(end: End, answer: &str, stderr: &str) -> Run {
        let mut log = Log::default();
        log.push(stderr.as_bytes());
        Run { end, answer: answer.into(), log }
    }

    fn exited(status: i32, answer: &str, stderr: &str) -> Run {
        run(End::Exited(ExitStatus::from_raw(status)), answer, stderr)
    }

    fn verdict(operation: Operation, run: Run) -> (Outcome, String) {
        let answer = judge(operation, &run).unwrap();
        (answer.outcome, answer.message.unwrap())
    }

    fn reason(run: Run) -> String {
        judge(Operation::Provision, &run).unwrap_err().0
    }

    #[test]
    fn silence_is_success_for_a_deletion_only() {
        assert_eq!(verdict(Operation::Delete, exited(0, " \n", "")).0, Outcome::Done);
        for operation in [Operation::Provision, Operation::Keep, Operation::Capabilities] {
            let (outcome, message) = verdict(operation, exited(0, "", "no idea\n"));
            assert_eq!((outcome, message.as_str()), (Outcome::Failed, "no idea"));
        }
    }

    #[test]
    fn the_message_wins_over_the_log_and_the_log_over_nothing() {
        let said =
            verdict(Operation::Provision, exited(0, r#"{"outcome":"failed","message":"full\n"}"#, "log"));
        assert_eq!(said, (Outcome::Failed, "full".to_owned()));
        let silent = verdict(Operation::Provision, exited(0, r#"{"outcome":"failed","message":""}"#, "log"));
        assert_eq!(silent.1, "log");
        assert_eq!(
            verdict(Operation::Delete, exited(0, r#"{"outcome":"inUse"}"#, "")).1,
            "the program gave no reason"
        );
    }

    #[test]
    fn output_that_is_not_one_known_object_leaves_the_outcome_unknown() {
        for output in [
            "made it",
            "[]",
            "7",
            "{\"outcome\":\"done\"}{}",
            "{\"outcome\":\"great\"}",
            "{}",
            "{\"outcome\":",
        ] {
            judge(Operation::Delete, &exited(0, output, "")).unwrap_err();
        }
    }

    #[test]
    fn an_answer_before_any_other_exit_does_not_count() {
        let done = r#"{"outcome":"failed","message":"x"}"#;
        assert_eq!(
            reason(exited(3 << 8, done, "disk on fire\n")),
            "disk on fire (the program ended with exit status 3)"
        );
        assert_eq!(reason(exited(9, done, "")), "the program was killed by signal 9");
        assert_eq!(
            reason(run(End::Deadline, done, "waiting")),
            "waiting (the program was killed at its deadline)"
        );
        assert!(reason(run(End::TooLong, "", "")).contains("1048576 bytes"));
    }
}
