//! SIGHUP: the log level is read anew from where it was configured. Nothing else changes while the program
//! runs.
//!
//! A signal needs no address that listens and no right in the cluster: whoever may send it could end the
//! process as well.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use super::config::{ConfigError, Flags, Merged, Settings};
use crate::telemetry::logs::LogFilter;

/// From now on each SIGHUP sets `filter` to the configured level.
///
/// # Errors
/// The system refuses a signal handler.
pub(super) fn on_hangup(flags: Flags, filter: LogFilter) -> io::Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            reload(&flags, &filter);
        }
    });
    Ok(())
}

/// A configuration that can't be read changes nothing.
fn reload(flags: &Flags, filter: &LogFilter) {
    let set = configured(flags).map_err(|error| error.to_string());
    let set = set.and_then(|level| filter.set(&level).map(|()| level).map_err(|error| error.to_string()));
    match set {
        Ok(level) => tracing::info!(log_level = level, "logging at this level from now on"),
        Err(error) => tracing::warn!(error, log_level = filter.current(), "the log level stays as it is"),
    }
}

fn configured(flags: &Flags) -> Result<String, ConfigError> {
    Ok(Settings::validate(&Merged::load(flags)?)?.log_level)
}
