//! `check`: is the configuration right, and what is it, all layers taken together?

use std::io::Write as _;

use super::{
    Failure,
    config::{Flags, Merged, Settings},
};

/// Prints the merged configuration if it is valid.
pub(super) fn check(flags: &Flags) -> Result<(), Failure> {
    let merged = Merged::load(flags)?;
    Settings::validate(&merged)?;
    std::io::stdout()
        .write_all(merged.to_yaml().as_bytes())
        .map_err(|error| Failure::Runtime(format!("cannot write to standard output: {error}")))
}
