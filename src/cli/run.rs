//! `run`: settings, signals, and the controller between them.

use std::{
    any::Any,
    future::Future,
    io::IsTerminal as _,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::Duration,
};

use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::{runtime::Runtime, sync::oneshot};

use super::{
    Failure,
    config::{Flags, Merged, ProvisionerSettings, Settings},
    reload, signals,
};
use crate::{
    clock::SystemClock,
    cluster::with_sources,
    controller::{ProvisionController, RunError},
    known_bugs,
    lease::Identity,
    telemetry::{
        self, TelemetryGuard, TelemetryOptions, health::Health, logs::LogFormat, metrics::Metrics, server,
    },
};

/// How long the last spans may take to get out.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Runs until a signal asks to stop, or something fails that can't be mended.
pub(super) fn run(flags: &Flags) -> Result<(), Failure> {
    known_bugs::switched_on().map_err(Failure::Runtime)?;
    let settings = Settings::validate(&Merged::load(flags)?)?;
    let runtime =
        Runtime::new().map_err(|error| Failure::Runtime(format!("cannot start threads: {error}")))?;
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(until_stopped(settings, flags))));
    // Work that did not end within the drain budget is the successor's; nobody waits for it here.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|panic| Err(Failure::Internal(message_of(panic.as_ref()))))
}

async fn until_stopped(settings: Settings, flags: &Flags) -> Result<(), Failure> {
    let stop = signals::stop();
    let stop = stop.map_err(|error| Failure::Runtime(format!("cannot listen for signals: {error}")))?;
    serve(settings, flags, stop).await
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panicked".into())
}

/// Runs one controller for all provisioners of `settings` until `stop` is ready.
///
/// This is the one place where the settings meet telemetry, backends and controller. The order: what
/// answers probes and traces comes before what works, and ends after it.
async fn serve(
    settings: Settings,
    flags: &Flags,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Failure> {
    let (clock, identity) = (SystemClock::shared(), Identity::of_this_process());
    let metrics = Metrics::new(&clock);
    let telemetry = telemetry::init(&telemetry_options(&settings, &identity, &metrics))
        .map_err(|error| Failure::Runtime(error.to_string()))?;
    if known_bugs::BUILT_IN {
        let bug = known_bugs::switched_on();
        tracing::error!(?bug, "THIS BUILD HAS KNOWN BUGS to switch on: it is for tests only");
    }
    // Settings that can't work are told before anything is asked of a cluster.
    let built = settings.provisioners.iter().map(|provisioner| provisioner.backend.build());
    let backends = built.collect::<Result<Vec<_>, _>>()?;
    reload::on_hangup(flags.clone(), telemetry.log_filter())
        .map_err(|error| Failure::Runtime(format!("cannot listen for SIGHUP: {error}")))?;
    let mut builder = ProvisionController::builder(cluster(settings.kubeconfig.as_deref()).await?)
        .identity(identity)
        .metrics(metrics.clone())
        .traces(telemetry.traces());
    let health = Health::new(clock);
    builder = builder.health(health.clone());
    for (settings, backend) in settings.provisioners.into_iter().zip(backends) {
        let ProvisionerSettings { controller, leader_election, .. } = settings;
        builder = builder.provisioner(controller, leader_election, backend);
    }
    let controller = builder.build().map_err(|error| Failure::Runtime(error.to_string()))?;
    let (served, stop_serving) = serve_probes(settings.http_address, health, metrics).await?;
    let outcome = controller.run(stop).await;
    drop(stop_serving);
    served.stopped().await;
    flush(telemetry).await;
    outcome.map_err(|error| match error {
        RunError::Panicked(message) => Failure::Internal(message),
        error => Failure::Runtime(with_sources(&error)),
    })
}

/// Serves probes and metrics until the sender is dropped.
async fn serve_probes(
    address: SocketAddr,
    health: Health,
    metrics: Metrics,
) -> Result<(server::Server, oneshot::Sender<()>), Failure> {
    let (stop, stopped) = oneshot::channel();
    let stopped = async move { drop(stopped.await) };
    let served = server::serve(address, health, metrics, stopped).await;
    let served = served.map_err(|error| {
        Failure::Runtime(format!("cannot serve probes and metrics on {address} (http_address): {error}"))
    })?;
    tracing::info!(address = %served.address, "serving probes and metrics");
    Ok((served, stop))
}

fn telemetry_options(settings: &Settings, identity: &Identity, metrics: &Metrics) -> TelemetryOptions {
    let terminal = || if std::io::stderr().is_terminal() { LogFormat::Human } else { LogFormat::Json };
    TelemetryOptions {
        log_format: settings.log_format.unwrap_or_else(terminal),
        log_filter: settings.log_level.clone(),
        otlp_endpoint: settings.otlp_endpoint.clone(),
        instance: Some(identity.to_string()),
        metrics: metrics.clone(),
    }
}

/// The kubeconfig that was named, or what the surroundings offer.
pub(super) async fn cluster(kubeconfig: Option<&Path>) -> Result<kube::Config, Failure> {
    let cluster = match kubeconfig {
        Some(path) => from_file(path).await,
        None => kube::Config::infer().await.map_err(|error| with_sources(&error)),
    };
    cluster.map_err(|reason| {
        Failure::Unreachable(format!("no cluster to work for: {reason}; name a kubeconfig (--kubeconfig)"))
    })
}

async fn from_file(path: &Path) -> Result<kube::Config, String> {
    let read = Kubeconfig::read_from(path).map_err(|error| with_sources(&error))?;
    let options = KubeConfigOptions::default();
    kube::Config::from_custom_kubeconfig(read, &options).await.map_err(|error| with_sources(&error))
}

/// Sends the spans that wait. A collector that does not take them in time is told in the log.
async fn flush(telemetry: TelemetryGuard) {
    let flushed = tokio::task::spawn_blocking(|| telemetry.shutdown(FLUSH_LIMIT)).await;
    if let Ok(Err(unflushed)) = flushed {
        tracing::warn!(%unflushed, "traces were lost at the end");
    }
}
