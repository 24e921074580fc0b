//! What the API server has told about claims, volumes and the Lease so far. Plain data; who asks is in `observe`.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Everything seen, also what is gone by now.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    /// By name.
    pub(super) claims: BTreeMap<String, Claim>,
    /// By name.
    pub(super) volumes: BTreeMap<String, Volume>,
    /// Who held the Lease, one after the other.
    pub(super) tenures: Vec<Tenure>,
}

/// A claim.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) uid: String,
    pub(super) seen: Instant,
    pub(super) bound: Option<Instant>,
    pub(super) deleting: bool,
    pub(super) gone: bool,
}

/// A volume that our provisioner made.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) claim_uid: String,
    pub(super) seen: Instant,
    /// The version in which it was first seen: of a volume that is watched, the one of its creation.
    pub(super) version: u64,
    pub(super) gone: bool,
}

/// A time for which one replica held the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tenure {
    pub(super) replica: String,
    /// The version of the Lease that began it.
    pub(super) version: u64,
    identity: String,
}

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nobody has done anything about it yet.
    Pending,
    /// Its volume exists.
    Provisioned,
    /// Claim and volume have found each other.
    Bound,
    /// It is being deleted, or its volume is.
    Deleting,
    /// Neither it nor its volume exists any more.
    Gone,
}

/// Changes.
impl World {
    pub(super) fn claim_seen(&mut self, name: &str, uid: &str, bound: bool, deleting: bool, now: Instant) {
        let new = || Claim { uid: uid.to_owned(), seen: now, bound: None, deleting, gone: false };
        let claim = self.claims.entry(name.to_owned()).or_insert_with(new);
        claim.deleting = deleting;
        if bound {
            claim.bound.get_or_insert(now);
        }
    }

    pub(super) fn claim_gone(&mut self, name: &str) {
        if let Some(claim) = self.claims.get_mut(name) {
            claim.gone = true;
        }
    }

    pub(super) fn volume_seen(&mut self, name: &str, claim_uid: &str, version: u64, now: Instant) {
        let new = || Volume { claim_uid: claim_uid.to_owned(), seen: now, version, gone: false };
        self.volumes.entry(name.to_owned()).or_insert_with(new);
    }

    pub(super) fn volume_gone(&mut self, name: &str) {
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.gone = true;
        }
    }

    /// Takes note of who holds the Lease. An identity begins with the name of its replica and an underscore.
    pub(super) fn lease_seen(&mut self, identity: &str, version: u64) {
        if identity.is_empty() || self.tenures.last().is_some_and(|last| last.identity == identity) {
            return;
        }
        let replica = identity.split('_').next().unwrap_or(identity).to_owned();
        self.tenures.push(Tenure { replica, version, identity: identity.to_owned() });
    }
}

/// Questions.
impl World {
    /// The replica that holds the Lease.
    pub(super) fn leader(&self) -> Option<&str> {
        self.tenures.last().map(|tenure| tenure.replica.as_str())
    }

    /// Who took the Lease after `replica` had it.
    pub(super) fn successor_of(&self, replica: &str) -> Option<&Tenure> {
        let last = self.tenures.iter().rposition(|tenure| tenure.replica == replica)?;
        self.tenures.get(last + 1)
    }

    /// The first volume made in `tenure` or later. Versions of Lease and volumes can be compared here because one
    /// etcd numbers the writes of both; a write of the former leader that arrives late has a lower number.
    pub(super) fn first_volume_of(&self, tenure: &Tenure) -> Option<&Volume> {
        let later = self.volumes.values().filter(|volume| volume.version > tenure.version);
        later.min_by_key(|volume| volume.version)
    }

    /// How many claims were Bound at some time.
    pub(super) fn bound(&self) -> usize {
        self.claims.values().filter(|claim| claim.bound.is_some()).count()
    }

    /// How many claims are gone, each with its volume.
    pub(super) fn gone(&self) -> usize {
        self.claims.values().filter(|claim| self.progress(claim) == Progress::Gone).count()
    }

    /// Whether a volume was made for any claim whose name `selected` picks.
    pub(super) fn any_provisioned(&self, selected: impl Fn(&str) -> bool) -> bool {
        let mut claims = self.claims.iter().filter(|(name, _)| selected(name));
        claims.any(|(_, claim)| self.volume_of(claim).is_some())
    }

    pub(super) fn progress(&self, claim: &Claim) -> Progress {
        let volume = self.volume_of(claim);
        match (claim, volume) {
            (Claim { gone: true, .. }, Some(Volume { gone: false, .. })) => Progress::Deleting,
            (Claim { gone: true, .. }, _) => Progress::Gone,
            (Claim { deleting: true, .. }, _) => Progress::Deleting,
            (Claim { bound: Some(_), .. }, _) => Progress::Bound,
            (_, Some(_)) => Progress::Provisioned,
            (_, None) => Progress::Pending,
        }
    }

    /// From the sight of each claim that `selected` picks to its being Bound, shortest first.
    pub(super) fn waits(&self, selected: impl Fn(&str) -> bool) -> Vec<Duration> {
        let claims = self.claims.iter().filter(|(name, _)| selected(name));
        let mut waits: Vec<Duration> =
            claims.filter_map(|(_, claim)| Some(claim.bound?.duration_since(claim.seen))).collect();
        waits.sort();
        waits
    }

    fn volume_of(&self, claim: &Claim) -> Option<&Volume> {
        self.volumes.values().find(|volume| volume.claim_uid == claim.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    fn progress(world: &World) -> Progress {
        world.progress(&world.claims["a"])
    }

    #[test]
    fn a_claim_goes_from_pending_to_gone_and_counts_as_bound_once_it_was() {
        let mut world = World::default();
        world.claim_seen("a", "u", false, false, after(0));
        assert_eq!(progress(&world), Progress::Pending);
        world.volume_seen("pvc-u", "u", 5, after(1));
        assert_eq!(progress(&world), Progress::Provisioned);
        world.claim_seen("a", "u", true, false, after(2));
        world.claim_seen("a", "u", true, false, after(9));
        assert_eq!(
            (progress(&world), world.waits(|_| true)),
            (Progress::Bound, vec![Duration::from_secs(2)])
        );
        world.claim_seen("a", "u", true, true, after(10));
        assert_eq!(progress(&world), Progress::Deleting);
        world.claim_gone("a");
        assert_eq!((progress(&world), world.gone()), (Progress::Deleting, 0));
        world.volume_gone("pvc-u");
        assert_eq!((progress(&world), world.gone(), world.bound()), (Progress::Gone, 1, 1));
    }

    #[test]
    fn renewals_change_nothing_and_a_new_start_of_the_same_replica_is_a_new_tenure() {
        let mut world = World::default();
        assert_eq!(world.leader(), None);
        for (identity, version) in [("r-1_a", 1), ("r-1_a", 2), ("", 3), ("r-2_b", 4), ("r-1_c", 5)] {
            world.lease_seen(identity, version);
        }
        let versions: Vec<u64> = world.tenures.iter().map(|tenure| tenure.version).collect();
        assert_eq!((versions, world.leader()), (vec![1, 4, 5], Some("r-1")));
    }

    #[test]
    fn the_successor_is_who_came_after_the_last_tenure() {
        let mut world = World::default();
        world.lease_seen("r-1_a", 1);
        assert_eq!(world.successor_of("r-1"), None);
        world.lease_seen("r-2_b", 7);
        assert_eq!(world.successor_of("r-1").unwrap().replica, "r-2");
    }

    #[test]
    fn a_late_sight_of_the_former_leaders_volume_is_not_taken_for_the_successors() {
        let mut world = World::default();
        world.lease_seen("r-1_a", 1);
        world.lease_seen("r-2_b", 10);
        let successor = world.successor_of("r-1").unwrap().clone();
        world.volume_seen("pvc-old", "old", 9, after(4));
        assert!(world.first_volume_of(&successor).is_none());
        world.volume_seen("pvc-second", "second", 14, after(5));
        world.volume_seen("pvc-first", "first", 12, after(6));
        assert_eq!(world.first_volume_of(&successor).unwrap().claim_uid, "first");
    }
}
