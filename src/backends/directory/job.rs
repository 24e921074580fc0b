//! Blocking file work on behalf of a future: one job per volume at a time, and told when nobody waits.
//!
//! A dropped future does not stop the thread that works for it. So the thread looks at [`Wanted`]
//! between its steps and gives up soon, and it holds the volume's lock until it has really ended: the next
//! call for that volume waits for it (or is cut off at its own deadline) instead of working beside it.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Mutex as AsyncMutex;

use super::name::VolumeName;

/// Whether somebody still waits for the outcome.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    dropped: Arc<AtomicBool>,
}

impl Wanted {
    /// An error once the call has been cancelled.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(io::Error::other("the call was cancelled"));
        }
        Ok(())
    }
}

#[cfg(test)]
impl Wanted {
    /// By nobody any more.
    pub(super) fn no_longer() -> Self {
        Self { dropped: Arc::new(AtomicBool::new(true)) }
    }
}

/// Cancels when the future that holds it is dropped.
struct CancelOnDrop(Wanted);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.dropped.store(true, Ordering::Release);
    }
}

/// A lock per volume. An entry lives as long as somebody holds or awaits its lock.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    locks: Mutex<HashMap<VolumeName, Weak<AsyncMutex<()>>>>,
}

impl Jobs {
    /// Runs `work` on a blocking thread, after any earlier job for the same volume has ended.
    pub(super) async fn run<T, W>(&self, name: &VolumeName, work: W) -> Result<T, tokio::task::JoinError>
    where
        T: Send + 'static,
        W: FnOnce(&Wanted) -> T + Send + 'static,
    {
        let turn = self.lock_of(name).lock_owned().await;
        let cancel = CancelOnDrop(Wanted::default());
        let wanted = cancel.0.clone();
        let job = move || {
            let _turn = turn;
            work(&wanted)
        };
        tokio::task::spawn_blocking(job).await
    }

    fn lock_of(&self, name: &VolumeName) -> Arc<AsyncMutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(name).and_then(Weak::upgrade) {
            return lock;
        }
        // The map never holds more than the calls that run, and the dead entries since the last call.
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(AsyncMutex::new(()));
        locks.insert(name.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_later_job_waits_for_the_straggler_of_a_dropped_call_which_is_told() {
        let jobs = Arc::new(Jobs::default());
        let name = VolumeName::parse("pvc-1").unwrap();
        let (started, begun) = tokio::sync::oneshot::channel();
        let (release, gate) = mpsc::channel::<()>();
        let (report, told) = mpsc::channel();
        let call = tokio::spawn({
            let (jobs, name) = (jobs.clone(), name.clone());
            async move {
                let work = move |wanted: &Wanted| {
                    started.send(()).unwrap();
                    gate.recv().unwrap();
                    report.send(wanted.check().is_err()).unwrap();
                };
                jobs.run(&name, work).await
            }
        });
        begun.await.unwrap();
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());

        // While the straggler stands at the gate nothing was reported; the second job sees the report.
        let mut second = Box::pin(jobs.run(&name, move |_| told.try_recv()));
        assert!(futures::poll!(&mut second).is_pending());
        release.send(()).unwrap();
        assert_eq!(second.await.unwrap(), Ok(true));
    }

    #[tokio::test]
    async fn locks_of_ended_jobs_do_not_pile_up() {
        let jobs = Jobs::default();
        for number in 0..10 {
            let name = VolumeName::parse(&format!("pvc-{number}")).unwrap();
            jobs.run(&name, |_| ()).await.unwrap();
            assert_eq!(jobs.locks.lock().unwrap().len(), 1);
        }
    }
}
