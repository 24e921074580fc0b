//! One telling of a story: two replicas, the first leads behind a proxy and may die, the second finishes; and how it
//! ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    pin::pin,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{DEADLINE, Moment, Site, Story, site};
use crate::{
    cluster::Scope,
    control_plane::ControlPlane,
    ledger::{
        Call, Ledger, Phase, Rule,
        stage::{FINALIZER, Setup, Stage},
    },
    procfs,
    proxy::{self, Halt, Proxy},
    replica::Replica,
};

/// What happens to the leader, and where.
pub(super) struct Fault {
    pub(super) site: Site,
    pub(super) moment: Moment,
}

/// What is left in the end, by names that are the same in every run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// The claims and their phases.
    claims: BTreeMap<String, String>,
    /// Of each volume: claim, policy, phase, whether it has a finalizer of ours.
    volumes: BTreeSet<(String, String, String, bool)>,
    /// The claims of the assets.
    assets: BTreeSet<String>,
}

/// A told story.
pub(super) struct Told {
    /// What the first leader wrote and called.
    pub(super) sites: Vec<Site>,
    pub(super) ending: Ending,
    /// Whether the first leader led to the end.
    pub(super) undisturbed: bool,
    /// Whether the fault came.
    pub(super) struck: bool,
    /// Whether an orphan was removed.
    pub(super) audited: bool,
}

/// How long the leader's last requests may take after a story has ended.
const LATE: Duration = Duration::from_secs(3);

/// The door that a call waits at whose caller dies.
const DOOR: &str = "death";

/// What is different from the story without a fault.
#[derive(Default)]
pub(super) struct Plan<'a> {
    /// What happens to the leader.
    pub(super) fault: Option<Fault>,
    /// How it has to end.
    pub(super) expected: Option<&'a Ending>,
    /// Whether orphans are removed.
    pub(super) audit: bool,
}

fn setup(audit: bool) -> Setup {
    Setup::with(json!({
        "leaseProfile": null,
        "leaseDuration": "1s", "leaseHold": "700ms", "leaseRenew": "200ms",
        "provisionTimeout": "4s", "deletionTimeout": "4s", "auditInterval": "1s",
        "orphans": if audit { "auto" } else { "report" },
    }))
}

/// Tells a story. With an `expected` ending, waits until it is reached.
pub(super) async fn tell(plane: &ControlPlane, ledger: &Path, story: Story, plan: Plan<'_>) -> Result<Told> {
    let Plan { fault, expected, audit } = plan;
    let mut stage = Stage::empty(Scope::new(plane).await?, ledger, setup(audit)).await?;
    let proxy = Proxy::start(plane, &stage.scope.directory().join("proxy.jsonl")).await?;
    stage.add_replica("r0", Some(&proxy.server())).await?;
    stage.wait_ready().await?;
    stage.add_replica("r1", None).await?;
    stage.replica(1)?.wait_ready(DEADLINE).await?;
    let before = proxy.records().len();
    let trap = Trap::set(&stage, &proxy, story, fault.as_ref())?;
    let leader = stage.replicas.remove(0);
    let struck = play(&stage, story, trap.spring(&leader, &stage.ledger)).await;
    let struck = struck.with_context(|| context(&stage, &proxy, before))?;
    let ending = match expected {
        Some(expected) => {
            reach(&stage, expected).await.with_context(|| context(&stage, &proxy, before))?;
            expected.clone()
        }
        None => settle(&stage, story).await?,
    };
    check_history(&stage.ledger.log()?)?;
    let records = proxy.records();
    let sites = site::of_run(records.get(before..).unwrap_or_default(), &first_of(&stage.ledger.log()?));
    let undisturbed = leads(&stage, &leader).await?;
    let audited = stage.ledger.begun("delete")?.iter().any(|call| call.request.get("volume").is_none());
    clean_up(&stage).await?;
    Ok(Told { sites, ending, undisturbed, struck, audited })
}

/// Tells the story while the fault may come; whether it came.
async fn play(stage: &Stage<'_>, story: Story, fault: impl Future<Output = Result<bool>>) -> Result<bool> {
    let (mut telling, mut fault) = (Box::pin(story.tell(stage)), pin!(fault));
    tokio::select! {
        told = &mut telling => {
            told?;
            // The last requests come when the story seems to have ended.
            timeout(LATE, fault).await.unwrap_or(Ok(false))
        }
        struck = &mut fault => {
            let struck = struck?;
            telling.await?;
            Ok(struck)
        }
    }
}

/// The calls of the first leadership.
fn first_of(log: &[Call]) -> Vec<Call> {
    let epoch = log.iter().map(|call| call.epoch).filter(|epoch| *epoch > 0).min();
    log.iter().filter(|call| Some(call.epoch) == epoch && call.phase == Phase::Begin).cloned().collect()
}

async fn leads(stage: &Stage<'_>, leader: &Replica) -> Result<bool> {
    let name = stage.scope.provisioner().replace('/', "-");
    let lease = stage.leases().get(&name).await?;
    let spec = lease.spec.unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    Ok(holder.starts_with(leader.name()))
}

/// What waits for the leader.
enum Trap {
    None,
    /// The request waits; whether the leader dies then.
    Request(Halt, bool),
    /// The call of this operation waits, the `nth`; whether the leader dies then.
    Call(String, usize, bool),
}

impl Trap {
    fn set(stage: &Stage<'_>, proxy: &Proxy, story: Story, fault: Option<&Fault>) -> Result<Self> {
        let mut rules = story.rules();
        let trap = match fault {
            None => Self::None,
            Some(Fault { site: Site::Request { verb, resource, nth }, moment }) => {
                let rule = proxy::Rule::on(verb, resource).nth(*nth);
                let (rule, halt) = if moment.is_early() { rule.halt_before() } else { rule.halt_after() };
                proxy.set(vec![rule]);
                Self::Request(halt, moment.is_death())
            }
            Some(Fault { site: Site::Call { operation, nth }, moment }) => {
                let mut conduct = story.conduct(operation, *nth);
                let door = if moment.is_early() { &mut conduct.door_before } else { &mut conduct.door_after };
                *door = Some(DOOR.to_owned());
                rules.insert(0, Rule::on(operation).nth(*nth).conduct(conduct));
                Self::Call(operation.clone(), *nth, moment.is_death())
            }
        };
        stage.ledger.set(&rules)?;
        Ok(trap)
    }

    /// Does what is to be done when the leader comes; whether it came.
    async fn spring(self, leader: &Replica, ledger: &Ledger) -> Result<bool> {
        match self {
            Self::None => Ok(false),
            Self::Request(mut halt, deadly) => {
                let came = halt.reached(DEADLINE).await.is_ok();
                if came && deadly {
                    kill_with_programs(leader).await?;
                }
                // The halt is dropped here: the request is cut.
                Ok(came)
            }
            Self::Call(operation, nth, deadly) => {
                if ledger.wait_arrived(DOOR, DEADLINE).await.is_err() {
                    return Ok(false);
                }
                if deadly {
                    kill_with_programs(leader).await?;
                } else {
                    let calls = ledger.begun(&operation)?;
                    let call =
                        calls.iter().find(|call| call.number == nth).context("the call is not on record")?;
                    kill_program(call.pid)?;
                }
                Ok(true)
            }
        }
    }
}

/// As the end of a container: the leader and the programs that it runs, none of which does another step.
pub(in crate::chaos) async fn kill_with_programs(leader: &Replica) -> Result<()> {
    leader.pause()?;
    for program in procfs::children(leader.pid())? {
        kill_program(program)?;
    }
    leader.kill().await.map(drop)
}

fn kill_program(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process id")?;
    // It may have ended by itself.
    let _ = kill_process(pid, Signal::KILL);
    Ok(())
}

async fn reach(stage: &Stage<'_>, expected: &Ending) -> Result<()> {
    let otherwise = async || {
        let now = ending(stage).await?;
        Ok((now != *expected).then(|| format!("{now:?} instead of {expected:?}")))
    };
    let what = "the end is that of the story without a fault";
    stage.eventually(what, otherwise).await?;
    // It has to stay so while the new leader audits and does what it still has to do.
    let lists = stage.ledger.begun("list")?.len();
    stage.ledger.wait_begun("list", lists + 2, DEADLINE).await?;
    let now = ending(stage).await?;
    ensure!(now == *expected, "{what}, and then not any more: {now:?} instead of {expected:?}");
    Ok(())
}

/// The ending of a story without a fault: it has to be a good one by itself.
async fn settle(stage: &Stage<'_>, story: Story) -> Result<Ending> {
    let keeps = matches!(story, Story::Retained | Story::Kept);
    let rest = |keeps| if keeps { 1 } else { 0 };
    let told = async || {
        let Ending { claims, volumes, assets } = ending(stage).await?;
        let idle = ["provision", "delete", "keep"].into_iter().try_fold(true, |idle, operation| {
            anyhow::Ok(idle && stage.ledger.begun(operation)?.len() == stage.ledger.ended(operation)?.len())
        })?;
        let settled =
            idle && claims.is_empty() && volumes.len() == rest(keeps) && assets.len() == rest(keeps);
        Ok((!settled).then(|| format!("{claims:?} {volumes:?} {assets:?}")))
    };
    stage.eventually("the story has ended", told).await?;
    ending(stage).await
}

async fn ending(stage: &Stage<'_>) -> Result<Ending> {
    let claims = stage.scope.claims().list(&ListParams::default()).await?;
    let phase = |status: Option<String>| status.unwrap_or_default();
    let claims =
        claims.into_iter().map(|claim| (claim.name_any(), phase(claim.status.and_then(|it| it.phase))));
    let volumes = stage.scope.volumes().await?;
    let names: BTreeMap<String, String> = stage
        .ledger
        .log()?
        .into_iter()
        .map(|call| (call.volume, call.claim))
        .filter(|it| !it.1.is_empty())
        .collect();
    let claim_of = |asset: String| names.get(&asset).cloned().unwrap_or(asset);
    Ok(Ending {
        claims: claims.collect(),
        volumes: volumes.iter().map(describe).collect(),
        assets: stage.ledger.assets()?.into_iter().map(claim_of).collect(),
    })
}

fn describe(volume: &PersistentVolume) -> (String, String, String, bool) {
    let spec = volume.spec.clone().unwrap_or_default();
    (
        spec.claim_ref.and_then(|claim| claim.name).unwrap_or_default(),
        spec.persistent_volume_reclaim_policy.unwrap_or_default(),
        volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default(),
        volume.finalizers().iter().any(|it| it == FINALIZER),
    )
}

/// At most one asset for each claim UID, ever: one name, and never made again once it was removed.
fn check_history(log: &[Call]) -> Result<()> {
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut removed = BTreeSet::new();
    for call in log {
        if let Some(uid) = call.request.pointer("/claim/metadata/uid").and_then(Value::as_str) {
            names.entry(uid).or_default().insert(&call.volume);
        }
        if call.phase == Phase::End && call.changed {
            match &*call.operation {
                "delete" => drop(removed.insert(&*call.volume)),
                "provision" => {
                    ensure!(
                        !removed.contains(&*call.volume),
                        "{} was made again after its removal",
                        call.volume
                    );
                }
                _ => {}
            }
        }
    }
    let many = names.into_iter().find(|(_, names)| names.len() > 1);
    ensure!(many.is_none(), "a claim has several assets: {many:?}");
    Ok(())
}

/// Other runs watch volumes, too.
async fn clean_up(stage: &Stage<'_>) -> Result<()> {
    for volume in stage.scope.volumes().await? {
        stage.scope.all_volumes().delete(&volume.name_any(), &DeleteParams::default()).await?;
    }
    Ok(())
}

/// What is shown with a run that went wrong.
fn context(stage: &Stage<'_>, proxy: &Proxy, before: usize) -> String {
    let calls = stage.ledger.log().unwrap_or_default();
    let changing = calls.iter().filter(|call| call.operation != "list");
    let calls: Vec<String> = changing.map(ToString::to_string).collect();
    let records = proxy.records();
    let requests = records.iter().skip(before).filter(|record| record.request.is_mutating());
    let requests: Vec<String> = requests
        .map(|it| format!("{} {} {}: {}", it.request.verb, it.request.resource, it.request.name, it.fate))
        .collect();
    format!(
        "in {}; the first leader's requests: {requests:#?}; the ledger's log: {calls:#?}",
        stage.scope.namespace()
    )
}
