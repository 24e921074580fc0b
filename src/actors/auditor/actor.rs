//! The Auditor actor of one provisioner name: surveys while this replica leads, hands what is proven to the
//! Arbiter.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;

use super::{Subject, Survey};
use crate::{
    actors::{
        arbiter::{ArbiterActor, LeadershipChanged, RemoveOrphans, UnknownAmong},
        recorder::Record,
    },
    clock::{BootTime, Clock},
    lease::LeaderGuard,
    lifecycle::{
        orphan::{Audit, OrphanPolicy, Round, Spared},
        tell::{About, Note, Reason},
    },
    provisioner::{Asset, Capabilities},
    telemetry::metrics::Metrics,
};

/// What an Auditor is made from.
pub struct Setup {
    /// What is surveyed.
    pub subject: Subject,
    /// What the backend can do.
    pub capabilities: Capabilities,
    /// The time between two surveys.
    pub interval: Duration,
    /// Longer than the longest backend call.
    pub grace: Duration,
    /// What happens to orphans.
    pub policy: OrphanPolicy,
    /// The Lease, on which orphans are told: they have no object of their own.
    pub lease: About,
    /// Who removes orphans.
    pub arbiter: Addr<ArbiterActor>,
    /// Where people are told.
    pub recorder: Recipient<Record>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Metrics,
}

/// See the module.
pub struct AuditorActor {
    setup: Setup,
    leadership: Option<(LeaderGuard, Audit)>,
    next: Option<SpawnHandle>,
    /// The last trouble that was told in the log.
    told: Option<String>,
    /// The store went back in time: volumes may be missing whose assets hold data.
    restored: bool,
}

impl AuditorActor {
    /// An Auditor that waits for a leadership.
    #[must_use]
    pub const fn new(setup: Setup) -> Self {
        Self { setup, leadership: None, next: None, told: None, restored: false }
    }

    fn survey_in(&mut self, wait: Duration, ctx: &mut Context<Self>) {
        if let Some(handle) = self.next.take() {
            ctx.cancel_future(handle);
        }
        self.next = Some(ctx.run_later(wait, |actor, ctx| {
            actor.next = None;
            actor.survey(ctx);
        }));
    }

    fn survey(&self, ctx: &mut Context<Self>) {
        let Some((guard, _)) = self.leadership.as_ref().filter(|(guard, _)| guard.is_valid()) else { return };
        let (subject, arbiter, me) = (self.setup.subject.clone(), self.setup.arbiter.clone(), ctx.address());
        let guard = guard.clone();
        tokio::spawn(async move {
            let ask =
                |suspects| async move { arbiter.send(UnknownAmong(suspects)).await.unwrap_or_default() };
            let survey = subject.survey(guard.epoch().number, ask).await;
            me.do_send(Surveyed { guard, survey });
        });
    }

    /// Looks at what a survey of this leadership saw; when to look again.
    fn review(&mut self, survey: Survey, now: BootTime) -> Duration {
        let Some((_, audit)) = &mut self.leadership else { return self.setup.interval };
        let Survey { assets, unclaimed, spared } = survey;
        tracing::debug!(assets, spared = spared.len(), unclaimed = unclaimed.len(), "surveyed the assets");
        let Round { doomed, reported, orphans, young, again } = audit.round(unclaimed, now);
        self.show(orphans, young);
        for (asset, why) in &reported {
            self.report(asset, why);
        }
        if !doomed.is_empty() {
            doomed.iter().for_each(|asset| self.doom(asset));
            self.setup.arbiter.do_send(RemoveOrphans(doomed));
        }
        again.map_or(self.setup.interval, |at| at.saturating_since(now).min(self.setup.interval))
    }

    fn show(&self, orphans: usize, young: usize) {
        let (backend, name) = (&self.setup.metrics.backend, &*self.setup.subject.name);
        backend.orphans_seen(name, "orphan", orphans);
        backend.orphans_seen(name, "suspect", young);
    }

    fn report(&self, asset: &Asset, why: &Spared) {
        let name = &*asset.volume_name;
        self.setup.metrics.backend.orphan_found(&self.setup.subject.name, state_of(asset));
        tracing::warn!(asset = name, %why, "an orphan was found and left alone");
        let message = format!("asset {name} belongs to no volume and no claim, and is left alone: {why}");
        self.tell(message);
    }

    fn doom(&self, asset: &Asset) {
        let name = &*asset.volume_name;
        self.setup.metrics.backend.orphan_found(&self.setup.subject.name, state_of(asset));
        tracing::info!(asset = name, unused = asset.unused, "an orphan was found and is removed");
        self.tell(format!("asset {name} belongs to no volume and no claim, and is removed"));
    }

    fn tell(&self, message: String) {
        let note = Note { about: self.setup.lease.clone(), reason: Reason::OrphanedAsset, message };
        self.setup.recorder.do_send(Record(note));
    }
}

/// The word for metrics.
const fn state_of(asset: &Asset) -> &'static str {
    if asset.unused { "unused" } else { "used" }
}

impl Actor for AuditorActor {
    type Context = Context<Self>;
}

impl Handler<LeadershipChanged> for AuditorActor {
    type Result = ();

    fn handle(&mut self, changed: LeadershipChanged, ctx: &mut Self::Context) {
        let Setup { grace, capabilities, ref clock, .. } = self.setup;
        let policy = if self.restored { OrphanPolicy::Report } else { self.setup.policy };
        self.leadership =
            changed.guard().map(|guard| (guard, Audit::new(policy, grace, capabilities, clock.now())));
        if self.leadership.is_some() && capabilities.list {
            self.survey_in(Duration::ZERO, ctx);
        }
    }
}

/// The API server's store was restored from a backup: from now on orphans are only reported.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Restored;

impl Handler<Restored> for AuditorActor {
    type Result = ();

    fn handle(&mut self, _: Restored, _: &mut Self::Context) {
        self.restored = true;
        let Setup { grace, capabilities, ref clock, .. } = self.setup;
        if let Some((_, audit)) = &mut self.leadership {
            *audit = Audit::new(OrphanPolicy::Report, grace, capabilities, clock.now());
        }
    }
}

/// A survey has ended.
#[derive(Message)]
#[rtype(result = "()")]
struct Surveyed {
    guard: LeaderGuard,
    survey: Result<Survey, String>,
}

impl Handler<Surveyed> for AuditorActor {
    type Result = ();

    fn handle(&mut self, Surveyed { guard, survey }: Surveyed, ctx: &mut Self::Context) {
        let current = self.leadership.as_ref().is_some_and(|(leading, _)| leading.epoch() == guard.epoch());
        if !current {
            return;
        }
        let wait = match survey {
            Ok(survey) => {
                self.told = None;
                self.review(survey, self.setup.clock.now())
            }
            Err(reason) => {
                if self.told.as_deref() != Some(&reason) {
                    tracing::warn!(reason, "the assets could not be audited");
                    self.told = Some(reason);
                }
                self.setup.interval
            }
        };
        self.survey_in(wait, ctx);
    }
}
