//! Whether an asset belongs to nothing any more. Each doubt spares it.
//!
//! Nothing else in the program acts on absence: deletion follows a released volume. This is for what a
//! crash left behind, when nobody remembers it.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    time::Duration,
};

use super::pv;
use crate::{
    clock::BootTime,
    provisioner::{Asset, Capabilities, ReclaimPolicy},
};

/// Why an asset is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spared {
    /// It bears no mark of an installation, or none of the claim it was made for.
    NoMark,
    /// Another cluster, or another provisioner, made it.
    OtherInstallation(String),
    /// People chose to keep it.
    Kept,
    /// It was not made to be deleted with its claim.
    Policy,
    /// This volume has its name or its source.
    UsedBy(String),
    /// The claim it was made for lives.
    ClaimLives(String),
    /// It has not been seen so for long enough: a call for it may still be under way.
    TooYoung(Duration),
    /// The audit only reports.
    ReportOnly,
    /// It may hold data, and orphans with data are only reported.
    HoldsData,
    /// The API server's store was restored: its volume may be among what was lost.
    StoreRestored,
}

impl fmt::Display for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMark => f.write_str("it bears no mark that says whose it is"),
            Self::OtherInstallation(other) => write!(f, "installation {other:?} made it"),
            Self::Kept => f.write_str("people chose to keep it"),
            Self::Policy => f.write_str("it was not made to be deleted with its claim"),
            Self::UsedBy(volume) => write!(f, "volume {volume} uses it"),
            Self::ClaimLives(claim) => write!(f, "its claim {claim} lives"),
            Self::TooYoung(rest) => {
                write!(f, "a call for it may be under way; it is looked at again in {rest:?}")
            }
            Self::ReportOnly => f.write_str("orphans are only reported (--orphans=report)"),
            Self::StoreRestored => f.write_str(
                "the API server's store was restored from a backup: orphans are only reported until the annotation \
                 kube-provisioner.dev/restored is taken off the Lease",
            ),
            Self::HoldsData => f.write_str(
                "it may hold data, and only unused orphans are deleted (--orphans=delete deletes all)",
            ),
        }
    }
}

/// What happens to orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanPolicy {
    /// Those that never held data are deleted, the others are reported.
    #[default]
    Auto,
    /// All are deleted.
    Delete,
    /// None is deleted.
    Report,
}

/// Looks at the asset alone: may it be one of our orphans at all?
///
/// # Errors
/// Why it is left alone.
pub fn suspect(asset: &Asset, installation: &str) -> Result<(), Spared> {
    match &asset.installation {
        None => return Err(Spared::NoMark),
        Some(other) if other != installation => return Err(Spared::OtherInstallation(other.clone())),
        Some(_) => {}
    }
    if asset.kept {
        return Err(Spared::Kept);
    }
    if asset.reclaim_policy != Some(ReclaimPolicy::Delete) {
        return Err(Spared::Policy);
    }
    if asset.claim.as_ref().is_none_or(|claim| claim.uid.is_empty()) {
        return Err(Spared::NoMark);
    }
    Ok(())
}

/// The version of the claim that the mark carries, if this installation made it; else 0.
#[must_use]
pub fn marked_version(asset: &Asset, installation: &str) -> u64 {
    let ours = asset.installation.as_deref() == Some(installation);
    let version = asset.claim.as_ref().filter(|_| ours).and_then(|claim| claim.resource_version.parse().ok());
    version.unwrap_or_default()
}

/// All volumes of the cluster, whoever made them, as far as they can protect an asset.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// The claim UID and the source of each volume, by its name.
    named: HashMap<String, (Option<String>, Option<serde_json::Value>)>,
    /// A volume for each source.
    sources: HashMap<String, String>,
}

impl Users {
    /// One more volume.
    pub fn add(&mut self, volume: &k8s_openapi::api::core::v1::PersistentVolume) {
        let Some(name) = volume.metadata.name.clone() else { return };
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.clone());
        let source = pv::source(volume);
        if let Some(source) = &source {
            self.sources.insert(source.to_string(), name.clone());
        }
        self.named.insert(name, (claim, source));
    }

    /// The volume that protects the asset, if one does. One of its name with another source *and* another
    /// claim does not.
    #[must_use]
    pub fn protector(&self, asset: &Asset) -> Option<String> {
        let source = asset.source.clone().and_then(pv::normalised);
        if let Some(name) = source.as_ref().and_then(|source| self.sources.get(&source.to_string())) {
            return Some(name.clone());
        }
        let (claim, used) = self.named.get(&asset.volume_name)?;
        let other_source = source.is_some() && used.is_some() && *used != source;
        let other_claim = claim.as_ref() != asset.claim.as_ref().map(|claim| &claim.uid);
        (!(other_source && other_claim)).then(|| asset.volume_name.clone())
    }
}

/// The memory of an audit under one leadership: since when each suspect has belonged to nothing.
#[derive(Debug)]
pub struct Audit {
    policy: OrphanPolicy,
    /// The Lease tells of a restore of the store.
    restored: bool,
    /// Longer than the longest backend call.
    grace: Duration,
    since: BootTime,
    suspects: HashMap<String, BootTime>,
    reported: BTreeSet<String>,
}

/// What a round of the audit found.
#[derive(Debug, Default)]
pub struct Round {
    /// Orphans to be deleted.
    pub doomed: Vec<Asset>,
    /// Orphans that are left alone, told for the first time.
    pub reported: Vec<(Asset, Spared)>,
    /// How many orphans there are, and how many suspects are too young.
    pub orphans: usize,
    /// Suspects that are too young.
    pub young: usize,
    /// When the youngest of them is old enough.
    pub again: Option<BootTime>,
}

impl Audit {
    /// An audit that begins at `since`, when this replica came to lead.
    #[must_use]
    pub fn new(
        policy: OrphanPolicy,
        grace: Duration,
        backend: Capabilities,
        restored: bool,
        since: BootTime,
    ) -> Self {
        let policy = if backend.keep { policy } else { OrphanPolicy::Report };
        Self { policy, restored, grace, since, suspects: HashMap::new(), reported: BTreeSet::new() }
    }

    /// Takes the assets that belong to nothing now. What is not among them is no suspect any more.
    pub fn round(&mut self, unclaimed: Vec<Asset>, now: BootTime) -> Round {
        let names: BTreeSet<&str> = unclaimed.iter().map(|asset| &*asset.volume_name).collect();
        self.suspects.retain(|name, _| names.contains(&**name));
        self.reported.retain(|name| names.contains(&**name));
        let mut round = Round::default();
        for asset in unclaimed {
            self.judge(asset, now, &mut round);
        }
        round
    }

    fn judge(&mut self, asset: Asset, now: BootTime, round: &mut Round) {
        let first = *self.suspects.entry(asset.volume_name.clone()).or_insert(now);
        // From first sight and from takeover: what an earlier leader had begun gets the same time.
        let ripe = first.max(self.since) + self.grace;
        if now < ripe {
            round.young += 1;
            round.again = round.again.max(Some(ripe));
            return;
        }
        round.orphans += 1;
        match self.verdict(&asset) {
            Ok(()) => round.doomed.push(asset),
            Err(why) => {
                if self.reported.insert(asset.volume_name.clone()) {
                    round.reported.push((asset, why));
                }
            }
        }
    }

    fn verdict(&self, asset: &Asset) -> Result<(), Spared> {
        match self.policy {
            _ if self.restored => Err(Spared::StoreRestored),
            OrphanPolicy::Report => Err(Spared::ReportOnly),
            OrphanPolicy::Auto if !asset.unused => Err(Spared::HoldsData),
            OrphanPolicy::Auto | OrphanPolicy::Delete => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolume;
    use serde_json::json;

    use super::*;
    use crate::provisioner::AssetClaim;

    fn asset() -> Asset {
        Asset {
            volume_name: "pvc-c1".to_owned(),
            installation: Some("here".to_owned()),
            claim: Some(AssetClaim { uid: "c1".to_owned(), ..AssetClaim::default() }),
            reclaim_policy: Some(ReclaimPolicy::Delete),
            kept: false,
            unused: true,
            source: Some(json!({"hostPath": {"path": "/base/pvc-c1", "type": "Directory"}})),
        }
    }

    fn volume(name: &str, claim: &str, path: &str) -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"claimRef": {"uid": claim}, "hostPath": {"path": path, "type": ""}},
        }))
        .unwrap()
    }

    fn at(seconds: u64) -> BootTime {
        BootTime::from_boot(Duration::from_secs(seconds))
    }

    fn audit(policy: OrphanPolicy, keep: bool) -> Audit {
        let backend = Capabilities { list: true, keep, ..Capabilities::default() };
        Audit::new(policy, Duration::from_secs(300), backend, false, at(1000))
    }

    #[test]
    fn after_a_restore_no_policy_deletes() {
        for policy in [OrphanPolicy::Auto, OrphanPolicy::Delete] {
            let mut audit = Audit { restored: true, ..audit(policy, true) };
            audit.round(vec![asset()], at(1000));
            let round = audit.round(vec![asset()], at(2000));
            assert_eq!((round.doomed, round.reported), (vec![], vec![(asset(), Spared::StoreRestored)]));
        }
    }

    #[test]
    fn only_our_own_marks_tell_a_version() {
        let claim = AssetClaim { resource_version: "42".to_owned(), ..AssetClaim::default() };
        let marked = Asset { claim: Some(claim), ..asset() };
        assert_eq!(marked_version(&marked, "here"), 42);
        assert_eq!(marked_version(&marked, "there"), 0, "another cluster counts for itself");
        assert_eq!(marked_version(&asset(), "here"), 0);
    }

    #[test]
    fn every_doubt_about_the_asset_itself_spares_it() {
        assert_eq!(suspect(&asset(), "here"), Ok(()));
        let table = [
            (Asset { installation: None, ..asset() }, Spared::NoMark),
            (
                Asset { installation: Some("there".to_owned()), ..asset() },
                Spared::OtherInstallation("there".to_owned()),
            ),
            (Asset { kept: true, ..asset() }, Spared::Kept),
            (Asset { reclaim_policy: Some(ReclaimPolicy::Retain), ..asset() }, Spared::Policy),
            (Asset { reclaim_policy: None, ..asset() }, Spared::Policy),
            (Asset { claim: None, ..asset() }, Spared::NoMark),
            (Asset { claim: Some(AssetClaim::default()), ..asset() }, Spared::NoMark),
        ];
        for (asset, expected) in table {
            assert_eq!(suspect(&asset, "here"), Err(expected));
        }
    }

    #[test]
    fn a_volume_of_its_name_or_of_its_source_protects_an_asset() {
        let protector = |volume: PersistentVolume| {
            let mut users = Users::default();
            users.add(&volume);
            users.protector(&asset())
        };
        assert_eq!(protector(volume("pvc-c1", "c1", "/base/pvc-c1")).as_deref(), Some("pvc-c1"));
        assert_eq!(
            protector(volume("re-homed", "other", "/base/pvc-c1")).as_deref(),
            Some("re-homed"),
            "a static volume of another name"
        );
        assert_eq!(protector(volume("pvc-c1", "c1", "/elsewhere")).as_deref(), Some("pvc-c1"));
        assert_eq!(protector(volume("pvc-c1", "other", "/elsewhere")), None);
        assert_eq!(protector(volume("unrelated", "other", "/elsewhere")), None);
    }

    #[test]
    fn an_asset_whose_backend_tells_no_source_is_protected_by_its_name() {
        let mut users = Users::default();
        users.add(&volume("pvc-c1", "other", "/elsewhere"));
        assert!(users.protector(&Asset { source: None, ..asset() }).is_some());
    }

    #[test]
    fn an_orphan_ripens_from_first_sight_and_from_takeover() {
        let mut audit = audit(OrphanPolicy::Auto, true);
        let round = audit.round(vec![asset()], at(900));
        assert_eq!((round.young, round.again), (1, Some(at(1300))));
        assert_eq!(audit.round(vec![asset()], at(1299)).young, 1);
        assert_eq!(audit.round(vec![asset()], at(1300)).doomed, [asset()]);
    }

    #[test]
    fn what_belonged_to_something_in_between_begins_anew() {
        let mut audit = audit(OrphanPolicy::Auto, true);
        audit.round(vec![asset()], at(1000));
        audit.round(vec![], at(1200));
        assert_eq!(audit.round(vec![asset()], at(1400)).young, 1);
    }

    #[test]
    fn the_policy_says_what_happens_to_orphans() {
        let used = Asset { unused: false, ..asset() };
        let fate = |policy, keep, asset: &Asset| {
            let mut audit = audit(policy, keep);
            audit.round(vec![asset.clone()], at(1000));
            let round = audit.round(vec![asset.clone()], at(2000));
            (round.doomed.len(), round.reported.into_iter().map(|(_, why)| why).next())
        };
        assert_eq!(fate(OrphanPolicy::Auto, true, &asset()), (1, None));
        assert_eq!(fate(OrphanPolicy::Auto, true, &used), (0, Some(Spared::HoldsData)));
        assert_eq!(fate(OrphanPolicy::Delete, true, &used), (1, None));
        assert_eq!(fate(OrphanPolicy::Report, true, &asset()), (0, Some(Spared::ReportOnly)));
        assert_eq!(
            fate(OrphanPolicy::Delete, false, &asset()),
            (0, Some(Spared::ReportOnly)),
            "a backend that can't record what is kept"
        );
    }

    #[test]
    fn an_orphan_that_is_left_alone_is_reported_once() {
        let mut audit = audit(OrphanPolicy::Report, true);
        audit.round(vec![asset()], at(1000));
        assert_eq!(audit.round(vec![asset()], at(2000)).reported.len(), 1);
        assert_eq!(audit.round(vec![asset()], at(3000)).reported.len(), 0);
    }
}
