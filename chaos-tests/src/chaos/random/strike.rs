//! How faults are done to a running world, and undone.

use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    fault::{Act, Fate, Fault, Manner, Target},
    world::{Actor, World},
};
use crate::{
    binaries::Program,
    chaos::crash::kill_with_programs,
    control_plane::Snapshot,
    history::What,
    ledger::{Conduct, Rule as Gate, Words},
    nemesis::{limits::Limit, network::Namespace, store},
    proxy::{Action, Rule},
};

/// A replica that was asked to end and does not, perhaps because it stands still, is killed then.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a server that was killed has sent is read by then.
const ON_ITS_WAY: Duration = Duration::from_millis(200);
/// A new start of the API server may take longer than a plan has it: the faults of the control plane wait for each other,
/// and one that has waited for longer than it was to last, and so many milliseconds, is left out.
const LATEST: u64 = 1_000;
/// More than the program reads of an answer.
const FLOOD: usize = 2 << 20;

/// Whom a fault befell.
enum Victim<'w> {
    Replica(&'w Actor),
    Part(Program),
    Backend,
}

/// What a fault needs to end.
enum Held {
    Nothing,
    Snapshot(Snapshot),
    Limit(Limit),
    /// The process that was to end. Another fault may have ended it earlier, and started the next.
    Process(u32),
}

/// Lets one fault of a plan begin and end at its times, counted from `began`.
///
/// # Errors
/// If it can't be done or undone.
pub(super) async fn carry_out(world: &World<'_>, fault: &Fault, began: Instant) -> Result<()> {
    sleep_until(began + Duration::from_millis(fault.from)).await;
    let _turn = if fault.target.program().is_some() { Some(world.turn.lock().await) } else { None };
    if began.elapsed() > Duration::from_millis(fault.to.max(fault.from + LATEST)) {
        return Ok(());
    }
    let victim = find(world, fault).await?;
    tell(world, fault, &victim, false);
    let held = begin(world, fault, &victim).await?;
    sleep_until(began + Duration::from_millis(fault.to)).await;
    end(world, fault, &victim, held).await?;
    tell(world, fault, &victim, true);
    Ok(())
}

fn tell(world: &World<'_>, fault: &Fault, victim: &Victim<'_>, over: bool) {
    let target = match victim {
        Victim::Replica(actor) => actor.name.clone(),
        Victim::Part(program) => program.name().to_owned(),
        Victim::Backend => "backend".to_owned(),
    };
    let kind = match (victim, &fault.act) {
        (Victim::Part(program), Act::Kill { .. } | Act::Pause) => {
            format!("{}-{}", fault.act.kind(), program.name())
        }
        _ => fault.act.kind(),
    };
    world.chronicle.tell("nemesis", What::Fault { number: fault.number, kind, target, over });
}

async fn find<'w>(world: &'w World<'_>, fault: &Fault) -> Result<Victim<'w>> {
    if let Some(program) = fault.target.program() {
        return Ok(Victim::Part(program));
    }
    let all = world.actors.len().max(1);
    // If nobody is known to lead, the choice is still not of one replica alone.
    let place = match fault.target {
        Target::Backend => return Ok(Victim::Backend),
        Target::Replica(place) => place % all,
        Target::Leader => world.leader().await.unwrap_or(fault.number % all),
        Target::Standby => (world.leader().await.unwrap_or(fault.number) + 1) % all,
        Target::ApiServer | Target::Etcd | Target::ControllerManager => 0,
    };
    world.actor_at(place).map(Victim::Replica)
}

async fn begin(world: &World<'_>, fault: &Fault, victim: &Victim<'_>) -> Result<Held> {
    let plane = world.stage.scope.plane();
    match (victim, &fault.act) {
        (Victim::Part(_), Act::Restore) => return Ok(Held::Snapshot(plane.snapshot().await?)),
        (Victim::Part(_), Act::Compact) => drop(store::compact(plane).await),
        (Victim::Part(_), Act::Forget) => drop(store::forget(plane).await),
        (Victim::Part(program), Act::Pause) => plane.pause(*program)?,
        (Victim::Part(program), _) => plane.kill(*program)?,
        (Victim::Replica(actor), act) => return begin_at(world, actor, fault.number, act).await,
        (Victim::Backend, Act::Calls { operation, conduct, first }) => {
            let rule = Gate::on(operation).conduct(conduct.conduct());
            let rule = first.map_or(rule.clone(), |first| rule.first(first));
            world.set_gate(fault.number, Some(rule))?;
        }
        (Victim::Backend, _) => {}
    }
    Ok(Held::Nothing)
}

/// A replica that another fault has ended already takes no signal, and needs none.
async fn begin_at(world: &World<'_>, actor: &Actor, number: usize, act: &Act) -> Result<Held> {
    match act {
        Act::Kill { programs } => {
            let replica = actor.replica.lock().await;
            if replica.exit_status().is_none() {
                let _ = if *programs {
                    kill_with_programs(&replica).await
                } else {
                    replica.kill().await.map(drop)
                };
            }
            actor.tell_exit(&replica, &world.chronicle);
            return Ok(Held::Process(replica.pid()));
        }
        Act::Terminate => {
            let replica = actor.replica.lock().await;
            let _ = replica.signal(Signal::TERM);
            return Ok(Held::Process(replica.pid()));
        }
        Act::Pause => drop(actor.replica.lock().await.pause()),
        Act::Requests { verb, resource, fate, first } => {
            let rule = Rule::on(verb, resource).action(fate.action());
            actor.set_rule(number, Some(first.map_or(rule.clone(), |first| rule.first(first))));
        }
        Act::Freeze(resource) => actor.proxy.freeze(resource),
        Act::Late(resource, millis) => actor.proxy.delay_watch(resource, Duration::from_millis(*millis)),
        Act::HalfOpen(resource) => drop(actor.proxy.half_open(resource)),
        Act::Cut(resource) => drop(actor.proxy.cut_watches(resource)),
        Act::Expire(resource) => {
            actor.set_rule(number, Some(Rule::on("watch", resource).action(Action::Answer(410))));
            let _ = actor.proxy.cut_watches(resource);
        }
        Act::Clock { offset, rate } => actor.set_clock(*offset, *rate)?,
        Act::Wire(wire) => {
            let (way, manner) = wire.cut();
            actor.namespace.as_ref().map_or(Ok(()), |namespace| namespace.cut(way, manner))?;
        }
        Act::Files(spare) => return Ok(limited(Limit::files(&*actor.replica.lock().await, *spare))),
        Act::Memory(spare) => return Ok(limited(Limit::memory(&*actor.replica.lock().await, *spare))),
        Act::Crystal(_) | Act::Calls { .. } | Act::Compact | Act::Forget | Act::Restore => {}
    }
    Ok(Held::Nothing)
}

fn limited(limit: Result<Limit>) -> Held {
    limit.map_or(Held::Nothing, Held::Limit)
}

async fn end(world: &World<'_>, fault: &Fault, victim: &Victim<'_>, held: Held) -> Result<()> {
    let plane = world.stage.scope.plane();
    match (victim, &fault.act, held) {
        (_, _, Held::Snapshot(snapshot)) => restore(world, &snapshot).await,
        (Victim::Part(_), Act::Compact | Act::Forget, _) => Ok(()),
        (Victim::Part(program), Act::Pause, _) => plane.resume(*program),
        (Victim::Part(program), ..) => plane.restart(*program).await,
        (Victim::Backend, ..) => world.set_gate(fault.number, None),
        (Victim::Replica(actor), act, held) => {
            match held {
                Held::Limit(limit) => limit.lift(),
                Held::Process(pid) => wait_end(actor, pid).await,
                Held::Nothing | Held::Snapshot(_) => {}
            }
            end_at(world, actor, fault.number, act).await
        }
    }
}

/// What was seen of the lost state must be told before the restore is, and what is seen of the older one after it.
async fn restore(world: &World<'_>, snapshot: &Snapshot) -> Result<()> {
    let plane = world.stage.scope.plane();
    plane.kill(Program::KubeApiserver)?;
    sleep(ON_ITS_WAY).await;
    world.chronicle.tell("harness", What::Restored);
    plane.restore(snapshot).await?;
    world.restored.send_modify(|times| *times += 1);
    Ok(())
}

/// Waits until this process of a replica has ended, and ends it if it does not.
async fn wait_end(actor: &Actor, pid: u32) {
    let replica = actor.replica.lock().await;
    if replica.pid() == pid && replica.wait_exit(PATIENCE).await.is_err() {
        let _ = replica.kill().await;
    }
}

async fn end_at(world: &World<'_>, actor: &Actor, number: usize, act: &Act) -> Result<()> {
    match act {
        // With too little to live on it may have ended by itself.
        Act::Kill { .. } | Act::Terminate | Act::Files(_) | Act::Memory(_) => {
            actor.revive(&world.chronicle).await?;
        }
        Act::Pause => drop(actor.replica.lock().await.resume()),
        Act::Requests { .. } | Act::Expire(_) => actor.set_rule(number, None),
        Act::Freeze(resource) => actor.proxy.thaw(resource),
        Act::Late(resource, _) => actor.proxy.delay_watch(resource, Duration::ZERO),
        Act::Clock { .. } => actor.set_clock(0, 100)?,
        Act::Wire(_) => actor.namespace.as_ref().map_or(Ok(()), Namespace::heal)?,
        Act::HalfOpen(_) | Act::Cut(_) | Act::Crystal(_) | Act::Calls { .. } => {}
        Act::Compact | Act::Forget | Act::Restore => {}
    }
    Ok(())
}

impl Fate {
    fn action(self) -> Action {
        match self {
            Self::CutBefore => Action::CutBefore,
            Self::CutAfter => Action::CutAfter,
            Self::Delay(millis) => Action::Delay(Duration::from_millis(millis)),
            Self::Answer(status) => Action::Answer(status),
        }
    }
}

impl Manner {
    fn conduct(self) -> Conduct {
        let says = |outcome: &str| Words::Outcome(outcome.to_owned(), "as the plan has it".to_owned());
        let small = serde_json::Map::from_iter([("capacity".to_owned(), "1".into())]);
        match self {
            Self::Hang => Conduct::idle(Words::Hang),
            Self::HangAfter => Conduct::words(Words::Hang),
            Self::Die => Conduct::idle(Words::Signal(9)),
            Self::DieAfter => Conduct::words(Words::Signal(9)),
            Self::Garble => Conduct::words(Words::Text("{\"outcome\": \"do".to_owned())),
            Self::Flood => Conduct::words(Words::Flood(FLOOD)),
            Self::Belittle => Conduct::words(Words::Volume(small)),
            Self::Fail => Conduct::idle(says("failed")),
            Self::Lie => Conduct::words(says("failed")),
            Self::Background => Conduct::idle(says("background")),
            Self::BackgroundAfter => Conduct::words(says("background")),
            Self::NoChange => Conduct::idle(says("noChange")),
            Self::Slow(millis) => Conduct::slow(Duration::from_millis(millis)),
            Self::Linger(millis) => Conduct::lingering(Duration::from_millis(millis)),
        }
    }
}
