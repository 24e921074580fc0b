//! From what a campaign publishes to what follows from it, as plain logic. `actor.rs` drives the campaign.

mod actor;

pub use self::actor::{ElectorActor, Resign, Setup};

use crate::{
    lease::{Epoch, LeaderGuard, LeaseState, LeaseStatus},
    telemetry::health::Role,
};

/// What this replica was told to be last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Posture {
    /// It does not lead.
    #[default]
    Following,
    /// It leads under this epoch.
    Leading(Epoch),
}

/// What follows from news of the campaign.
#[derive(Clone, Debug)]
pub enum Turn {
    /// A leadership begins.
    Begin(LeaderGuard),
    /// The leadership of this epoch has ended, and none begins.
    End(Epoch),
    /// Neither.
    Same,
}

impl Posture {
    /// Takes news of the campaign. Two leaderships in a row, of which the end of the first was not seen,
    /// are told apart by their epochs.
    pub fn turn(&mut self, state: &LeaseState) -> Turn {
        match (&*self, state) {
            (Self::Leading(epoch), LeaseState::Leading(guard)) if epoch == guard.epoch() => Turn::Same,
            (_, LeaseState::Leading(guard)) => {
                *self = Self::Leading(guard.epoch().clone());
                Turn::Begin(guard.clone())
            }
            (Self::Leading(_), _) => match std::mem::take(self) {
                Self::Leading(epoch) => Turn::End(epoch),
                Self::Following => Turn::Same,
            },
            (Self::Following, _) => Turn::Same,
        }
    }
}

/// What probes show of the campaign.
#[must_use]
pub fn role(status: &LeaseStatus) -> Role {
    match &status.state {
        LeaseState::Leading(guard) => Role::Leader { epoch: guard.epoch().number },
        LeaseState::Standby { .. } => Role::Standby,
        LeaseState::NotReady { reason } => Role::Unknown(reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::SystemClock;

    fn leading(number: u64) -> LeaseState {
        let clock = SystemClock::shared();
        let epoch = Epoch { number, lease_uid: "l".into() };
        LeaseState::Leading(LeaderGuard::new(epoch, clock.now() + Duration::from_secs(9), clock))
    }

    fn numbers(states: &[LeaseState]) -> Vec<String> {
        let mut posture = Posture::default();
        let turn = |state| match posture.turn(state) {
            Turn::Begin(guard) => format!("begin {}", guard.epoch()),
            Turn::End(epoch) => format!("end {epoch}"),
            Turn::Same => "same".to_owned(),
        };
        states.iter().map(turn).collect()
    }

    #[test]
    fn a_leadership_begins_and_ends_once() {
        let standby = || LeaseState::Standby { holder: None };
        let states = [standby(), leading(5), leading(5), standby(), standby(), leading(9)];
        assert_eq!(numbers(&states), ["same", "begin 5", "same", "end 5", "same", "begin 9"]);
    }

    #[test]
    fn a_new_epoch_is_a_new_leadership_even_if_the_end_of_the_old_one_was_missed() {
        assert_eq!(numbers(&[leading(5), leading(6)]), ["begin 5", "begin 6"]);
    }
}
