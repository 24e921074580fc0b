//! The liveness of one watch, as plain logic. `actor.rs` drives the stream.

mod actor;

pub use self::actor::{Anew, Watched, WatcherActor, Wrap};

/// How one watch is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pulse {
    /// Nothing was heard yet.
    #[default]
    Starting,
    /// The server answers.
    Heard,
    /// The last thing heard was a failure, with this reason.
    Broken(String),
}

/// A change that is worth a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The watch broke, for this reason.
    Broke(String),
    /// The watch works again.
    Healed,
}

impl Pulse {
    /// The server answered.
    pub fn heard(&mut self) -> Option<Turn> {
        let before = std::mem::replace(self, Self::Heard);
        matches!(before, Self::Broken(_)).then_some(Turn::Healed)
    }

    /// The watch failed. The same reason again is no change.
    pub fn broke(&mut self, reason: &str) -> Option<Turn> {
        let news = *self != Self::Broken(reason.to_owned());
        *self = Self::Broken(reason.to_owned());
        news.then(|| Turn::Broke(reason.to_owned()))
    }

    /// What is wrong, for readiness.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Broken(reason) => Some(reason.clone()),
            Self::Starting | Self::Heard => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_watch_is_told_once_per_reason_and_once_when_it_heals() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.heard(), None);
        assert_eq!(pulse.broke("refused"), Some(Turn::Broke("refused".to_owned())));
        assert_eq!(pulse.broke("refused"), None);
        assert_eq!(pulse.broke("403"), Some(Turn::Broke("403".to_owned())));
        assert_eq!(pulse.problem().as_deref(), Some("403"));
        assert_eq!(pulse.heard(), Some(Turn::Healed));
        assert_eq!((pulse.heard(), pulse.problem()), (None, None));
    }
}
