//! How watches flow: freely, late, frozen, half open, cut. The bodies of watches look here before each piece.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::stream;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Any error.
pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;
/// The body of any answer.
pub(super) type Body = BoxBody<Bytes, Error>;

/// What becomes of a watch's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// They pass.
    Free,
    /// They wait.
    Frozen,
    /// They never come, and nobody is told.
    HalfOpen,
    /// The connection ends.
    Cut,
}

/// All watches.
#[derive(Debug, Default)]
pub(super) struct Flows(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    frozen: BTreeSet<String>,
    delays: BTreeMap<String, watch::Sender<Duration>>,
    open: Vec<(String, watch::Sender<Flow>)>,
}

impl Flows {
    /// Freezes open and later watches of a resource, or lets them go on.
    pub(super) fn hold(&self, resource: &str, frozen: bool) {
        let mut state = self.lock();
        if frozen {
            state.frozen.insert(resource.to_owned());
        } else {
            state.frozen.remove(resource);
        }
        let (from, to) = if frozen { (Flow::Free, Flow::Frozen) } else { (Flow::Frozen, Flow::Free) };
        for (_, flow) in state.open.iter().filter(|(of, _)| of == resource) {
            flow.send_if_modified(|now| {
                let fits = *now == from;
                *now = if fits { to } else { *now };
                fits
            });
        }
    }

    /// Open and later watches of a resource deliver so much later.
    pub(super) fn delay(&self, resource: &str, by: Duration) {
        self.lock().delays.entry(resource.to_owned()).or_default().send_replace(by);
    }

    /// Turns the open watches of a resource; how many there were.
    pub(super) fn turn(&self, resource: &str, to: Flow) -> usize {
        let mut state = self.lock();
        state.open.retain(|(_, flow)| !flow.is_closed());
        let of_resource = state.open.iter().filter(|(of, _)| of == resource);
        of_resource.map(|(_, flow)| flow.send_replace(to)).filter(|was| *was != to).count()
    }

    /// A new watch's body.
    pub(super) fn body(&self, resource: &str, body: Incoming) -> Body {
        let mut state = self.lock();
        let now = if state.frozen.contains(resource) { Flow::Frozen } else { Flow::Free };
        let (sender, flow) = watch::channel(now);
        state.open.retain(|(_, flow)| !flow.is_closed());
        state.open.push((resource.to_owned(), sender));
        let delay = state.delays.entry(resource.to_owned()).or_default().subscribe();
        let metered = Metered { body, flow, delay, late: VecDeque::new(), ended: false };
        let frames = stream::unfold(metered, |mut metered| async move {
            let frame = metered.next().await?;
            Some((frame, metered))
        });
        StreamBody::new(frames).boxed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Piece = Result<Frame<Bytes>, Error>;

/// A watch's body on its way.
struct Metered {
    body: Incoming,
    flow: watch::Receiver<Flow>,
    delay: watch::Receiver<Duration>,
    /// What has come from the server, and when it may go on.
    late: VecDeque<(Instant, Piece)>,
    /// Whether all has come.
    ended: bool,
}

impl Metered {
    async fn next(&mut self) -> Option<Piece> {
        loop {
            let now = *self.flow.borrow_and_update();
            let turned = match now {
                Flow::Cut => return Some(Err("the watch was cut".into())),
                Flow::Free if self.ended && self.late.is_empty() => return None,
                Flow::Free => {
                    let due = self.late.front().map(|(due, _)| *due);
                    tokio::select! {
                        biased;
                        turned = self.flow.changed() => turned,
                        () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                            return self.late.pop_front().map(|(_, piece)| piece);
                        }
                        frame = self.body.frame(), if !self.ended => {
                            self.came(frame);
                            continue;
                        }
                    }
                }
                Flow::Frozen | Flow::HalfOpen => self.flow.changed().await,
            };
            if turned.is_err() {
                return Some(Err("the proxy has ended".into()));
            }
        }
    }

    /// Also the end is late.
    fn came(&mut self, frame: Option<Result<Frame<Bytes>, hyper::Error>>) {
        let due = Instant::now() + *self.delay.borrow();
        match frame {
            Some(frame) => self.late.push_back((due, frame.map_err(Into::into))),
            None => self.ended = true,
        }
    }
}
