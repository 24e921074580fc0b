//! A panic on an actor thread ends the controller there, not silently and not the process.
//!
//! actix drops a panicking actor and goes on as if nothing had been (its address closes, `do_send` says
//! nothing). The only place that hears of it is the panic hook, which is one for the whole process; so
//! ours looks at the thread, and passes every panic on to the hook that was there before.

use std::{
    collections::HashMap,
    panic,
    sync::{LazyLock, Mutex, Once, PoisonError},
    thread::{self, ThreadId},
};

use tokio::sync::mpsc;

static WATCHED: LazyLock<Mutex<HashMap<ThreadId, mpsc::UnboundedSender<String>>>> =
    LazyLock::new(Mutex::default);
static HOOK: Once = Once::new();

/// Watches the current thread until it is dropped.
pub(super) struct PanicWatch {
    panics: mpsc::UnboundedReceiver<String>,
}

impl PanicWatch {
    /// Begins to watch the current thread.
    pub(super) fn begin() -> Self {
        HOOK.call_once(|| {
            let previous = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                previous(info);
                report(&info.to_string());
            }));
        });
        let (sender, panics) = mpsc::unbounded_channel();
        watched().insert(thread::current().id(), sender);
        Self { panics }
    }

    /// Waits for a panic on the thread, and tells what it said.
    pub(super) async fn panicked(&mut self) -> String {
        match self.panics.recv().await {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        watched().remove(&thread::current().id());
    }
}

fn report(message: &str) {
    if let Some(sender) = watched().get(&thread::current().id()) {
        // Nobody listens any more when the controller is ending already.
        drop(sender.send(message.to_owned()));
    }
}

fn watched() -> std::sync::MutexGuard<'static, HashMap<ThreadId, mpsc::UnboundedSender<String>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}
