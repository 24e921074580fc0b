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
    lease::{LeaderGuard, RESTORED_ANNOTATION, RestoreReport},
    lifecycle::{
        orphan::{Audit, OrphanPolicy, Round, Spared},
        tell::{About, Note, Reason},
    },
    provisioner::{Asset, Capabilities},
    telemetry::metrics::Metrics,
};

/// When to look again after a mark was found ahead of the claims: the Lease tells of it by then.
const COMPARE_AGAIN: Duration = Duration::from_secs(10);

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
    /// Where it is told that an asset's mark is ahead of the claims: the API server's store was restored.
    pub restores: Option<RestoreReport>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Metrics,
}

/// See the module.
pub struct AuditorActor {
    setup: Setup,
    leadership: Option<Leading>,
    next: Option<SpawnHandle>,
    /// The last trouble that was told in the log.
    told: Option<String>,
    /// What the Lease tells of restores of the store: volumes may be missing whose assets hold data.
    restored: Restored,
}

/// What lasts as long as a leadership.
struct Leading {
    guard: LeaderGuard,
    audit: Audit,
    /// The marks of the assets were compared with the version of the claims.
    compared: bool,
}

impl AuditorActor {
    /// An Auditor that waits for a leadership.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup, leadership: None, next: None, told: None, restored: Restored::default() }
    }

    fn begin_audit(&self) -> Audit {
        let Setup { policy, grace, capabilities, ref clock, .. } = self.setup;
        Audit::new(policy, grace, capabilities, self.restored.told.is_some(), clock.now())
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
        let Some(leading) = self.leadership.as_ref().filter(|leading| leading.guard.is_valid()) else {
            return;
        };
        let (guard, compared) = (leading.guard.clone(), leading.compared);
        let (subject, arbiter, me) = (self.setup.subject.clone(), self.setup.arbiter.clone(), ctx.address());
        tokio::spawn(async move {
            let ask =
                |suspects| async move { arbiter.send(UnknownAmong(suspects)).await.unwrap_or_default() };
            let mut survey = subject.survey(guard.epoch().number, ask).await;
            if let (Ok(seen), false) = (&survey, compared) {
                let compared = subject.compare(seen).await;
                survey = survey.and_then(|seen| compared.map(|ahead| Survey { ahead, ..seen }));
            }
            me.do_send(Surveyed { guard, survey });
        });
    }

    /// Looks at what a survey of this leadership saw; when to look again.
    fn review(&mut self, survey: Survey, now: BootTime) -> Duration {
        let Some(Leading { audit, compared, .. }) = &mut self.leadership else { return self.setup.interval };
        *compared = true;
        let Survey { assets, unclaimed, spared, .. } = survey;
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

    /// Only the leader tells: standbys write nothing but the Lease.
    fn tell_of_restore(&self) {
        if let Some(told) = &self.restored.told {
            let message = format!(
                "the API server's store was restored from a backup ({told}): orphans are only reported until the \
                 annotation {RESTORED_ANNOTATION} is taken off this Lease"
            );
            let note = Note { about: self.setup.lease.clone(), reason: Reason::StoreRestored, message };
            self.setup.recorder.do_send(Record(note));
        }
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
        let audit = self.begin_audit();
        self.leadership = changed.guard().map(|guard| Leading { guard, audit, compared: false });
        if self.leadership.is_some() {
            self.tell_of_restore();
        }
        if self.leadership.is_some() && self.setup.capabilities.list {
            self.survey_in(Duration::ZERO, ctx);
        }
    }
}

/// What the Lease tells of restores of the API server's store from a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Restored {
    /// Who found one out, and how. While that stands orphans are only reported.
    pub told: Option<String>,
    /// Marks with claims up to this version are known to be from before it.
    pub from: u64,
}

impl Handler<Restored> for AuditorActor {
    type Result = ();

    fn handle(&mut self, restored: Restored, ctx: &mut Self::Context) {
        let turned = restored.told.is_some() != self.restored.told.is_some();
        self.restored = restored;
        let audit = self.begin_audit();
        if let (Some(leading), true) = (&mut self.leadership, turned) {
            leading.audit = audit;
            self.tell_of_restore();
            self.survey_in(Duration::ZERO, ctx);
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
        let current = self.leadership.as_ref().is_some_and(|leading| leading.guard.epoch() == guard.epoch());
        if !current {
            return;
        }
        let wait = match survey {
            Ok(Survey { ahead: Some(version), .. }) if version > self.restored.from => {
                // The store was restored. If that is news, this leadership ends now.
                tracing::warn!(
                    version,
                    "an asset was made for a claim at a version that the claims have not reached"
                );
                if let Some(restores) = &self.setup.restores {
                    restores.mark_ahead(version);
                }
                self.setup.interval.min(COMPARE_AGAIN)
            }
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
