//! What the watches bring, and which keys it touches.

use std::sync::Arc;

use super::{
    Arbiter, Effect, Key, Kind,
    entry::{Entry, State},
    world::Touch,
};
use crate::{
    clock::BootTime,
    cluster::watch,
    lifecycle::{
        objects::{Claim, Class, Node, Volume},
        tell::{Note, Reason},
        volume,
    },
};

impl Arbiter {
    /// What the claims' watch brought.
    pub fn see_claims(&mut self, news: &[watch::News<Arc<Claim>>], now: BootTime) {
        for news in news {
            match news {
                watch::News::Seen(claim) => {
                    let touched = self.world.see_claim(claim.clone());
                    if claim.bound {
                        self.end_story(&touched.0, Some(now));
                    }
                    self.touch(touched, now);
                }
                watch::News::Gone(claim) => {
                    let touched = self.world.lose_claim(&claim.uid);
                    self.end_story(&touched.0, None);
                    self.touch(touched, now);
                }
                other => self.list_progress(Kind::Claims, other, now),
            }
        }
        self.dispatch(now);
    }

    /// What the volumes' watch brought.
    pub fn see_volumes(&mut self, news: &[watch::News<Arc<Volume>>], now: BootTime) {
        for news in news {
            match news {
                watch::News::Seen(volume) => {
                    let touched = self.world.see_volume(volume.clone());
                    self.touch(touched, now);
                }
                watch::News::Gone(volume) => self.lose_volume(volume, now),
                other => self.list_progress(Kind::Volumes, other, now),
            }
        }
        self.dispatch(now);
    }

    pub(super) fn lose_volume(&mut self, volume: &Volume, now: BootTime) {
        if let Some(Entry { state: State::Running(running), .. }) = self.entries.get_mut(&volume.name) {
            running.volume_gone = true;
        }
        self.tell_farewell(volume);
        let touched = self.world.lose_volume(&volume.name);
        self.touch(touched, now);
        // Its claim's own key may be another one.
        if let Some(claim) = &volume.claim {
            let key = self.world.key_of(&claim.uid);
            if key != volume.name && self.world.claim(&key).is_some() {
                self.touch((key, Touch::Changed), now);
            }
        }
    }

    fn tell_farewell(&mut self, volume: &Volume) {
        let is_ours = self.world.volume(&volume.name).is_some_and(|known| known.uid == volume.uid);
        if let Some(message) = volume::farewell(volume).filter(|_| is_ours && self.may_act()) {
            self.effects.push(Effect::Tell(Note::new(volume, Reason::VolumeDelete, message)));
        }
    }

    /// What the classes' watch brought.
    pub fn see_classes(&mut self, news: &[watch::News<Arc<Class>>], now: BootTime) {
        for news in news {
            match news {
                watch::News::Seen(class) => {
                    let keys = self.world.see_class(class.clone());
                    self.touch_all(keys, now);
                }
                watch::News::Gone(class) => {
                    let keys = self.world.lose_class(&class.name);
                    self.touch_all(keys, now);
                }
                other => self.list_progress(Kind::Classes, other, now),
            }
        }
        self.dispatch(now);
    }

    /// What the nodes' watch brought.
    pub fn see_nodes(&mut self, news: &[watch::News<Arc<Node>>], now: BootTime) {
        for news in news {
            match news {
                watch::News::Seen(node) => self.world.see_node(node.clone()),
                watch::News::Gone(node) => {
                    let keys = self.world.lose_node(&node.name);
                    self.touch_all(keys, now);
                }
                other => self.list_progress(Kind::Nodes, other, now),
            }
        }
        self.dispatch(now);
    }

    pub(super) fn list_progress<T>(&mut self, kind: Kind, news: &watch::News<T>, now: BootTime) {
        match news {
            watch::News::Relisting => {
                self.forgotten.remove(&kind);
                self.world.relisting(kind);
            }
            // The end of a list that began before everything was forgotten tells nothing.
            watch::News::Synced if self.forgotten.contains(&kind) => {}
            watch::News::Synced => {
                let gone = self.world.synced(kind);
                self.touch_all(gone, now);
                self.synced.insert(kind);
                if self.may_act() {
                    self.consider_all(now);
                }
            }
            watch::News::Broken(_) | watch::News::Seen(_) | watch::News::Gone(_) => {}
        }
    }

    pub(super) fn touch_all(&mut self, keys: Vec<Key>, now: BootTime) {
        for key in keys {
            self.touch((key, Touch::Changed), now);
        }
    }

    /// A key's claim, volume, class or node was seen: a change of what decisions read ends its wait and
    /// forgets its failures.
    pub(super) fn touch(&mut self, (key, touch): (Key, Touch), now: BootTime) {
        let has_volume = self.world.volume(&key).is_some();
        if let Some(entry) = self.entries.get_mut(&key) {
            // Whatever an earlier call made, this volume stands for it now.
            entry.unknown.take_if(|_| has_volume);
            match touch {
                Touch::Changed => entry.changed(),
                Touch::Newer => entry.newer(),
                Touch::Unchanged => {}
            }
        }
        self.consider(&key, now);
    }
}
