//! SIGTERM and SIGINT: the first asks to stop, the second ends the process at once.

use std::{
    future::Future,
    io::{self, Write as _},
    pin::pin,
    process,
};

use futures::{Stream, StreamExt as _, stream};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use super::exit;

/// Takes over both signals; the future is ready at the first one.
///
/// # Errors
/// The system refuses a signal handler.
pub(super) fn stop() -> io::Result<impl Future<Output = ()>> {
    let kinds = Signals::listen()?.into_stream();
    let (asked, first) = oneshot::channel();
    // A task of its own, so that a second signal ends the process whatever the first has set going.
    tokio::spawn(end_at_second(kinds, asked, process_ends));
    Ok(async move {
        // The sender is only dropped unused together with the runtime.
        let _ = first.await;
    })
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { terminate, interrupt })
    }

    fn into_stream(self) -> impl Stream<Item = SignalKind> + Send {
        stream::unfold(self, |mut signals| async move { Some((signals.next().await, signals)) })
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }
}

async fn end_at_second(
    kinds: impl Stream<Item = SignalKind>,
    asked: oneshot::Sender<()>,
    end: impl FnOnce(u8),
) {
    let mut kinds = pin!(kinds);
    if let Some(first) = kinds.next().await {
        tracing::info!(
            signal = first.as_raw_value(),
            "asked to stop; a second signal ends the process at once"
        );
        // Nobody listens any more when the controller has ended by itself.
        let _ = asked.send(());
    }
    if let Some(second) = kinds.next().await {
        end(code_of(second));
    }
}

/// What shells report for a process that this signal ended.
fn code_of(kind: SignalKind) -> u8 {
    exit::SIGNAL.saturating_add(u8::try_from(kind.as_raw_value()).unwrap_or_default())
}

fn process_ends(code: u8) {
    // Not eprintln: it panics where nobody reads, and this must end.
    let _ = writeln!(io::stderr(), "kube-provisioner: second signal, ending at once");
    process::exit(code.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_signal_asks_to_stop_and_the_second_ends_with_its_number() {
        let (asked, first) = oneshot::channel();
        let kinds = stream::iter([SignalKind::terminate(), SignalKind::interrupt()]);
        let mut code = None;
        end_at_second(kinds, asked, |ended| code = Some(ended)).await;
        assert_eq!(first.await, Ok(()));
        assert_eq!(code, Some(130));
        assert_eq!(code_of(SignalKind::terminate()), 143);
    }

    #[tokio::test]
    async fn one_signal_alone_never_ends_the_process() {
        let (asked, first) = oneshot::channel();
        let kinds = stream::iter([SignalKind::terminate()]);
        end_at_second(kinds, asked, |_| panic!("ended after one signal")).await;
        assert_eq!(first.await, Ok(()));
    }
}
