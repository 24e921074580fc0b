//! What the demo does, in its order, and what it says to people who have never seen a provisioner.

use std::{
    fs,
    ops::RangeInclusive,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::{
    leftovers,
    mistyped::Mistyped,
    observe::{Observer, Subjects},
    screen::Screen,
    stage::{CLASS, NAMESPACE, PROVISIONER, Stage},
    summary::{self, Summary},
    table::{self, Goal},
    world::{Tenure, World},
};
use crate::{cluster, control_plane::ControlPlane, http};

/// Where the claims are: the namespace that kubectl takes by default.
const CLAIMS: &str = "default";

const BATCH: usize = 20;
const CLAIMS_IN_ALL: usize = BATCH * 2;

/// So many claims of the second batch are there when the leader is killed.
const BEFORE_THE_KILL: usize = BATCH / 2;

/// For each thing that is waited for. On an idle machine all take seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the picture's clock moves on.
const REDRAW_EVERY: Duration = Duration::from_millis(50);

/// Spans are sent a moment after they end.
const TRACE_WITHIN: Duration = Duration::from_secs(15);

/// The leader that was killed.
struct Killed {
    leader: String,
    at: Instant,
}

/// The demo while it runs.
pub(super) struct Story<'a> {
    pub(super) screen: &'a mut Screen,
    pub(super) summary: &'a mut Summary,
    plane: &'a ControlPlane,
    stage: Stage<'a>,
    observer: Observer,
    claims: Api<PersistentVolumeClaim>,
    /// Whose end is no surprise.
    victim: Option<String>,
}

impl<'a> Story<'a> {
    /// Prepares the cluster, which takes a moment.
    pub(super) async fn begin(
        plane: &'a ControlPlane,
        screen: &'a mut Screen,
        summary: &'a mut Summary,
    ) -> Result<Self> {
        let client: Client = plane.client().await?;
        let subjects = Subjects { claims: CLAIMS, provisioner: PROVISIONER, lease: NAMESPACE };
        let stage = Stage::set(plane).await.context("cannot prepare the cluster")?;
        let observer = Observer::start(&client, &subjects);
        let claims = Api::namespaced(client, CLAIMS);
        Ok(Self { screen, summary, plane, stage, observer, claims, victim: None })
    }

    /// All of it.
    pub(super) async fn tell(&mut self, program: &Path) -> Result<()> {
        self.start_replicas(program).await?;
        self.first_claims().await?;
        self.explain(program).await?;
        let killed = self.kill_the_leader().await?;
        let claim_uid = self.takeover(&killed).await?;
        self.delete_everything().await?;
        self.find_trace(&claim_uid).await
    }

    async fn start_replicas(&mut self, program: &Path) -> Result<()> {
        self.screen.heading("3. Three replicas of the provisioner");
        self.screen.say("Applied from deploy/: a service account, its least permissions, the storage class \"directory\".");
        self.screen.say(
            "Each replica runs under a token of that account. All of them watch the cluster; one may act:",
        );
        self.screen.say(
            "the one that holds the Lease, a small object that it must renew before it runs out (3 s here).",
        );
        self.stage.start_replicas(program).await?;
        self.until("no replica took the Lease", |world| world.leader().is_some()).await?;
        for row in self.stage.rows(self.observer.world().leader()) {
            let role = if row.role == table::Role::Leader { "leads" } else { "stands by" };
            self.screen.done(&format!("{} (pid {}) {role}", row.name, row.pid));
        }
        Ok(())
    }

    async fn first_claims(&mut self) -> Result<()> {
        self.screen.heading("4. Twenty claims");
        self.screen
            .say("A claim asks for storage. The leader makes a directory and a PersistentVolume for each,");
        self.screen.say("then Kubernetes binds the two.");
        let started = Instant::now();
        self.create(1..=BATCH).await?;
        self.until_counted("Bound", BATCH, started, World::bound).await?;
        self.summary.first_batch = Some(started.elapsed());
        let spread = summary::spread(&self.observer.world().waits(|_| true));
        self.screen.done(&format!(
            "{BATCH} claims Bound in {:.1} s; a claim waited: {spread}",
            started.elapsed().as_secs_f32()
        ));
        Ok(())
    }

    async fn explain(&mut self, program: &Path) -> Result<()> {
        self.screen.heading("5. A claim that would wait for ever");
        self.screen
            .say("Its class names a provisioner with a letter missing, so nobody makes a volume for it.");
        self.screen.say("Kubernetes only says that it is waiting. The program says why, and what to do:");
        let claim = Mistyped::create(&self.stage.scope, program).await?;
        self.screen.say(&format!("$ {}", Mistyped::command()));
        for line in claim.in_words().await?.lines() {
            self.screen.say(&format!("  {line}"));
        }
        self.summary.explained = Some(claim.as_data().await?);
        claim.remove().await?;
        self.screen.done("the claim and its class are removed again");
        Ok(())
    }

    /// Half of the claims are there before, half come after: whatever the leader managed, its successor has work.
    async fn kill_the_leader(&mut self) -> Result<Killed> {
        self.screen.heading("6. Twenty more, and the leader is killed on the way");
        self.screen.say(
            "SIGKILL: it can't say goodbye; it may leave half-made volumes, and leaves a Lease in its name.",
        );
        self.screen.say("A standby has to wait until that Lease has run out: the dead might only be slow.");
        let second = BATCH + 1;
        self.create(second..=BATCH + BEFORE_THE_KILL).await?;
        self.until("the leader makes no volumes", move |world| {
            world.any_provisioned(|name| name >= claim_name(second).as_str())
        })
        .await?;
        let world = self.observer.world();
        let leader = world.leader().context("nobody leads")?.to_owned();
        self.victim = Some(leader.clone());
        let at = Instant::now();
        self.stage.replica(&leader)?.kill().await?;
        self.screen.say(&format!("✗ {leader} is dead; {} claims were Bound.", world.bound()));
        self.summary.killed = Some(leader.clone());
        self.create(BATCH + BEFORE_THE_KILL + 1..=CLAIMS_IN_ALL).await?;
        Ok(Killed { leader, at })
    }

    /// Waits for all claims, and returns the UID of the first that the successor provisioned.
    async fn takeover(&mut self, killed: &Killed) -> Result<String> {
        self.until_counted("Bound", CLAIMS_IN_ALL, killed.at, World::bound).await?;
        let world = self.observer.world();
        let tenure: &Tenure = world.successor_of(&killed.leader).context("nobody took the Lease over")?;
        let first = world.first_volume_of(tenure).context("the successor made no volume")?;
        let takeover = first.seen.duration_since(killed.at);
        self.screen.done(&format!("all {CLAIMS_IN_ALL} claims are Bound"));
        self.screen.done(&format!(
            "{} took over: {:.2} s from the kill to its first volume",
            tenure.replica,
            takeover.as_secs_f32()
        ));
        self.summary.takeover = Some(takeover);
        self.summary.successor = Some(tenure.replica.clone());
        self.stage.restart(&killed.leader).await?;
        self.victim = None;
        self.screen.done(&format!(
            "{} was started again and stands by, as a Deployment would have it",
            killed.leader
        ));
        Ok(first.claim_uid.clone())
    }

    async fn delete_everything(&mut self) -> Result<()> {
        self.screen.heading("7. Everything is deleted");
        self.screen.say(
            "A volume's directory goes first, then its PersistentVolume: nothing may be left, also of what",
        );
        self.screen.say("the dead leader had begun.");
        let started = Instant::now();
        for number in 1..=CLAIMS_IN_ALL {
            cluster::delete(&self.claims, &claim_name(number)).await?;
        }
        let gone = self.until_counted("gone", CLAIMS_IN_ALL, started, World::gone).await;
        self.summary.deletion = Some(started.elapsed());
        let leaked = self.leaked().await?;
        self.summary.leaked = Some(leaked.len());
        gone?;
        ensure!(leaked.is_empty(), "left after everything was deleted: {}", leaked.join(", "));
        self.screen.done(&format!(
            "{CLAIMS_IN_ALL} claims and their volumes gone in {:.1} s; nothing is left in {}",
            started.elapsed().as_secs_f32(),
            self.stage.base.display()
        ));
        Ok(())
    }

    /// Asked anew: what the watches told might be what they missed.
    async fn leaked(&self) -> Result<Vec<String>> {
        let volumes = self.stage.scope.volumes().await?;
        let files =
            leftovers::below(&self.stage.base).context("cannot look into the directory of volumes")?;
        let volumes = volumes.into_iter().filter_map(|volume| volume.metadata.name);
        let volumes = volumes.map(|name| format!("PersistentVolume {name}"));
        Ok(volumes.chain(files.iter().map(|file| file.display().to_string())).collect())
    }

    async fn find_trace(&mut self, claim_uid: &str) -> Result<()> {
        let jaeger = self.plane.jaeger().context("there is no Jaeger")?;
        let data = jaeger.data_of(claim_uid);
        let started = Instant::now();
        let mut ticks = tokio::time::interval(REDRAW_EVERY);
        while http::get(&data).await?.status != 200 {
            ensure!(started.elapsed() < TRACE_WITHIN, "Jaeger has no trace of claim {claim_uid} ({data})");
            ticks.tick().await;
        }
        self.summary.trace = Some(jaeger.page_of(claim_uid));
        self.summary.kubeconfig = Some(self.plane.kubeconfig().to_owned());
        Ok(())
    }
}

/// The end.
impl Story<'_> {
    /// Says where to look, and what to try while all of it is up.
    pub(super) fn where_to_look(&mut self, stays_up: bool) -> Result<()> {
        let trace = self.summary.trace.clone().unwrap_or_default();
        let kubeconfig = self.plane.kubeconfig().display().to_string();
        self.screen.heading("Where to look");
        self.screen.say("The first claim that the successor served, as a trace (open it in a browser):");
        self.screen.say(&format!("    {trace}"));
        self.screen.say("The cluster, for kubectl:");
        self.screen.say(&format!("    export KUBECONFIG={kubeconfig}"));
        if !stays_up {
            self.screen.say("Both are gone in a moment; with --keep they stay up.");
            return Ok(());
        }
        self.invite_to_try()
    }

    fn invite_to_try(&mut self) -> Result<()> {
        let example = self.stage.scope.directory().join("claim.json");
        let text = serde_json::to_string_pretty(&claim("first"))?;
        fs::write(&example, text).with_context(|| format!("cannot write {}", example.display()))?;
        self.screen.say("A claim of your own, and the replicas' logs:");
        self.screen.say(&format!("    kubectl apply -f {} && kubectl get pvc,pv", example.display()));
        self.screen.say(&format!("    tail -f {}/*.log", self.stage.scope.directory().display()));
        self.screen.heading("Everything stays up until Ctrl-C.");
        Ok(())
    }

    /// The ends of the replicas' logs, for a demo that failed.
    pub(super) fn log_tails(&self) -> String {
        self.stage.log_tails()
    }
}

/// Its tools.
impl Story<'_> {
    async fn create(&self, numbers: RangeInclusive<usize>) -> Result<()> {
        for number in numbers {
            let claim = serde_json::from_value(claim(&claim_name(number)))?;
            cluster::create(&self.claims, &claim).await?;
        }
        Ok(())
    }

    /// Waits for something that needs no picture.
    async fn until(&mut self, otherwise: &str, done: impl Fn(&World) -> bool) -> Result<()> {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                if done(&self.observer.world()) {
                    return Ok(());
                }
                self.all_run()?;
                self.observer.changed().await?;
            }
        });
        waited.await.unwrap_or_else(|_| bail!("{otherwise} within {PATIENCE:?}"))
    }

    /// Waits until `count` has reached `total`, and shows how it goes since `started`.
    async fn until_counted(
        &mut self,
        word: &'static str,
        total: usize,
        started: Instant,
        count: fn(&World) -> usize,
    ) -> Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut redraw = tokio::time::interval(REDRAW_EVERY);
        redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let world = self.observer.world();
            let goal = Goal { word, done: count(&world), total, elapsed: started.elapsed() };
            self.summary.bound = world.bound();
            self.show(&world, &goal);
            if goal.done >= total {
                self.screen.settle();
                return Ok(());
            }
            self.all_run()?;
            ensure!(tokio::time::Instant::now() < deadline, "only {}", table::sentence(&goal));
            redraw.tick().await;
        }
    }

    fn show(&mut self, world: &World, goal: &Goal) {
        let rows = self.stage.rows(world.leader());
        let picture = || table::picture(&rows, world, goal);
        self.screen.progress(picture, || table::sentence(goal), table::quarters(goal));
    }

    fn all_run(&self) -> Result<()> {
        for replica in &self.stage.replicas {
            if let (Some(status), true) =
                (replica.exit_status(), self.victim.as_deref() != Some(replica.name()))
            {
                bail!("{} ended by itself ({status})", replica.name());
            }
        }
        Ok(())
    }
}

fn claim_name(number: usize) -> String {
    format!("demo-{number:02}")
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name },
        "spec": {
            "storageClassName": CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Mi" } },
        },
    })
}
