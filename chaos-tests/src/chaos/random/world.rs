//! The cluster of one run: the replicas, each behind a proxy and under an account of its own, the ledger, and the
//! chronicle that all tell what they do to.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::Path,
    sync::{
        Mutex as Brief, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};

use super::{
    chronicle::Chronicle,
    holds::Holds,
    plan::{Kind, Plan},
};
use crate::{
    chaos::history::ASKED,
    cluster::Scope,
    control_plane::ControlPlane,
    history::{What, check::Invariant},
    ledger::{
        Conduct, Rule as Gate, Words,
        stage::{DEADLINE, Setup, Stage},
    },
    nemesis::{clock::Clock, network::Namespace},
    procfs,
    product::{KNOWN_BUG, Profile},
    proxy::{Proxy, Rule},
    replica::Replica,
};

/// See the module.
pub(super) struct World<'a> {
    pub(super) stage: Stage<'a>,
    pub(super) actors: Vec<Actor>,
    pub(super) chronicle: Chronicle,
    pub(super) classes: Classes,
    /// The rules of faults at the backend, by the number of the fault.
    gate: Brief<Vec<(usize, Gate)>>,
    /// What people have patched to Retain, by claim.
    pub(super) kept: Brief<BTreeMap<String, Kept>>,
    /// Somebody else's finalizers on volumes.
    pub(super) holds: Holds,
    /// Held while a fault befalls a part of the control plane.
    pub(super) turn: Mutex<()>,
    /// How often etcd was put back.
    pub(super) restored: watch::Sender<usize>,
    /// The rules for calls about claims at which the backend always fails.
    failing: Vec<Gate>,
}

/// A volume that people have patched to Retain.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) volume: String,
    /// Whether they have deleted it, and only the asset is left.
    pub(super) dropped: bool,
}

/// A replica and what stands between it and the API server.
pub(super) struct Actor {
    pub(super) name: String,
    pub(super) replica: Mutex<Replica>,
    pub(super) proxy: Proxy,
    /// Where it runs, if it has a network of its own.
    pub(super) namespace: Option<Namespace>,
    /// Its wall clock, if that can be set.
    clock: Option<Clock>,
    /// The process whose end was told last.
    told: AtomicU32,
    /// The rules of faults, by the number of the fault.
    rules: Brief<Vec<(usize, Rule)>>,
}

/// The classes of the load, by name.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    pub(super) plain: String,
    pub(super) retained: String,
    pub(super) waiting: String,
}

/// How the replicas of a run are made, and what is expected of them.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How long everything may take to come to its end, once nothing is broken any more.
    pub settle: Duration,
    /// The control whose plan this is for, by its bug.
    pub control: Option<String>,
    /// The known bug that they have.
    pub bug: Option<String>,
    /// Keys laid over their configuration.
    pub keys: Value,
    /// Invariants that the plan breaks on purpose.
    pub tolerated: &'static [Invariant],
}

impl<'a> World<'a> {
    /// Starts everything, and waits until somebody leads.
    pub(super) async fn start(
        plane: &'a ControlPlane,
        ledger: &Path,
        plan: &Plan,
        setting: &Setting,
    ) -> Result<Self> {
        let profile = if setting.bug.is_some() { Profile::KnownBugs } else { Profile::Dev };
        let setup = Setup { profile, ..Setup::with(keys(&setting.keys)) };
        let stage = Stage::empty(Scope::new(plane).await?, ledger, setup).await?;
        let classes = Classes::create(&stage).await?;
        let failing = always(plan);
        let mut world = Self {
            stage,
            actors: Vec::new(),
            chronicle: Chronicle::default(),
            classes,
            gate: Brief::default(),
            restored: watch::Sender::default(),
            kept: Brief::default(),
            holds: Holds::default(),
            turn: Mutex::default(),
            failing,
        };
        world.set_gate(0, None)?;
        for number in 0..plan.replicas {
            let actor = world.actor(number, plan, setting).await?;
            world.actors.push(actor);
        }
        for actor in &world.actors {
            actor.replica.lock().await.wait_ready(DEADLINE).await?;
        }
        world.wait_leader().await?;
        Ok(world)
    }

    async fn actor(&self, number: usize, plan: &Plan, setting: &Setting) -> Result<Actor> {
        let (scope, name) = (&self.stage.scope, format!("r{number}"));
        let namespace = if plan.cuts_wires() { Some(Namespace::create()?) } else { None };
        let host = namespace.as_ref().map_or(Ipv4Addr::LOCALHOST, Namespace::host);
        let log = scope.directory().join(format!("{name}-proxy.jsonl"));
        let proxy = Proxy::start_on(host, scope.plane(), &log).await?;
        let clock = self.clock(&name, number, plan)?;
        let mut spec = self.stage.spec(&name, Some(&proxy.server())).await?;
        spec.kubeconfig = scope.replica_kubeconfig(&name, Some(&proxy.server())).await?;
        spec.env.push((ASKED.0.to_owned(), ASKED.1.to_owned()));
        spec.env.extend(setting.bug.iter().map(|bug| (KNOWN_BUG.to_owned(), bug.clone())));
        spec.env.extend(clock.iter().flat_map(Clock::env));
        let spec = match &namespace {
            Some(namespace) => namespace.enter(spec),
            None => spec,
        };
        let replica = Replica::start(scope, spec)?;
        self.chronicle.tell(&name, What::Started { pid: replica.pid() });
        let (told, rules) = (AtomicU32::default(), Brief::default());
        // A clock that runs at a wrong rate can't be set.
        let clock = clock.filter(|_| plan.crystal(number).is_none());
        Ok(Actor { name, replica: Mutex::new(replica), proxy, namespace, clock, told, rules })
    }

    fn clock(&self, name: &str, number: usize, plan: &Plan) -> Result<Option<Clock>> {
        let file = self.stage.scope.directory().join(format!("{name}-clock"));
        match plan.crystal(number) {
            Some(rate) => Clock::machine(&file, f64::from(rate) / 100.0).map(Some),
            None if plan.sets_clocks() => Clock::wall(&file).map(Some),
            None => Ok(None),
        }
    }

    async fn wait_leader(&self) -> Result<()> {
        let lease = self.stage.scope.provisioner().replace('/', "-");
        let led = |lease: &Lease| self.holder(lease).is_some();
        crate::wait::until(&self.stage.leases(), &lease, DEADLINE, led).await.map(drop)
    }

    /// The place of the replica that holds the Lease, if the API server tells.
    pub(super) async fn leader(&self) -> Option<usize> {
        let name = self.stage.scope.provisioner().replace('/', "-");
        let asked = tokio::time::timeout(super::work::PATIENCE, self.stage.leases().get(&name)).await;
        self.holder(&asked.ok()?.ok()?)
    }

    fn holder(&self, lease: &Lease) -> Option<usize> {
        let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
        self.actors.iter().position(|actor| {
            let rest = holder.strip_prefix(&*actor.name);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        })
    }

    /// The rules of this fault at the backend; `None` takes them away.
    pub(super) fn set_gate(&self, fault: usize, rule: Option<Gate>) -> Result<()> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.retain(|(of, _)| *of != fault);
        gate.extend(rule.map(|rule| (fault, rule)));
        let all = self.failing.iter().chain(gate.iter().map(|(_, rule)| rule)).cloned();
        self.stage.ledger.set(&all.collect::<Vec<_>>())
    }

    /// What the replicas have of the machine's resources, by name.
    pub(super) async fn tell_sizes(&self) -> Result<()> {
        for actor in &self.actors {
            let pid = actor.replica.lock().await.pid();
            let (threads, files) = (procfs::threads(pid)?, procfs::open_files(pid)?);
            let resident = procfs::resident_bytes(pid)?;
            self.chronicle.tell(&actor.name, What::Size { threads, files, resident });
        }
        Ok(())
    }

    /// The actor at this place.
    pub(super) fn actor_at(&self, place: usize) -> Result<&Actor> {
        self.actors.get(place).with_context(|| format!("there is no replica {place}"))
    }
}

impl Actor {
    /// The rules of this fault at the proxy; `None` takes them away.
    pub(super) fn set_rule(&self, fault: usize, rule: Option<Rule>) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.retain(|(of, _)| *of != fault);
        rules.extend(rule.map(|rule| (fault, rule)));
        self.proxy.set(rules.iter().map(|(_, rule)| rule.clone()).collect());
    }

    /// Puts its wall clock wrong by so many seconds, at a rate in percent.
    pub(super) fn set_clock(&self, offset: i64, rate: u32) -> Result<()> {
        self.clock.as_ref().map_or(Ok(()), |clock| clock.set(offset, f64::from(rate) / 100.0))
    }

    /// Tells of the end of its process, once.
    pub(super) fn tell_exit(&self, replica: &Replica, chronicle: &Chronicle) {
        let Some(status) = replica.exit_status() else { return };
        if self.told.swap(replica.pid(), Ordering::Relaxed) != replica.pid() {
            chronicle.tell(&self.name, What::Exited { status: status.to_string() });
        }
    }

    /// Starts the replica again if it has ended.
    pub(super) async fn revive(&self, chronicle: &Chronicle) -> Result<()> {
        let mut replica = self.replica.lock().await;
        self.tell_exit(&replica, chronicle);
        if replica.exit_status().is_some() {
            replica.restart()?;
            chronicle.tell(&self.name, What::Started { pid: replica.pid() });
        }
        Ok(())
    }
}

impl Classes {
    async fn create(stage: &Stage<'_>) -> Result<Self> {
        let retain = stage.class("retained", |class| class.reclaim_policy = Some("Retain".to_owned()));
        let waiting = stage
            .class("waiting", |class| class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned()));
        Ok(Self {
            plain: stage.class("plain", |_| ()).await?,
            retained: retain.await?,
            waiting: waiting.await?,
        })
    }
}

/// How the backend treats some claims, whatever else happens to it.
fn always(plan: &Plan) -> Vec<Gate> {
    let rule = |claim: &str| Gate::on("provision").claim(claim);
    let fails = Conduct::answer("failed", "this is a claim to fail at");
    let takes_its_time =
        Conduct::words(Words::Outcome("background".to_owned(), "it is being made".to_owned()));
    let failing = plan.claims(Kind::Failing).map(|claim| rule(claim).conduct(fails.clone()));
    let slow = plan.claims(Kind::Stranded).map(|claim| rule(claim).first(3).conduct(takes_its_time.clone()));
    failing.chain(slow).collect()
}

/// Everything short, so that a run is.
fn keys(over: &Value) -> Value {
    let mut keys = json!({
        "logFormat": "json",
        "provisionTimeout": "4s", "deletionTimeout": "4s",
        "auditInterval": "1s", "orphans": "auto",

    });
    if let (Some(keys), Some(over)) = (keys.as_object_mut(), over.as_object()) {
        keys.extend(over.clone());
    }
    keys
}
