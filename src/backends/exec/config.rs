//! The exec backend's settings, and their check.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;

use crate::backends::BackendError;

/// Settings of the exec backend.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecConfig {
    /// The program, as an absolute path, and arguments that precede the operation.
    pub command: Vec<String>,
    /// Variables that the program gets. Nothing else of our environment reaches it, but `TRACEPARENT`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of variables of our own environment that are handed on, if set. `env` wins over them.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// The directory that the program starts in.
    #[serde(default = "root")]
    pub working_directory: String,
}

fn root() -> String {
    "/".to_owned()
}

/// Shows the names of variables, never their values: those may be secrets.
impl fmt::Debug for ExecConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecConfig")
            .field("command", &self.command)
            .field("env", &self.env.keys())
            .field("pass_env", &self.pass_env)
            .field("working_directory", &self.working_directory)
            .finish()
    }
}

impl ExecConfig {
    pub(super) fn check(&self) -> Result<(), BackendError> {
        let command = |reason: &str| Err(BackendError::new("exec.command", reason));
        match self.command.first() {
            None => return command("is empty; it must begin with the program's absolute path"),
            Some(program) if !program.starts_with('/') => {
                return command(&format!("{program:?} must be an absolute path"));
            }
            Some(_) if self.command.iter().any(|word| word.contains('\0')) => {
                return command("contains a NUL byte");
            }
            Some(_) => {}
        }
        self.env.keys().try_for_each(|name| is_name("exec.env", name))?;
        self.pass_env.iter().try_for_each(|name| is_name("exec.passEnv", name))?;
        if let Some((name, _)) = self.env.iter().find(|(_, value)| value.contains('\0')) {
            return Err(BackendError::new("exec.env", format!("the value of {name} contains a NUL byte")));
        }
        if self.working_directory.starts_with('/') && !self.working_directory.contains('\0') {
            return Ok(());
        }
        let reason = format!("{:?} must be an absolute path", self.working_directory);
        Err(BackendError::new("exec.workingDirectory", reason))
    }
}

fn is_name(key: &'static str, name: &str) -> Result<(), BackendError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(BackendError::new(key, format!("{name:?} is no variable's name")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(yaml: &str) -> ExecConfig {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let cases = [
            ("command: [backend]", "exec.command"),
            ("command: [\"/bin/a\\0b\"]", "exec.command"),
            ("command: [/bin/true]\nenv: {\"A=B\": c}", "exec.env"),
            ("command: [/bin/true]\nenv: {A: \"b\\0c\"}", "exec.env"),
            ("command: [/bin/true]\npassEnv: [\"\"]", "exec.passEnv"),
            ("command: [/bin/true]\nworkingDirectory: here", "exec.workingDirectory"),
        ];
        for (yaml, key) in cases {
            assert_eq!(config(yaml).check().unwrap_err().key, key, "{yaml}");
        }
        config("command: [/bin/true, -x]\nenv: {A: b}\npassEnv: [PATH]").check().unwrap();
    }

    #[test]
    fn values_of_variables_are_never_shown() {
        let shown = format!("{:?}", config("command: [/bin/true]\nenv: {TOKEN: hunter2}"));
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
    }
}
