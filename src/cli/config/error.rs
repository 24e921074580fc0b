//! What can be wrong with the configuration, in messages that say where and what is allowed instead.

use std::{io, sync::Arc};

use super::{Source, Sourced, table::OptionSpec};

/// The configuration can't be used. The program ends with exit code 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// A value that its option does not allow.
    #[error("{key}: {value} from {origin} {rule}")]
    Value { key: &'static str, value: String, origin: String, rule: String },
    /// A key or variable that no option has, or that has no place where it stands.
    #[error("{origin}: {problem}")]
    Misplaced { origin: String, problem: String },
    /// An option that has no default and no value.
    #[error("{place}: {key} is missing; {remedy}")]
    Missing { place: String, key: &'static str, remedy: String },
    /// The configuration file can't be read.
    #[error("cannot read the configuration file {path}: {source}")]
    Unreadable { path: Arc<str>, source: io::Error },
    /// The configuration file isn't YAML.
    #[error("{path}:{line}: not valid YAML: {problem}")]
    Syntax { path: Arc<str>, line: u64, problem: String },
}

impl ConfigError {
    /// `value` breaks a rule of `spec`.
    pub(super) fn value(spec: &OptionSpec, value: &Sourced, rule: impl Into<String>) -> Self {
        Self::Value {
            key: spec.key,
            value: value.text.to_string(),
            origin: value.source.to_string(),
            rule: rule.into(),
        }
    }

    /// What stands at `source` has no place there.
    pub(super) fn misplaced(source: &Source, problem: impl Into<String>) -> Self {
        Self::Misplaced { origin: source.to_string(), problem: problem.into() }
    }

    /// Nothing gives `spec` a value, by none of its three ways.
    pub(super) fn missing(place: impl Into<String>, spec: &OptionSpec) -> Self {
        let remedy = format!(
            "set it by {}, {} or the key {} of the configuration file, to {}",
            spec.flag(),
            spec.environment(),
            spec.key,
            spec.allowed
        );
        Self::Missing { place: place.into(), key: spec.key, remedy }
    }
}
