//! The backends that come with the program, and how a configuration names one of them.
//!
//! Each is a [`Provisioner`] and knows nothing but that contract: no actor, no API server.

use std::sync::Arc;

use serde::Deserialize;

use crate::provisioner::Provisioner;

pub mod directory;
pub mod exec;

pub use directory::{DirectoryBackend, DirectoryConfig};
pub use exec::{ExecBackend, ExecConfig};

/// Which backend serves a provisioner name, with that backend's settings: a map with exactly one of the
/// keys `directory` and `exec`.
///
/// ```
/// let text = r#"{ "directory": { "path": "/srv/volumes", "mode": "0770", "gid": 100 } }"#;
/// let config: kube_provisioner::backends::BackendConfig = serde_json::from_str(text)?;
/// # let _ = config;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BackendConfig {
    /// A directory per volume.
    Directory(DirectoryConfig),
    /// A program per call.
    Exec(ExecConfig),
}

impl BackendConfig {
    /// Checks the settings and makes the backend.
    ///
    /// # Errors
    /// [`BackendError`] names the first setting that can't work. Nothing has been changed then.
    pub fn build(self) -> Result<Arc<dyn Provisioner>, BackendError> {
        Ok(match self {
            Self::Directory(config) => Arc::new(DirectoryBackend::new(config)?),
            Self::Exec(config) => Arc::new(ExecBackend::new(config)?),
        })
    }
}

/// A backend's setting that can't work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct BackendError {
    /// The setting, as the path of its keys below the backend: `directory.mode`.
    pub key: &'static str,
    /// What is wrong with its value, and what is allowed.
    pub reason: String,
}

impl BackendError {
    fn new(key: &'static str, reason: impl Into<String>) -> Self {
        Self { key, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(yaml: &str) -> Result<BackendConfig, String> {
        serde_saphyr::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn a_configuration_names_its_backend_by_its_key() {
        let directory = parsed("directory:\n  path: /srv/volumes\n  mode: \"2770\"\n  gid: 7\n").unwrap();
        assert!(matches!(directory, BackendConfig::Directory(c) if c.mode == "2770" && c.gid == Some(7)));
        let exec =
            parsed("exec:\n  command: [/bin/true, --fast]\n  env: {A: b}\n  passEnv: [PATH]\n").unwrap();
        assert!(matches!(exec, BackendConfig::Exec(c) if c.command.len() == 2 && c.pass_env == ["PATH"]));
    }

    #[test]
    fn an_unknown_backend_or_setting_is_named() {
        assert!(parsed("tape:\n  path: /dev/st0\n").unwrap_err().contains("tape"));
        assert!(parsed("directory:\n  path: /srv\n  modes: \"0777\"\n").unwrap_err().contains("modes"));
        assert!(parsed("exec:\n  command: [/bin/true]\n  shell: true\n").unwrap_err().contains("shell"));
    }

    #[test]
    fn a_setting_that_cannot_work_is_refused_by_name() {
        let error = parsed("directory:\n  path: srv\n").unwrap().build().err().unwrap();
        assert_eq!(error.key, "directory.path");
        let error = parsed("exec:\n  command: []\n").unwrap().build().err().unwrap();
        assert_eq!(error.key, "exec.command");
    }
}
