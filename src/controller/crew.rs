//! The actors of one controller: started in order on the thread that they live on, stopped in reverse.

use std::{fmt::Debug, future::Future, sync::Arc, time::Duration};

use actix::{Actor, Addr, Recipient, System};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Api, Client, core::PartialObjectMeta};
use kube_runtime::{watcher, watcher::Event};
use tokio::{
    runtime,
    sync::{oneshot, watch as watch_channel},
};

use super::{ProvisionController, RunError, Served, panics::PanicWatch};
use crate::{
    actors::{
        arbiter::{self, ArbiterActor, Drain, Kind, News, Rules},
        auditor::{self, AuditorActor},
        elector::{self, ElectorActor, Resign},
        recorder::{Record, RecorderActor, Writer},
        volume::Desk,
        watcher::{Watched, WatcherActor, Wrap},
    },
    cluster::{Calls, Permissions, clients, decode, watch},
    known_bugs::{self, Bug},
    lease::{Campaign, CandidateOptions, LeaseOptions, Resigned},
    lifecycle::{
        claim,
        names::{self, VolumeNaming},
        retry::Backoff,
        tell::{self, About},
    },
    options::EventVerbosity,
    provisioner::Capabilities,
    telemetry::health::Role,
};

/// How long a backend may take to say what it can do.
const CAPABILITIES_LIMIT: Duration = Duration::from_secs(12);
/// How long cancelled operations may take to be gone. An exec backend's program is killed at once.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);
/// How long the release of the Lease may take.
const RESIGN_BUDGET: Duration = Duration::from_millis(500);

/// Runs a controller on the current thread until `asked` resolves (its sender is dropped) or a panic.
pub(super) fn work(controller: ProvisionController, asked: oneshot::Receiver<()>) -> Result<(), RunError> {
    let mut panics = PanicWatch::begin();
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("provisioner-io")
        .build()
        .map_err(RunError::Threads)?;
    let runner = System::with_tokio_rt(move || runtime);
    runner.block_on(async move {
        let stop = asked.map(drop);
        tokio::select! {
            outcome = serve(controller, stop) => outcome,
            message = panics.panicked() => Err(RunError::Panicked(message)),
        }
    })
}

async fn serve(controller: ProvisionController, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    for served in &controller.served {
        let waiting = Role::Unknown("the API server has not answered yet".to_owned());
        controller.health.role(&served.options.provisioner_name, waiting);
    }
    let client = clients::for_requests(&controller.cluster, &controller.metrics)
        .map_err(|e| client_error(&controller, e))?;
    let calls = Calls::new(client, permissions(&controller));
    let mut stop = std::pin::pin!(stop);
    let cluster = tokio::select! {
        cluster = reach(&controller, &calls) => cluster,
        () = &mut stop => return Ok(()),
    };
    let crew = Crew::start(controller, calls, &cluster).await?;
    stop.await;
    crew.stop().await;
    Ok(())
}

/// What RBAC refuses keeps this replica from being ready.
fn permissions(controller: &ProvisionController) -> Permissions {
    let health = controller.health.clone();
    Permissions::new(move |permission, refusal| {
        let problem = refusal.map(|words| format!("may not {permission}: {words}"));
        health.problem(&format!("permission/{permission}"), problem);
    })
}

fn client_error(controller: &ProvisionController, source: kube::Error) -> RunError {
    RunError::Client { server: controller.cluster.cluster_url.to_string(), source: Box::new(source) }
}

/// Waits for the API server, for as long as it takes, and returns the cluster's UID.
async fn reach(controller: &ProvisionController, calls: &Calls) -> String {
    let mut failures = 0;
    let mut told = String::new();
    loop {
        match calls.cluster_uid().await {
            Ok(uid) => {
                controller.health.problem("cluster", None);
                return uid;
            }
            Err(error) => {
                let reason = error.to_string();
                if told != reason {
                    tracing::warn!(server = %controller.cluster.cluster_url, reason, "the API server can't be used yet");
                    controller.health.problem("cluster", Some(reason.clone()));
                    told = reason;
                }
                failures += 1;
                tokio::time::sleep(Backoff::WATCH.wait(failures, crate::clock::jitter())).await;
            }
        }
    }
}

/// The actors that are told to stop. The others end with the thread.
struct Crew {
    members: Vec<Member>,
}

/// The actors of one provisioner name.
struct Member {
    provisioner: Arc<str>,
    drain_budget: Duration,
    arbiter: Addr<ArbiterActor>,
    elector: Addr<ElectorActor>,
}

impl Crew {
    /// Caches before leadership: an Arbiter does not start work before it has seen every kind.
    async fn start(controller: ProvisionController, calls: Calls, cluster: &str) -> Result<Self, RunError> {
        warn_of_version(&controller, &calls).await;
        let mut members = Vec::new();
        let anew = Arc::new(watch_channel::Sender::new(()));
        for served in &controller.served {
            let capabilities = capabilities(served).await;
            members.push(member(&controller, served, capabilities, &calls, cluster, &anew));
        }
        let arbiters: Vec<Recipient<News>> = members.iter().map(|m| m.arbiter.clone().recipient()).collect();
        start_watchers(&controller, &arbiters, &anew).map_err(|error| client_error(&controller, error))?;
        Ok(Self { members })
    }

    /// Leader-only work first, the Lease last: whoever takes over finds nobody at work.
    async fn stop(self) {
        futures::future::join_all(self.members.into_iter().map(Member::stop)).await;
    }
}

impl Member {
    async fn stop(self) {
        let Self { provisioner, drain_budget, arbiter, elector } = self;
        let drained = tokio::time::timeout(drain_budget, arbiter.send(Drain { cancel: false })).await;
        if drained.is_err() {
            let cancelled = tokio::time::timeout(CANCEL_LIMIT, arbiter.send(Drain { cancel: true })).await;
            if cancelled.is_err() {
                tracing::warn!(%provisioner, "cancelled operations did not end in time");
            }
        }
        match elector.send(Resign(RESIGN_BUDGET)).await {
            Ok(Resigned::Released) => tracing::info!(%provisioner, "released the lease"),
            Ok(Resigned::Unconfirmed) => {
                tracing::warn!(%provisioner, "the release of the lease was not confirmed; it runs out by itself");
            }
            Ok(Resigned::NotHeld) | Err(_) => {}
        }
    }
}

async fn capabilities(served: &Served) -> Capabilities {
    match tokio::time::timeout(CAPABILITIES_LIMIT, served.backend.capabilities()).await {
        Ok(capabilities) => capabilities,
        Err(_) => {
            let provisioner = &served.options.provisioner_name;
            tracing::warn!(
                provisioner,
                "the backend did not say what it can do; provision and delete are assumed"
            );
            Capabilities::default()
        }
    }
}

/// Versions of the API server that the tests run on.
const TESTED_MINORS: std::ops::RangeInclusive<u32> = 37..=37;

/// An untested version is a warning, never a refusal.
async fn warn_of_version(controller: &ProvisionController, calls: &Calls) {
    let version = match &controller.server_git_version {
        Some(version) => version.clone(),
        None => calls.server_git_version().await.unwrap_or_default(),
    };
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    match minor {
        Some(minor) if TESTED_MINORS.contains(&minor) => tracing::info!(version, "the API server answers"),
        _ => tracing::warn!(version, tested = ?TESTED_MINORS, "the API server's version is untested"),
    }
}

fn member(
    controller: &ProvisionController,
    served: &Served,
    capabilities: Capabilities,
    calls: &Calls,
    cluster: &str,
    anew: &Arc<watch_channel::Sender<()>>,
) -> Member {
    let options = &served.options;
    let provisioner: Arc<str> = options.provisioner_name.as_str().into();
    let writer = Writer::new(calls.clone(), &*provisioner, controller.identity.as_str());
    let recorder = RecorderActor::new(writer, controller.clock.clone(), controller.metrics.clone()).start();
    let arbiter =
        start_arbiter(controller, served, capabilities, calls, cluster, recorder.clone().recipient());
    let campaign = campaign(controller, served);
    let setup = auditor::Setup {
        restores: Some(campaign.restore_report()),
        ..auditing(controller, served, capabilities, calls, cluster, &arbiter, recorder.clone())
    };
    let auditor = AuditorActor::new(setup).start();
    let followers = Followers { arbiter: arbiter.clone(), auditor, anew: anew.clone() };
    let elector = start_elector(controller, served, campaign, followers, recorder.recipient());
    Member { provisioner, drain_budget: options.drain_budget, arbiter, elector }
}

fn start_arbiter(
    controller: &ProvisionController,
    served: &Served,
    capabilities: Capabilities,
    calls: &Calls,
    cluster: &str,
    recorder: Recipient<Record>,
) -> Addr<ArbiterActor> {
    let options = &served.options;
    let names = std::iter::once(&options.provisioner_name).chain(&options.additional_provisioner_names);
    let works_for = Arc::new(claim::Served {
        names: names.map(|name| name.as_str().into()).collect(),
        capabilities,
        instance: options.instance.as_deref().map(Into::into),
        finalizer: options.add_finalizer,
    });
    let setup = arbiter::Setup {
        provisioner: options.provisioner_name.as_str().into(),
        identity: controller.identity.as_str().into(),
        rules: rules(served),
        resync_period: options.resync_period,
        clock: controller.clock.clone(),
        health: controller.health.clone(),
        metrics: controller.metrics.clone(),
        traces: controller.traces.clone(),
    };
    ArbiterActor::begin(setup, |arbiter| Desk {
        provisioner: served.backend.clone(),
        capabilities,
        served: works_for,
        installation: names::installation(cluster, &options.provisioner_name, options.instance.as_deref()),
        provision_timeout: options.provision_timeout,
        deletion_timeout: options.deletion_timeout,
        calls: calls.clone(),
        recorder,
        arbiter,
        metrics: controller.metrics.clone(),
    })
}

fn rules(served: &Served) -> Rules {
    let (options, backend) = (&served.options, served.backend.clone());
    Rules {
        naming: VolumeNaming::new(
            &*options.volume_name_prefix,
            options.volume_name_uuid_length.map(usize::from),
        )
        .hooked(Arc::new(move |claim| backend.volume_name(claim))),
        backoff: Backoff {
            initial: options.retry_initial,
            max: options.retry_max,
            exponential: options.exponential_backoff_on_error,
        },
        provision_workers: options.provision_workers.get(),
        delete_workers: options.delete_workers.get(),
        provision_threshold: options.failed_provision_threshold,
        delete_threshold: options.failed_delete_threshold,
        tell_start: options.event_verbosity == EventVerbosity::All,
    }
}

fn auditing(
    controller: &ProvisionController,
    served: &Served,
    capabilities: Capabilities,
    calls: &Calls,
    cluster: &str,
    arbiter: &Addr<ArbiterActor>,
    recorder: Addr<RecorderActor>,
) -> auditor::Setup {
    let Served { options, election, backend } = served;
    auditor::Setup {
        subject: auditor::Subject {
            provisioner: backend.clone(),
            name: options.provisioner_name.as_str().into(),
            installation: names::installation(
                cluster,
                &options.provisioner_name,
                options.instance.as_deref(),
            ),
            calls: calls.clone(),
        },
        capabilities,
        interval: options.audit_interval,
        grace: if known_bugs::is(Bug::NoAuditGrace) {
            Duration::ZERO
        } else {
            options.provision_timeout.max(options.deletion_timeout)
        },
        policy: options.orphans,
        lease: About {
            kind: tell::Kind::Lease,
            namespace: election.namespace().into(),
            name: election.name_for(options).into(),
            uid: "".into(),
        },
        arbiter: arbiter.clone(),
        recorder: recorder.recipient(),
        restores: None,
        clock: controller.clock.clone(),
        metrics: controller.metrics.clone(),
    }
}

fn campaign(controller: &ProvisionController, served: &Served) -> Campaign {
    let Served { options, election, .. } = served;
    let candidate = CandidateOptions {
        lease: LeaseOptions {
            namespace: election.namespace(),
            name: election.name_for(options),
            labels: election.lease_labels.clone(),
            timing: election.timing(),
        },
        provisioner: options.provisioner_name.clone(),
        identity: controller.identity.clone(),
    };
    Campaign::new(candidate, controller.cluster.clone(), controller.clock.clone())
}

/// Who follows what an Elector publishes.
struct Followers {
    arbiter: Addr<ArbiterActor>,
    auditor: Addr<AuditorActor>,
    anew: Arc<watch_channel::Sender<()>>,
}

fn start_elector(
    controller: &ProvisionController,
    served: &Served,
    campaign: Campaign,
    followers: Followers,
    recorder: Recipient<Record>,
) -> Addr<ElectorActor> {
    let Served { options, election, .. } = served;
    let Followers { arbiter, auditor, anew } = followers;
    let setup = elector::Setup {
        provisioner: options.provisioner_name.as_str().into(),
        namespace: election.namespace(),
        lease: election.name_for(options),
        leaders: vec![arbiter.clone().recipient(), auditor.clone().recipient()],
        arbiter: arbiter.recipient(),
        auditor: auditor.recipient(),
        anew,
        recorder,
        health: controller.health.clone(),
        metrics: controller.metrics.clone(),
    };
    ElectorActor::begin(setup, campaign)
}

fn start_watchers(
    controller: &ProvisionController,
    arbiters: &[Recipient<News>],
    anew: &watch_channel::Sender<()>,
) -> Result<(), kube::Error> {
    let watch = Watch { controller, arbiters, anew };
    watch.start(
        Kind::Claims,
        News::Claims,
        |client| watcher(Api::<PersistentVolumeClaim>::all(client), watch::config()),
        |whole| decode::claim(whole).into(),
    )?;
    watch.start(
        Kind::Volumes,
        News::Volumes,
        |client| watcher(Api::<PersistentVolume>::all(client), watch::config()),
        |whole| decode::volume(&whole).into(),
    )?;
    watch.start(
        Kind::Classes,
        News::Classes,
        |client| watcher(Api::<StorageClass>::all(client), watch::config()),
        |whole| decode::class(whole).into(),
    )?;
    watch.start(
        Kind::Nodes,
        News::Nodes,
        |client| watcher(Api::<PartialObjectMeta<Node>>::all(client), watch::config()),
        |whole| decode::node(whole).into(),
    )
}

/// What every Watcher gets.
struct Watch<'a> {
    controller: &'a ProvisionController,
    arbiters: &'a [Recipient<News>],
    anew: &'a watch_channel::Sender<()>,
}

impl Watch<'_> {
    /// Starts the Watcher of one kind, with a client of its own.
    fn start<K, T, S>(
        &self,
        kind: Kind,
        wrap: Wrap<T>,
        events: impl Fn(Client) -> S + Send + 'static,
        slim: impl Fn(K) -> Arc<T> + Clone + Send + 'static,
    ) -> Result<(), kube::Error>
    where
        K: Debug + Send + 'static,
        T: Debug + Send + Sync + Unpin + 'static,
        S: futures::Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    {
        let ProvisionController { cluster, health, metrics, .. } = self.controller;
        let watcher =
            WatcherActor::new(kind, wrap, self.arbiters.to_vec(), health.clone(), metrics.clone()).start();
        let heard = watcher.clone();
        let client = clients::for_watches(cluster, metrics, move || heard.do_send(Watched))?;
        let begin = move || watch::batches(events(client.clone()), slim.clone()).boxed();
        WatcherActor::follow(&watcher, self.anew.subscribe(), begin);
        Ok(())
    }
}
