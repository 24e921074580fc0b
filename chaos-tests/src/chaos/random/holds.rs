//! Finalizers of somebody else on volumes: only who has put one on may take it off.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::work::HOLD;
use crate::{
    clock,
    history::{
        Object,
        check::{Invariant, Violation},
    },
};

/// By the UID of the volume.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Volumes that were seen with it, by UID; whether it was taken off by its owner.
    held: BTreeMap<String, bool>,
    violations: Vec<Violation>,
}

impl Holds {
    /// Its owner is about to take it off.
    pub(super) fn let_go(&self, uid: &str) {
        self.lock().held.insert(uid.to_owned(), true);
    }

    /// A volume was seen.
    pub(super) fn see(&self, volume: &Object) {
        let mut state = self.lock();
        // The last that is shown of an object that has gone may be what it was before.
        let has = !volume.gone && volume.finalizers.iter().any(|finalizer| finalizer == HOLD);
        let before = state.held.get(&volume.uid).copied();
        if has && before.is_none() {
            state.held.insert(volume.uid.clone(), false);
        } else if !has && before == Some(false) {
            let words = format!("somebody took the finalizer of somebody else off volume {}", volume.name);
            let at = clock::raw_nanos();
            state.violations.push(Violation { invariant: Invariant::NothingPreciousDeleted, at, words });
            state.held.insert(volume.uid.clone(), true);
        }
    }

    /// Those that somebody else has taken off.
    pub(super) fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_that_goes_without_its_owner_is_told_once() {
        let with = |finalizers: &[&str]| Object {
            uid: "1".to_owned(),
            name: "pvc-1".to_owned(),
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            ..Object::default()
        };
        let holds = Holds::default();
        for finalizers in [&["other"][..], &["other", HOLD], &["other"], &[]] {
            holds.see(&with(finalizers));
        }
        assert_eq!(holds.violations().len(), 1);
        let holds = Holds::default();
        holds.see(&with(&[HOLD]));
        holds.see(&Object { gone: true, ..with(&[HOLD]) });
        assert_eq!(holds.violations().len(), 1);
        let holds = Holds::default();
        holds.see(&with(&[HOLD]));
        holds.let_go("1");
        holds.see(&with(&[]));
        assert!(holds.violations().is_empty());
    }
}
