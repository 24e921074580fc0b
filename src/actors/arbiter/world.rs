//! The `World`: every cached object and index, one owner, no locks.
//!
//! Keeps what is ours and drops the rest. What is to be done about it is decided in `mod.rs`.

use std::{
    collections::{BTreeSet, HashMap, HashSet, hash_map},
    sync::Arc,
};

use crate::lifecycle::{
    claim::{self, Served},
    names::VolumeNaming,
    objects::{Claim, Class, Node, Version, Volume},
    volume,
};

/// The name of a volume, which is the key of all work on it: for its claim, for itself, for an orphan.
pub type Key = Arc<str>;

/// Which lists a cached object was in: what a newer list does not bring is gone.
type Generation = u32;

/// The kinds of object that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// PersistentVolumeClaims.
    Claims,
    /// PersistentVolumes.
    Volumes,
    /// StorageClasses.
    Classes,
    /// Nodes.
    Nodes,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Claims, Self::Volumes, Self::Classes, Self::Nodes];

    /// The word for messages and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::Volumes => "volumes",
            Self::Classes => "classes",
            Self::Nodes => "nodes",
        }
    }
}

/// How a key is touched by news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Something that decisions read has changed: look at the key, and don't wait for a backoff.
    Changed,
    /// Only something else has changed, such as a label: whoever met a conflict sees now what it was about.
    Newer,
    /// Nothing has changed.
    Unchanged,
}

#[derive(Debug)]
struct CachedVolume {
    volume: Arc<Volume>,
    /// We removed it; the watch has not said so yet.
    removed: bool,
    generation: Generation,
}

/// See the module.
#[derive(Debug, Default)]
pub struct World {
    served: Arc<Served>,
    naming: VolumeNaming,
    claims: HashMap<Key, (Arc<Claim>, Generation)>,
    /// The keys of claims without a volume, by class.
    pending: HashMap<Arc<str>, BTreeSet<Key>>,
    volumes: HashMap<Key, CachedVolume>,
    /// The volume of a claim, by the claim's UID, from the volumes' claim references.
    volume_of: HashMap<Box<str>, Key>,
    classes: HashMap<Arc<str>, (Arc<Class>, Generation)>,
    nodes: HashMap<Arc<str>, (Arc<Node>, Generation)>,
    /// UIDs of claims that were ever seen in a volume's claim reference or provisioned by this replica,
    /// until the claim is gone: such a claim is read live before it is provisioned.
    known: HashSet<Box<str>>,
    generations: [Generation; 4],
    /// Which kinds are being listed. A list is right even where it is older than what is cached: etcd may
    /// have been restored from a backup.
    listing: [bool; 4],
}

impl World {
    /// An empty world of `served`.
    #[must_use]
    pub fn new(served: Arc<Served>, naming: VolumeNaming) -> Self {
        Self { served, naming, ..Self::default() }
    }

    /// An empty world of the same.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::new(self.served.clone(), self.naming.clone())
    }

    /// The key of the work for a claim with this UID.
    #[must_use]
    pub fn key_of(&self, claim_uid: &str) -> Key {
        self.naming.name(claim_uid)
    }

    /// The claim of this key.
    #[must_use]
    pub fn claim(&self, key: &str) -> Option<&Arc<Claim>> {
        self.claims.get(key).map(|(claim, _)| claim)
    }

    /// The volume of this name, unless we have removed it already.
    #[must_use]
    pub fn volume(&self, key: &str) -> Option<&Arc<Volume>> {
        self.volumes.get(key).filter(|cached| !cached.removed).map(|cached| &cached.volume)
    }

    /// Whether a volume of this name is cached, removed by us or not.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.volumes.contains_key(name)
    }

    /// The class of this name.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.classes.get(name).map(|(class, _)| class)
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name).map(|(node, _)| node)
    }

    /// The volume of this claim, removed by us or not.
    fn volume_for(&self, claim: &Claim) -> Option<&Volume> {
        let key = self.volume_of.get(&claim.uid)?;
        self.volumes.get(key).map(|cached| &*cached.volume)
    }

    /// Whether the claim was ever seen to have a volume.
    #[must_use]
    pub fn is_known(&self, claim: &Claim) -> bool {
        self.known.contains(&claim.uid)
    }

    /// How many claims and volumes are cached.
    #[must_use]
    pub fn sizes(&self) -> [(Kind, usize); 4] {
        [
            (Kind::Claims, self.claims.len()),
            (Kind::Volumes, self.volumes.len()),
            (Kind::Classes, self.classes.len()),
            (Kind::Nodes, self.nodes.len()),
        ]
    }

    /// How many of our classes there are.
    #[must_use]
    pub fn classes_served(&self) -> usize {
        self.classes.values().filter(|(class, _)| self.served.is_ours(&class.provisioner)).count()
    }

    /// All keys with a claim or a volume.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let without_claim = |key: &&Key| !self.claims.contains_key(*key);
        self.claims.keys().chain(self.volumes.keys().filter(without_claim))
    }

    /// The pending claims.
    pub fn pending_claims(&self) -> impl Iterator<Item = (&Key, &Arc<Claim>)> {
        self.pending.values().flatten().filter_map(|key| Some((key, self.claim(key)?)))
    }

    /// A claim as it is now.
    pub fn see_claim(&mut self, claim: Arc<Claim>) -> (Key, Touch) {
        let key = self.key_of(&claim.uid);
        if !self.keeps(&claim) {
            return self.lose_claim(&claim.uid);
        }
        let (generation, listing) = (self.generation(Kind::Claims), self.is_listing(Kind::Claims));
        if let Some((held, seen)) = self.claims.get_mut(&key)
            && held.version > claim.version
            && !listing
        {
            *seen = generation;
            return (key, Touch::Unchanged);
        }
        let old = self.claims.insert(key.clone(), (claim.clone(), generation));
        let touch = match &old {
            Some((old, _)) if !claim.differs_for_decisions(old) => newer(old.version != claim.version),
            _ => Touch::Changed,
        };
        if let Some((old, _)) = old {
            self.unindex_pending(&key, &old);
        }
        self.index_pending(&key, &claim);
        (key, touch)
    }

    /// A claim that no annotation names ours is kept while its class may be ours: the class may come
    /// after it.
    fn keeps(&self, claim: &Claim) -> bool {
        match (&claim.provisioner, claim.class.as_deref()) {
            (Some(name), _) => self.served.is_ours(name),
            (None, None) => false,
            (None, Some(class)) => {
                claim.volume_name.is_none()
                    && self.class(class).is_none_or(|class| self.served.is_ours(&class.provisioner))
            }
        }
    }

    /// The claim with this UID is gone, or no longer ours.
    pub fn lose_claim(&mut self, uid: &str) -> (Key, Touch) {
        let key = self.key_of(uid);
        self.known.remove(uid);
        let lost = self.claims.remove(&key);
        let touch = if lost.is_some() { Touch::Changed } else { Touch::Unchanged };
        if let Some((old, _)) = lost {
            self.unindex_pending(&key, &old);
        }
        (key, touch)
    }

    fn index_pending(&mut self, key: &Key, claim: &Claim) {
        if claim.volume_name.is_none() {
            self.pending.entry(class_of(claim)).or_default().insert(key.clone());
        }
    }

    fn unindex_pending(&mut self, key: &Key, claim: &Claim) {
        if let hash_map::Entry::Occupied(mut keys) = self.pending.entry(class_of(claim)) {
            keys.get_mut().remove(key);
            if keys.get().is_empty() {
                keys.remove();
            }
        }
    }

    /// A volume as it is now.
    pub fn see_volume(&mut self, volume: Arc<Volume>) -> (Key, Touch) {
        let key = volume.name.clone();
        let decision = volume::decide(&volume, &self.served);
        if decision == volume::Decision::NotOurs {
            return self.lose_volume(&key);
        }
        let (generation, listing) = (self.generation(Kind::Volumes), self.is_listing(Kind::Volumes));
        let mut removed = false;
        let mut touch = Touch::Changed;
        if let Some(held) = self.volumes.get_mut(&key)
            && held.volume.uid == volume.uid
        {
            held.generation = generation;
            let older = held.volume.version > volume.version;
            if older && !listing {
                return (key, Touch::Unchanged);
            }
            removed = held.removed && !older;
            let same = volume::decide(&held.volume, &self.served) == decision
                && !held.volume.is_another_than(&volume);
            if same || removed {
                touch = newer(*held.volume != *volume && !removed);
            }
        }
        if let Some(claim) = claim_uid(&volume) {
            self.known.insert(claim.into());
            self.volume_of.insert(claim.into(), key.clone());
        }
        self.volumes.insert(key.clone(), CachedVolume { volume, removed, generation });
        (key, touch)
    }

    /// The volume of this name is gone, or no longer ours.
    pub fn lose_volume(&mut self, name: &str) -> (Key, Touch) {
        let Some((key, lost)) = self.volumes.remove_entry(name) else {
            return (name.into(), Touch::Unchanged);
        };
        if let Some(claim) = claim_uid(&lost.volume) {
            if self.volume_of.get(claim) == Some(&key) {
                self.volume_of.remove(claim);
            }
            if self.claim(&self.key_of(claim)).is_none() {
                self.known.remove(claim);
            }
        }
        (key, Touch::Changed)
    }

    /// We removed the volume with this UID: nothing is decided on it any more.
    pub fn mark_removed(&mut self, key: &str, uid: &str) {
        if let Some(cached) = self.volumes.get_mut(key).filter(|cached| &*cached.volume.uid == uid) {
            cached.removed = true;
        }
    }

    /// This replica has provisioned the claim with this UID.
    pub fn mark_known(&mut self, claim_uid: &str) {
        self.known.insert(claim_uid.into());
    }

    /// A class as it is now; the keys that it touches.
    pub fn see_class(&mut self, class: Arc<Class>) -> Vec<Key> {
        let generation = self.generation(Kind::Classes);
        let name = class.name.clone();
        let old = self.classes.insert(name.clone(), (class.clone(), generation));
        let changed = old.is_none_or(|(old, _)| differs(&old, &class));
        if !self.served.is_ours(&class.provisioner) {
            self.drop_unnamed_claims(&name);
        }
        if changed { self.keys_of_class(&name) } else { Vec::new() }
    }

    /// The class of this name is gone; the keys that this touches.
    pub fn lose_class(&mut self, name: &str) -> Vec<Key> {
        if self.classes.remove(name).is_some() { self.keys_of_class(name) } else { Vec::new() }
    }

    /// Claims that were kept only because their class might have been ours.
    fn drop_unnamed_claims(&mut self, class: &str) {
        for key in self.keys_of_class(class) {
            if let Some(claim) = self.claim(&key).filter(|claim| claim.provisioner.is_none()).cloned() {
                self.lose_claim(&claim.uid);
            }
        }
    }

    fn keys_of_class(&self, class: &str) -> Vec<Key> {
        self.pending.get(class).map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }

    /// A node as it is now. Its labels matter to the next call only, so it touches no key.
    pub fn see_node(&mut self, node: Arc<Node>) {
        let generation = self.generation(Kind::Nodes);
        self.nodes.insert(node.name.clone(), (node, generation));
    }

    /// The node of this name is gone; the keys of claims that were to go to it.
    pub fn lose_node(&mut self, name: &str) -> Vec<Key> {
        self.nodes.remove(name);
        self.pending_claims()
            .filter(|(_, claim)| claim.selected_node.as_deref() == Some(name))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// A list of this kind begins.
    pub fn relisting(&mut self, kind: Kind) {
        if let Some(generation) = self.generations.get_mut(kind as usize) {
            *generation = generation.wrapping_add(1);
        }
        self.set_listing(kind, true);
    }

    fn set_listing(&mut self, kind: Kind, listing: bool) {
        if let Some(flag) = self.listing.get_mut(kind as usize) {
            *flag = listing;
        }
    }

    fn is_listing(&self, kind: Kind) -> bool {
        self.listing.get(kind as usize).is_some_and(|listing| *listing)
    }

    /// The list of this kind is complete: what it did not bring is gone. The keys that this touches.
    pub fn synced(&mut self, kind: Kind) -> Vec<Key> {
        let now = self.generation(kind);
        self.set_listing(kind, false);
        match kind {
            Kind::Claims => {
                let stale = self.claims.values().filter(|(_, seen)| *seen != now);
                let uids: Vec<Box<str>> = stale.map(|(claim, _)| claim.uid.clone()).collect();
                uids.iter().map(|uid| self.lose_claim(uid).0).collect()
            }
            Kind::Volumes => {
                let stale = self.volumes.iter().filter(|(_, cached)| cached.generation != now);
                let names: Vec<Key> = stale.map(|(name, _)| name.clone()).collect();
                names.iter().map(|name| self.lose_volume(name).0).collect()
            }
            Kind::Classes => {
                let stale = self.classes.values().filter(|(_, seen)| *seen != now);
                let names: Vec<Arc<str>> = stale.map(|(class, _)| class.name.clone()).collect();
                names.iter().flat_map(|name| self.lose_class(name)).collect()
            }
            Kind::Nodes => {
                let stale = self.nodes.values().filter(|(_, seen)| *seen != now);
                let names: Vec<Arc<str>> = stale.map(|(node, _)| node.name.clone()).collect();
                names.iter().flat_map(|name| self.lose_node(name)).collect()
            }
        }
    }

    fn generation(&self, kind: Kind) -> Generation {
        self.generations.get(kind as usize).copied().unwrap_or_default()
    }

    /// What is to be done with the claim of this key.
    #[must_use]
    pub fn decide_claim(&self, key: &str) -> Option<claim::Decision> {
        let claim = self.claim(key)?;
        let class = claim.class.as_deref().and_then(|name| self.class(name));
        Some(claim::decide(claim, class.map(|class| &**class), self.volume_for(claim), &self.served))
    }

    /// What is to be done with the volume of this key.
    #[must_use]
    pub fn decide_volume(&self, key: &str) -> Option<volume::Decision> {
        self.volume(key).map(|volume| volume::decide(volume, &self.served))
    }

    /// What versions of claims below this are stale, seen from the mark of a new leadership.
    #[must_use]
    pub fn is_below(claim: &Claim, mark: Option<Version>) -> bool {
        mark.is_none_or(|mark| claim.version < mark)
    }
}

const fn newer(is_newer: bool) -> Touch {
    if is_newer { Touch::Newer } else { Touch::Unchanged }
}

fn class_of(claim: &Claim) -> Arc<str> {
    claim.class.clone().unwrap_or_else(|| "".into())
}

fn claim_uid(volume: &Volume) -> Option<&str> {
    volume.claim.as_ref().map(|claim| &*claim.uid).filter(|uid| !uid.is_empty())
}

/// Whether a class differs in what provisioning reads: not its labels.
fn differs(old: &Class, new: &Class) -> bool {
    old.uid != new.uid
        || old.provisioner != new.provisioner
        || old.wait_for_consumer != new.wait_for_consumer
        || old.policy != new.policy
        || old.whole.parameters != new.whole.parameters
        || old.whole.mount_options != new.whole.mount_options
        || old.whole.allowed_topologies != new.whole.allowed_topologies
}

#[cfg(test)]
mod tests;
