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

/// Where and when the leader dies.
pub(super) struct Death {
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
    pub(super) died: bool,
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
    /// Where the leader dies.
    pub(super) death: Option<Death>,
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
    let Plan { death, expected, audit } = plan;
    let mut stage = Stage::empty(Scope::new(plane).await?, ledger, setup(audit)).await?;
    let proxy = Proxy::start(plane, &stage.scope.directory().join("proxy.jsonl")).await?;
    stage.add_replica("r0", Some(&proxy.server())).await?;
    stage.wait_ready().await?;
    stage.add_replica("r1", None).await?;
    stage.replica(1)?.wait_ready(DEADLINE).await?;
    let before = proxy.records().len();
    let trap = Trap::set(&stage, &proxy, story, death.as_ref())?;
    let leader = stage.replicas.remove(0);
    let died = play(&stage, story, trap.spring(&leader, &stage.ledger)).await;
    let died = died.with_context(|| context(&stage, &proxy, before))?;
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
    Ok(Told { sites, ending, undisturbed, died, audited })
}

/// Tells the story while the leader's death may come; whether it came.
async fn play(stage: &Stage<'_>, story: Story, death: impl Future<Output = Result<bool>>) -> Result<bool> {
    let (mut telling, mut death) = (Box::pin(story.tell(stage)), pin!(death));
    tokio::select! {
        told = &mut telling => {
            told?;
            // The last requests come when the story seems to have ended.
            timeout(LATE, death).await.unwrap_or(Ok(false))
        }
        died = &mut death => {
            let died = died?;
            telling.await?;
            Ok(died)
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
    Request(Halt),
    Call,
}

impl Trap {
    fn set(stage: &Stage<'_>, proxy: &Proxy, story: Story, death: Option<&Death>) -> Result<Self> {
        let mut rules = story.rules();
        let trap = match death {
            None => Self::None,
            Some(Death { site: Site::Request { verb, resource, nth }, moment }) => {
                let rule = proxy::Rule::on(verb, resource).nth(*nth);
                let (rule, halt) = match moment {
                    Moment::Before => rule.halt_before(),
                    Moment::After => rule.halt_after(),
                };
                proxy.set(vec![rule]);
                Self::Request(halt)
            }
            Some(Death { site: Site::Call { operation, nth }, moment }) => {
                let mut conduct = story.conduct(operation, *nth);
                let door = match moment {
                    Moment::Before => &mut conduct.door_before,
                    Moment::After => &mut conduct.door_after,
                };
                *door = Some(DOOR.to_owned());
                rules.insert(0, Rule::on(operation).nth(*nth).conduct(conduct));
                Self::Call
            }
        };
        stage.ledger.set(&rules)?;
        Ok(trap)
    }

    /// Kills the leader when it comes; whether it came.
    async fn spring(self, leader: &Replica, ledger: &Ledger) -> Result<bool> {
        let came = match self {
            Self::None => return Ok(false),
            Self::Request(mut halt) => {
                let came = halt.reached(DEADLINE).await.is_ok();
                // The halt is dropped with the leader dead: the request is cut.
                if came {
                    kill(leader).await?;
                }
                return Ok(came);
            }
            Self::Call => ledger.wait_arrived(DOOR, DEADLINE).await.is_ok(),
        };
        if came {
            kill(leader).await?;
        }
        Ok(came)
    }
}

/// As the end of a container: the leader and the programs that it runs, none of which does another step.
async fn kill(leader: &Replica) -> Result<()> {
    leader.pause()?;
    let programs = procfs::children(leader.pid())?;
    for program in programs {
        let pid = i32::try_from(program).ok().and_then(Pid::from_raw).context("no process id")?;
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
    leader.kill().await.map(drop)
}

async fn reach(stage: &Stage<'_>, expected: &Ending) -> Result<()> {
    let otherwise = async || {
        let now = ending(stage).await?;
        Ok((now != *expected).then(|| format!("{now:?} instead of {expected:?}")))
    };
    let what = "the end is that of the story without a death";
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
    let calls: Vec<String> = calls.iter().map(ToString::to_string).collect();
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
