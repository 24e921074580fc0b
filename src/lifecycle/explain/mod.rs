//! Why a claim is pending or a volume is not deleted, in words and as data.
//!
//! Pure: [`claim`] and [`volume`] judge [`facts`] by the decisions that the controller takes; `text`
//! renders. Reading the facts is done in `cluster::evidence`.

mod attempt;
mod claim;
mod consumer;
pub mod facts;
mod leader;
mod text;
mod volume;

use serde::Serialize;

use self::facts::{Moment, NotRead, Surroundings};
pub use self::{
    attempt::{Attempt, Cause, NextTry},
    claim::claim,
    leader::{Leader, Leadership},
    volume::volume,
};

/// The version of the JSON form. `docs/reference/explain.md` documents it.
pub const SCHEMA: u32 = 1;

/// The answer about one claim or volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When this was found out.
    pub explained_at: Moment,
    /// What it is about.
    pub object: Object,
    /// The provisioner whose business it is, if that is known.
    pub provisioner: Option<String>,
    /// In a word.
    pub state: State,
    /// In a sentence.
    pub summary: String,
    /// What is waited for, if anything is.
    pub waiting_for: Option<String>,
    /// Since when.
    pub since: Option<Moment>,
    /// What was last tried, as its event tells.
    pub last_attempt: Option<Attempt>,
    /// When it will be tried again, estimated.
    pub next_try: Option<NextTry>,
    /// Which replica leads.
    pub leader: Leader,
    /// What to do, the first thing first.
    pub advice: Vec<String>,
    /// What could not be read, so that it is left out here.
    pub not_read: Vec<NotRead>,
}

/// What an explanation is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// All that can be found. Stable: programs read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum State {
    /// Claim, volume: there is a claim and its volume, as should be.
    Bound,
    /// Claim: its volume exists; kube-controller-manager is to bind them.
    Binding,
    /// Claim: it is marked for deletion.
    BeingDeleted,
    /// Claim: the volume that it was bound to is gone.
    VolumeLost,
    /// Claim: its volume was deleted before the claim was bound to it, and is left alone.
    VolumeTerminating,
    /// Claim: it asks for no class, or its class makes no volumes.
    StaticOnly,
    /// Claim: its class does not exist, or it names none.
    ClassMissing,
    /// Claim: its class was remade for another provisioner.
    ClassForeign,
    /// Claim: the name of the provisioner in its class looks mistyped.
    WrongProvisionerName,
    /// Claim, volume: another provisioner's than the one asked about.
    NotOurs,
    /// Claim: kube-controller-manager has not handed it to a provisioner.
    NotNamedYet,
    /// Claim: no Pod uses it yet.
    WaitingForConsumer,
    /// Claim: its Pod names its node itself.
    SchedulerBypassed,
    /// Claim: the scheduler found no node for its Pod.
    PodUnscheduled,
    /// Claim: block volumes are not made.
    BlockUnsupported,
    /// Claim: selectors are not honoured.
    SelectorUnsupported,
    /// Claim: data sources are not read.
    DataSourceUnsupported,
    /// Claim, volume: no replica leads.
    NobodyLeads,
    /// Claim, volume: the last attempt failed; there will be another.
    BackingOff,
    /// Claim, volume: the last attempt failed at a quota.
    QuotaExceeded,
    /// Claim, volume: the last attempt failed for want of a permission.
    PermissionDenied,
    /// Claim, volume: it is the leader's turn.
    InProgress,
    /// Volume: free for a claim.
    Available,
    /// Volume: its policy keeps it.
    Retained,
    /// Volume: made by hand.
    HandMade,
    /// Volume: marked for deletion, but its claim lives.
    TerminatingWithClaim,
    /// Volume: its phase says that its claim is gone, but it lives.
    ClaimLives,
    /// Volume: it names no claim by UID.
    NeverBound,
    /// Volume: the backend says that it is in use.
    InUse,
    /// Volume: finalizers of others hold it.
    FinalizersOfOthers,
    /// Too little could be read.
    Unknown,
}

/// What was found, before the surroundings are added.
#[derive(Debug)]
struct Finding {
    state: State,
    summary: String,
    waiting_for: Option<String>,
    since: Option<Moment>,
    advice: Vec<String>,
}

impl Finding {
    fn new(state: State, summary: impl Into<String>) -> Self {
        Self { state, summary: summary.into(), waiting_for: None, since: None, advice: Vec::new() }
    }

    fn waits_for(mut self, what: impl Into<String>) -> Self {
        self.waiting_for = Some(what.into());
        self
    }

    fn since(mut self, since: impl Into<Option<Moment>>) -> Self {
        self.since = since.into();
        self
    }

    fn advise(mut self, what: impl Into<String>) -> Self {
        self.advice.push(what.into());
        self
    }

    /// Whether the leader has to act for things to go on. Otherwise who leads is beside the point.
    const fn needs_leader(&self) -> bool {
        !matches!(
            self.state,
            State::Bound
                | State::StaticOnly
                | State::NotOurs
                | State::WrongProvisionerName
                | State::VolumeLost
                | State::Available
                | State::HandMade
                | State::NobodyLeads
        )
    }
}

/// What both kinds of object are judged by.
struct Case<'a> {
    around: &'a Surroundings,
    leader: Leader,
    attempt: Option<Attempt>,
}

impl Case<'_> {
    fn explain(
        self,
        object: Object,
        provisioner: Option<String>,
        finding: Finding,
        not_read: Vec<NotRead>,
    ) -> Explanation {
        let mut finding = finding;
        if self.leader.is_missing() && finding.needs_leader() {
            finding.advice.push(format!("Besides: {}.", self.leader.describe()));
        }
        let retried = matches!(
            finding.state,
            State::BackingOff | State::QuotaExceeded | State::PermissionDenied | State::InUse
        );
        let next_try = self.attempt.as_ref().filter(|_| retried).and_then(|last| last.next(self.around.now));
        Explanation {
            schema: SCHEMA,
            explained_at: self.around.now,
            object,
            provisioner,
            state: finding.state,
            summary: finding.summary,
            waiting_for: finding.waiting_for,
            since: finding.since,
            last_attempt: self.attempt,
            next_try,
            leader: self.leader,
            advice: finding.advice,
            not_read,
        }
    }

    /// What to find when it is the leader's turn: nobody leads, the last attempt failed, or it is at work.
    /// `work` is what it has to do, `since` when that began.
    fn turn_of_leader(&self, work: &str, since: Option<Moment>) -> Finding {
        match &self.attempt {
            _ if self.leader.is_missing() => self.nobody_leads(work, since),
            Some(attempt) if attempt.failed() => attempt.finding(work),
            _ => Finding::new(State::InProgress, format!("it is the leader's turn to {work}"))
                .waits_for(format!("the provisioner to {work}"))
                .since(since)
                .advise("Wait a moment: a call of the backend may take some minutes.")
                .advise(self.leader.where_to_look()),
        }
    }

    fn nobody_leads(&self, work: &str, since: Option<Moment>) -> Finding {
        let finding = Finding::new(
            State::NobodyLeads,
            format!("nobody is there to {work}: {}", self.leader.describe()),
        )
        .waits_for("a replica that leads")
        .since(self.leader.renewed_at.or(since));
        self.leader.advice().into_iter().fold(finding, Finding::advise)
    }
}

/// All parts that could not be read.
fn missing_parts(around: &Surroundings, others: &[Option<&NotRead>]) -> Vec<NotRead> {
    let shared = [around.events.as_ref().err(), around.pods.as_ref().err(), around.leases_not_read.as_ref()];
    let single = others.iter().copied().chain(shared).flatten();
    single.chain(&around.not_read).cloned().collect()
}

#[cfg(test)]
mod tests;
