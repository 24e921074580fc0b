//! What is remembered of one key between and during attempts.

use std::sync::Arc;

use super::queue::{Lane, Ticket};
use crate::{
    actors::volume::{OrphanTask, ProvisionTask, Task},
    clock::BootTime,
    lifecycle::claim::PendingReason,
};

/// One key. Exists while there is something to remember.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Where the key is.
    pub(super) state: State,
    /// Failures in a row.
    pub(super) failures: u32,
    /// A call whose outcome is not known, to be repeated until it is.
    pub(super) unknown: Option<Arc<ProvisionTask>>,
    /// An asset of this name that belongs to nothing.
    pub(super) orphan: Option<Arc<OrphanTask>>,
    /// The reason for waiting that was last told.
    pub(super) told: Option<PendingReason>,
    /// Since when something is to be done.
    pub(super) wanted: Option<BootTime>,
}

/// Where a key is.
#[derive(Debug, Default, PartialEq)]
pub(super) enum State {
    /// Nothing is to be done.
    #[default]
    Idle,
    /// It waits for a slot, with this ticket, since then.
    Queued {
        /// Its place.
        ticket: Ticket,
        /// Its lane.
        lane: Lane,
        /// Since when.
        since: BootTime,
    },
    /// An operation is under way.
    Running(Box<Running>),
    /// It waits until then, or until something changes.
    BackingOff {
        /// Until when.
        until: BootTime,
    },
    /// It waits for the watch to show what a conflict was about, until then at most.
    CatchingUp {
        /// Until when.
        until: BootTime,
    },
    /// It waits until something changes.
    Parked,
}

/// An operation under way.
#[derive(Debug)]
pub(super) struct Running {
    /// What it is to achieve.
    pub task: Task,
    /// Its lane.
    pub lane: Lane,
    /// The class that it counts for.
    pub class: Arc<str>,
    /// When it was started.
    pub started: BootTime,
    /// What decisions read has changed since.
    pub changed: bool,
    /// The object was seen in a newer version since.
    pub newer: bool,
    /// The volume was seen to go meanwhile.
    pub volume_gone: bool,
    /// The store went back in time since: what comes of it says nothing about what is now.
    pub outdated: bool,
}

impl PartialEq for Running {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Entry {
    /// The ticket of a queued key, 0 of another one.
    #[must_use]
    pub(super) fn ticket(&self) -> Ticket {
        match self.state {
            State::Queued { ticket, .. } => ticket,
            _ => 0,
        }
    }

    /// Since when a queued key waits.
    #[must_use]
    pub(super) fn since(&self) -> BootTime {
        match self.state {
            State::Queued { since, .. } => since,
            _ => BootTime::default(),
        }
    }

    /// If it is queued, it waits only from now on.
    pub(super) fn wait_from(&mut self, now: BootTime) {
        if let State::Queued { since, .. } = &mut self.state {
            *since = now;
        }
    }

    /// Whether it waits in this lane.
    #[must_use]
    pub(super) fn is_queued_in(&self, wanted: Lane) -> bool {
        matches!(self.state, State::Queued { lane, .. } if lane == wanted)
    }

    /// Whether it waits in this lane with this ticket.
    #[must_use]
    pub(super) fn is_queued_with(&self, ticket: Ticket, lane: Lane) -> bool {
        self.is_queued_in(lane) && self.ticket() == ticket
    }

    /// What decisions read has changed: failures are forgotten and waits end. A running operation goes
    /// on; when it fails, it is tried again at once.
    pub(super) fn changed(&mut self) {
        self.failures = 0;
        match &mut self.state {
            State::Running(running) => running.changed = true,
            State::BackingOff { .. } | State::CatchingUp { .. } | State::Parked => self.state = State::Idle,
            State::Idle | State::Queued { .. } => {}
        }
    }

    /// The object was seen in a newer version. That ends only a wait for just this.
    pub(super) fn newer(&mut self) {
        match &mut self.state {
            State::Running(running) => running.newer = true,
            State::CatchingUp { .. } => self.state = State::Idle,
            State::Idle | State::Queued { .. } | State::BackingOff { .. } | State::Parked => {}
        }
    }

    /// When the wait for a time is over, if it waits for one.
    pub(super) fn waits_until(&self) -> Option<BootTime> {
        match self.state {
            State::BackingOff { until } | State::CatchingUp { until } => Some(until),
            _ => None,
        }
    }

    /// An operation starts.
    pub(super) fn run(&mut self, task: Task, lane: Lane, class: Arc<str>, started: BootTime) {
        let running = Running {
            task,
            lane,
            class,
            started,
            changed: false,
            newer: false,
            volume_gone: false,
            outdated: false,
        };
        self.state = State::Running(Box::new(running));
    }

    /// The operation under way has ended.
    pub(super) fn end(&mut self) -> Option<Running> {
        match std::mem::take(&mut self.state) {
            State::Running(running) => Some(*running),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Waits for a change. What is unknown stays so.
    pub(super) fn park(&mut self) {
        self.state = State::Parked;
    }
}
