//! What came of an operation: what is remembered, told, and tried again.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use super::{
    Arbiter, Effect, Ended, Key, Lane, Verdict,
    entry::{Running, State},
    story,
};
use crate::{
    actors::volume::{Failure, Outcome, ProvisionTask, Task},
    clock::BootTime,
    known_bugs::{self, Bug},
    lifecycle::{
        objects::Volume,
        tell::{Note, Reason},
    },
};

/// How long a key waits for the watch to show what a conflict was about, before it is tried anyway.
const CATCH_UP: Duration = Duration::from_secs(1);
/// The longest wait after a failure that is unlikely to heal by itself.
const SLOW: Duration = Duration::from_secs(5 * 60);

impl Arbiter {
    /// An operation has ended.
    pub fn finished(&mut self, key: &Key, outcome: Outcome, jitter: f64, now: BootTime) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let wanted = entry.wanted;
        let Some(running) = entry.end() else { return };
        if let (Task::Orphan(_), Some(entry)) = (&running.task, self.entries.get_mut(key)) {
            // Whatever came of it, the next audit looks again.
            entry.orphan = None;
        }
        self.line_mut(running.lane).ended(&running.class);
        let verdict = if running.outdated {
            self.entries.remove(key);
            Verdict::Moot("the API server's store was restored".to_owned())
        } else {
            self.file(key, &running, outcome, jitter, now)
        };
        let took = now.saturating_since(running.started);
        let wanted = wanted.unwrap_or(running.started);
        self.effects.push(Effect::Ended(Ended { task: running.task, took, wanted, verdict }));
        self.consider(key, now);
        self.dispatch(now);
    }

    /// Remembers what came of an operation, and when its key is to be tried again.
    pub(super) fn file(
        &mut self,
        key: &Key,
        running: &Running,
        outcome: Outcome,
        jitter: f64,
        now: BootTime,
    ) -> Verdict {
        match outcome {
            Outcome::Saved(volume) => self.saved(key, running, *volume, now),
            Outcome::Removed => {
                if let Task::Remove(task) = &running.task {
                    self.world.mark_removed(key, &task.volume.uid);
                }
                self.forget(key)
            }
            Outcome::Tended(volume) => {
                self.own_write(running, volume);
                self.forget(key)
            }
            Outcome::Rescheduled(claim) => {
                if let Some(claim) = claim {
                    self.world.see_claim(Arc::from(claim));
                }
                self.forget(key);
                Verdict::Moot("the scheduler chooses another node".to_owned())
            }
            Outcome::Superseded(why) => {
                // What the watch has shown meanwhile is decided on at once.
                if !running.changed && !running.newer {
                    self.catch_up(key, running, now);
                }
                Verdict::Moot(why)
            }
            Outcome::Ignored(why) => {
                // What has changed meanwhile may be just what it was ignored for.
                if !running.changed {
                    self.park(key, running, story::IGNORED, now);
                }
                Verdict::Moot(format!("ignored by the backend: {why}"))
            }
            Outcome::Failed(failure) => self.failed(key, running, failure, jitter, now),
            Outcome::Stopped { unknown } => {
                if let Task::Provision(task) = &running.task
                    && unknown
                {
                    self.entries.entry(key.clone()).or_default().unknown = Some(Arc::new(task.clone()));
                }
                Verdict::Moot("the leadership ended".to_owned())
            }
        }
    }

    pub(super) fn saved(&mut self, key: &Key, running: &Running, volume: Volume, now: BootTime) -> Verdict {
        if let Task::Provision(task) = &running.task {
            self.world.mark_known(&task.claim.uid);
            let message = format!("provisioned volume {key}");
            let note = Note::new(&*task.claim, Reason::ProvisioningSucceeded, message);
            self.effects.push(Effect::Tell(note));
            self.begin_last_wait(key, task, now);
        }
        self.own_write(running, Some(volume.into()));
        self.forget(key)
    }

    /// A saved claim waits only to be bound, unless that is not to be seen any more.
    pub(super) fn begin_last_wait(&mut self, key: &Key, task: &ProvisionTask, now: BootTime) {
        let story = self.stories.saved(key, task, now);
        self.effects.extend(story.map(|story| Effect::Over(story.into())));
        match self.world.claim(key) {
            Some(claim) if claim.bound => self.end_story(key, Some(now)),
            Some(_) if self.leadership.is_some() && !self.draining => {}
            _ => self.end_story(key, None),
        }
    }

    /// The `World` sees what we wrote at once, unless the watch has already shown that it is gone again.
    pub(super) fn own_write(&mut self, running: &Running, volume: Option<Box<Volume>>) {
        if let Some(volume) = volume.filter(|_| !running.volume_gone) {
            self.world.see_volume(Arc::from(volume));
        }
    }

    pub(super) fn forget(&mut self, key: &Key) -> Verdict {
        self.entries.remove(key);
        Verdict::Succeeded
    }

    pub(super) fn park(&mut self, key: &Key, running: &Running, reason: &'static str, now: BootTime) {
        self.entries.entry(key.clone()).or_default().park();
        self.wait(key, running.task.uid(), reason, now);
    }

    fn catch_up(&mut self, key: &Key, running: &Running, now: BootTime) {
        self.wait(key, running.task.uid(), story::BACKING_OFF, now);
        let until = now + CATCH_UP;
        self.entries.entry(key.clone()).or_default().state = State::CatchingUp { until };
        self.alarms.push(Reverse((until, key.clone())));
    }

    pub(super) fn back_off(&mut self, key: &Key, running: &Running, wait: Duration, now: BootTime) {
        self.wait(key, running.task.uid(), story::BACKING_OFF, now);
        let until = if known_bugs::is(Bug::RequeueAtOnce) { now } else { now + wait };
        self.entries.entry(key.clone()).or_default().state = State::BackingOff { until };
        self.alarms.push(Reverse((until, key.clone())));
    }

    pub(super) fn failed(
        &mut self,
        key: &Key,
        running: &Running,
        failure: Failure,
        jitter: f64,
        now: BootTime,
    ) -> Verdict {
        self.tell_failure(running, &failure);
        let again = self.try_again(key, running, &failure, jitter, now);
        match failure.reason {
            Reason::VolumeDelete => Verdict::InUse(failure.message, again),
            _ => Verdict::Failed(failure.message, again),
        }
    }

    /// Files the next attempt after a failure; `None`: there is none until something changes.
    fn try_again(
        &mut self,
        key: &Key,
        running: &Running,
        failure: &Failure,
        jitter: f64,
        now: BootTime,
    ) -> Option<Duration> {
        let threshold = self.threshold(running.lane);
        let backoff = self.rules.backoff;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        entry.unknown = match &running.task {
            Task::Provision(task) if failure.unknown => Some(Arc::new(task.clone())),
            _ => None,
        };
        if running.changed {
            return Some(Duration::ZERO);
        }
        if threshold > 0 && entry.failures >= threshold && !failure.unknown {
            self.give_up(key, running, failure, now);
            return None;
        }
        let mut wait = backoff.wait(entry.failures, jitter);
        if failure.slow {
            wait = wait.max(SLOW.min(backoff.max));
        }
        self.back_off(key, running, wait, now);
        Some(wait)
    }

    /// Retries end at the threshold, for the object as it is now.
    fn give_up(&mut self, key: &Key, running: &Running, failure: &Failure, now: BootTime) {
        let attempts = self.entries.get(key).map_or(0, |entry| entry.failures);
        let what = match running.task {
            Task::Provision(_) => "the claim, its class or its node",
            Task::Remove(_) | Task::Orphan(_) => "the volume",
        };
        let message = format!(
            "given up after {attempts} attempts, until {what} changes; the last error: {}",
            failure.message
        );
        self.tell_failure(running, &Failure { message, ..failure.clone() });
        self.park(key, running, story::GIVEN_UP, now);
    }

    pub(super) fn threshold(&self, lane: Lane) -> u32 {
        match lane {
            Lane::Provision => self.rules.provision_threshold,
            Lane::Remove => self.rules.delete_threshold,
            Lane::Tend => 0,
        }
    }

    pub(super) fn tell_failure(&mut self, running: &Running, failure: &Failure) {
        let note = match &running.task {
            Task::Provision(task) => Note::new(&*task.claim, failure.reason, &*failure.message),
            Task::Remove(task) => Note::new(&*task.volume, failure.reason, &*failure.message),
            // There is no object to tell it on; the log and the metrics do.
            Task::Orphan(_) => return,
        };
        self.effects.push(Effect::Tell(note));
    }
}
