//! What is told of a run while it goes on, by the harness, the nemesis and a watch of the cluster.

use std::sync::{Mutex, PoisonError};

use crate::{
    clock,
    history::{Entry, What},
};

/// The entries so far.
#[derive(Debug, Default)]
pub(super) struct Chronicle(Mutex<Vec<Entry>>);

impl Chronicle {
    /// Tells what happens now.
    pub(super) fn tell(&self, party: &str, what: What) {
        let entry = Entry { at: clock::raw_nanos(), party: party.to_owned(), what };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    /// All entries.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
