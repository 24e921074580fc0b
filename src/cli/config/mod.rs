//! The configuration of the program in three layers: raw values from flags, environment and file;
//! merged, each with its source; validated `Settings`.
//!
//! One table (`table`) names every option, and everything else reads it: the flags, the environment
//! variables, the keys of the file, `check`, and the reference page. No option is acted on here.

mod backend;
mod environment;
mod error;
mod file;
mod flags;
mod merged;
mod node;
mod settings;
mod show;
mod table;
mod values;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub(crate) use error::ConfigError;
pub(super) use flags::Flags;
pub(super) use merged::Merged;
pub(crate) use settings::{ProvisionerSettings, Settings};

use std::{collections::BTreeMap, fmt, sync::Arc};

/// Raw values of one layer, by the option's id.
type Layer = BTreeMap<&'static str, Sourced>;

/// A value as it was written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sourced {
    text: Text,
    source: Source,
}

/// What was written: one text, or several for an option that is a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Text {
    One(String),
    Many(Vec<String>),
}

/// Where a value comes from, strongest first.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Flag(String),
    Environment(String),
    File { path: Arc<str>, line: u64 },
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(text) => write!(f, "{text:?}"),
            Self::Many(texts) => write!(f, "{texts:?}"),
        }
    }
}
