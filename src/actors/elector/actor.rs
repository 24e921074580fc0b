//! The Elector actor of one provisioner name: runs the campaign beside all work, publishes its news.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use tokio::sync::watch;

use super::{Posture, Turn, role};
use crate::{
    actors::{
        arbiter::{Forget, LeadershipChanged},
        auditor::Restored,
        recorder::Record,
    },
    known_bugs::{self, Bug},
    lease::{Campaign, Epoch, LeaseState, LeaseStatus, RESTORED_ANNOTATION, Resignation, Resigned},
    lifecycle::tell::{About, Kind, Note, Reason},
    telemetry::{health::Health, metrics::Metrics},
};

/// What an Elector is made from.
pub struct Setup {
    /// The provisioner name.
    pub provisioner: Arc<str>,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub lease: String,
    /// Who is told that a leadership begins or ends, the Arbiter first.
    pub leaders: Vec<Recipient<LeadershipChanged>>,
    /// Who forgets what it knows when the API server's store went back in time.
    pub arbiter: Recipient<Forget>,
    /// Who is told what the Lease says of restores.
    pub auditor: Recipient<Restored>,
    /// Has everything listed anew.
    pub anew: Arc<watch::Sender<()>>,
    /// Where people are told.
    pub recorder: Recipient<Record>,
    /// The board that probes read. A replica that is not alive does not go on renewing.
    pub health: Health,
    /// What is counted.
    pub metrics: Metrics,
}

/// See the module.
pub struct ElectorActor {
    setup: Setup,
    resignation: Resignation,
    posture: Posture,
    /// How many restores of the API server's store were seen.
    restores: u64,
    /// What the Lease last said of them.
    restored: Restored,
}

impl ElectorActor {
    /// Starts the campaign and its Elector.
    pub fn begin(setup: Setup, campaign: Campaign) -> Addr<Self> {
        setup.health.role(&setup.provisioner, role(&campaign.status().borrow()));
        setup.metrics.leadership.stands_by(&setup.lease);
        Self::create(|ctx| {
            Self::follow(&campaign, ctx.address());
            let resignation = campaign.resignation();
            Self::run(campaign, &setup);
            Self {
                setup,
                resignation,
                posture: Posture::default(),
                restores: 0,
                restored: Restored::default(),
            }
        })
    }

    /// Passes each change on. The campaign ends with the process, and its channel with the campaign.
    fn follow(campaign: &Campaign, me: Addr<Self>) {
        let mut status = campaign.status();
        tokio::spawn(async move {
            while status.changed().await.is_ok() {
                let now = status.borrow_and_update().clone();
                me.do_send(News(now));
            }
        });
    }

    fn run(campaign: Campaign, setup: &Setup) {
        let (health, provisioner) = (setup.health.clone(), setup.provisioner.clone());
        tokio::spawn(async move {
            let alive = {
                let health = health.clone();
                move || health.live().passed()
            };
            if let Err(error) = campaign.run(alive).await {
                let reason = crate::cluster::with_sources(&error);
                tracing::error!(%provisioner, reason, "the campaign could not begin");
                health.problem(&format!("lease/{provisioner}"), Some(reason));
            }
        });
    }

    fn begun(&self, status: &LeaseStatus, guard: crate::lease::LeaderGuard) {
        let Setup { provisioner, lease, metrics, .. } = &self.setup;
        let epoch = guard.epoch().clone();
        let gap = status.takeover.map(|takeover| takeover.since_last_sign).unwrap_or_default();
        self.publish(&LeadershipChanged::Began(guard, gap));
        metrics.leadership.leads(lease, epoch.number);
        let takeover = status.takeover.map(|takeover| takeover.since_free);
        if let Some(taken) = takeover {
            metrics.leadership.took_over(lease, taken);
        }
        tracing::info!(%provisioner, lease, %epoch, identity = %status.identity, ?takeover, "leading");
        self.tell(&epoch, format!("{} became leader", status.identity));
    }

    fn ended(&self, status: &LeaseStatus, epoch: &Epoch) {
        let Setup { provisioner, lease, metrics, .. } = &self.setup;
        if !known_bugs::is(Bug::NoGuard) {
            self.publish(&LeadershipChanged::Ended);
        }
        metrics.leadership.stands_by(lease);
        tracing::info!(%provisioner, lease, %epoch, identity = %status.identity, "stopped leading");
        self.tell(epoch, format!("{} stopped leading", status.identity));
    }

    /// Before anything else follows from the same news: a new leadership works on nothing that was known before.
    fn hear_of_restores(&mut self, status: &LeaseStatus) {
        if status.restores > self.restores {
            self.restores = status.restores;
            self.setup.arbiter.do_send(Forget);
            self.setup.anew.send_replace(());
        }
        let restored = Restored { told: status.restored.clone(), from: status.restored_from };
        if restored != self.restored {
            self.tell_of_restore(&restored);
            self.setup.auditor.do_send(restored.clone());
            self.restored = restored;
        }
    }

    fn tell_of_restore(&self, now: &Restored) {
        let Setup { provisioner, lease, metrics, .. } = &self.setup;
        metrics.leadership.restored(lease, now.told.is_some());
        match &now.told {
            Some(told) if self.restored.told.as_ref() != Some(told) => {
                tracing::error!(
                    %provisioner, lease, told, annotation = RESTORED_ANNOTATION,
                    "the API server's store was restored from a backup: orphans are only reported until the annotation \
                     is taken off the Lease"
                );
            }
            None if self.restored.told.is_some() => {
                tracing::info!(%provisioner, lease, "the restore was dealt with: orphans are audited as configured");
            }
            _ => {}
        }
    }

    fn publish(&self, change: &LeadershipChanged) {
        self.setup.leaders.iter().for_each(|leader| leader.do_send(change.clone()));
    }

    fn tell(&self, epoch: &Epoch, message: String) {
        let about = About {
            kind: Kind::Lease,
            namespace: self.setup.namespace.as_str().into(),
            name: self.setup.lease.as_str().into(),
            uid: (&*epoch.lease_uid).into(),
        };
        self.setup.recorder.do_send(Record(Note::new(about, Reason::LeaderElection, message)));
    }
}

impl Actor for ElectorActor {
    type Context = Context<Self>;
}

/// The campaign's state has changed.
#[derive(Message)]
#[rtype(result = "()")]
struct News(LeaseStatus);

impl Handler<News> for ElectorActor {
    type Result = ();

    fn handle(&mut self, News(status): News, _: &mut Self::Context) {
        self.hear_of_restores(&status);
        match self.posture.turn(&status.state) {
            Turn::Begin(guard) => self.begun(&status, guard),
            Turn::End(epoch) => self.ended(&status, &epoch),
            Turn::Same => {}
        }
        let Setup { provisioner, health, .. } = &self.setup;
        if let LeaseState::NotReady { reason } = &status.state {
            tracing::warn!(%provisioner, reason, "cannot lead at present");
        }
        health.role(provisioner, role(&status));
        health.problem(&format!("lease/{provisioner}"), status.problem.clone());
    }
}

/// Give the Lease up, within this time. To be sent when leader-only work has stopped.
#[derive(Message)]
#[rtype(result = "Resigned")]
pub struct Resign(pub Duration);

impl Handler<Resign> for ElectorActor {
    type Result = ResponseFuture<Resigned>;

    fn handle(&mut self, Resign(budget): Resign, _: &mut Self::Context) -> Self::Result {
        let resignation = self.resignation.clone();
        Box::pin(async move { resignation.resign(budget).await })
    }
}
