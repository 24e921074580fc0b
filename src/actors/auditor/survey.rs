//! One look at all assets: list, drop what is known or marked otherwise, then the live reads.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    cluster::{CallError, Calls},
    known_bugs::{self, Bug},
    lifecycle::orphan::{self, Spared, Users},
    provisioner::{Asset, Call, Provisioner},
};

/// How long a backend may take for one page.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// Pages of one survey. A backend that never ends is cut off here.
const PAGES: usize = 10_000;

/// What is surveyed.
#[derive(Clone)]
pub struct Subject {
    /// The backend.
    pub provisioner: Arc<dyn Provisioner>,
    /// The provisioner name.
    pub name: Arc<str>,
    /// Names this cluster and provisioner.
    pub installation: Arc<str>,
    /// The calls to the API server.
    pub calls: Calls,
}

/// What a survey saw.
#[derive(Debug, Default)]
pub struct Survey {
    /// How many assets there are.
    pub assets: usize,
    /// Assets of ours that belong to nothing.
    pub unclaimed: Vec<Asset>,
    /// Assets that are left alone, and why.
    pub spared: Vec<(Asset, Spared)>,
    /// The newest version of a claim that a mark of ours carries.
    pub newest_mark: u64,
    /// That version, if the claims have not reached it: the store was restored from a backup.
    pub ahead: Option<u64>,
}

impl Subject {
    /// Looks at all assets. `unknown_among` drops those that are known to belong to something, without a
    /// read; for what is left the cluster is read live.
    ///
    /// # Errors
    /// A message saying what could not be read. Nothing can be concluded then.
    pub async fn survey<F>(
        &self,
        epoch: u64,
        unknown_among: impl FnOnce(Vec<Asset>) -> F,
    ) -> Result<Survey, String>
    where
        F: Future<Output = Vec<Asset>>,
    {
        let mut survey = Survey::default();
        let mut suspects = Vec::new();
        for asset in self.list(epoch).await? {
            survey.assets += 1;
            survey.newest_mark = survey.newest_mark.max(orphan::marked_version(&asset, &self.installation));
            match orphan::suspect(&asset, &self.installation) {
                Ok(()) => suspects.push(asset),
                Err(why) => survey.spared.push((asset, why)),
            }
        }
        let unknown = unknown_among(suspects).await;
        if !unknown.is_empty() {
            self.read_live(unknown, &mut survey).await.map_err(|error| error.to_string())?;
        }
        Ok(survey)
    }

    /// Compares the newest mark of a survey with the version of the claims now, which in one history is higher: the
    /// marks were read before it.
    ///
    /// # Errors
    /// A message saying what could not be read.
    pub async fn compare(&self, survey: &Survey) -> Result<Option<u64>, String> {
        if survey.newest_mark == 0 {
            return Ok(None);
        }
        let now = self.calls.claims_mark().await.map_err(|error| error.to_string())?;
        Ok(Some(survey.newest_mark).filter(|mark| *mark > now))
    }

    async fn list(&self, epoch: u64) -> Result<Vec<Asset>, String> {
        let (mut assets, mut page) = (Vec::new(), None);
        for _ in 0..PAGES {
            let call = self.call(epoch);
            let listed = tokio::time::timeout(PAGE_LIMIT, self.provisioner.list(page, &call)).await;
            let listed = listed
                .map_err(|_| format!("the backend did not list its assets within {PAGE_LIMIT:?}"))?
                .map_err(|error| format!("the backend could not list its assets: {error}"))?;
            assets.extend(listed.assets);
            page = listed.next;
            if page.is_none() {
                return Ok(assets);
            }
        }
        Err(format!("the backend's list did not end within {PAGES} pages"))
    }

    fn call(&self, epoch: u64) -> Call {
        Call {
            provisioner: self.name.clone(),
            installation: self.installation.clone(),
            epoch,
            deadline: SystemTime::now() + PAGE_LIMIT,
            traceparent: None,
        }
    }

    async fn read_live(&self, unknown: Vec<Asset>, survey: &mut Survey) -> Result<(), CallError> {
        if known_bugs::is(Bug::NoAuditGrace) {
            survey.unclaimed = unknown;
            return Ok(());
        }
        let users = self.calls.users().await?;
        for asset in unknown {
            match protected(&self.calls, &users, &asset).await? {
                None => survey.unclaimed.push(asset),
                Some(why) => survey.spared.push((asset, why)),
            }
        }
        Ok(())
    }
}

/// What an asset belongs to now, read live; `None`: to nothing.
///
/// # Errors
/// [`CallError`]
pub async fn protection(calls: &Calls, asset: &Asset) -> Result<Option<Spared>, CallError> {
    protected(calls, &calls.users().await?, asset).await
}

async fn protected(calls: &Calls, users: &Users, asset: &Asset) -> Result<Option<Spared>, CallError> {
    if let Some(volume) = users.protector(asset) {
        return Ok(Some(Spared::UsedBy(volume)));
    }
    let Some(claim) = &asset.claim else { return Ok(Some(Spared::NoMark)) };
    let lives = calls.claim_lives(claim).await?;
    Ok(lives.then(|| Spared::ClaimLives(format!("{}/{}", claim.namespace, claim.name))))
}
