//! How watches flow: freely, frozen, half open, cut. The bodies of watches look here before each piece.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures::stream;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio::sync::watch;

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
        metered(body, flow)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn metered(body: Incoming, flow: watch::Receiver<Flow>) -> Body {
    let frames = stream::unfold((body, flow), |(mut body, mut flow)| async move {
        let frame = next(&mut body, &mut flow).await?;
        Some((frame, (body, flow)))
    });
    StreamBody::new(frames).boxed()
}

async fn next(body: &mut Incoming, flow: &mut watch::Receiver<Flow>) -> Option<Result<Frame<Bytes>, Error>> {
    loop {
        let now = *flow.borrow_and_update();
        let turned = match now {
            Flow::Cut => return Some(Err("the watch was cut".into())),
            Flow::Free => tokio::select! {
                biased;
                turned = flow.changed() => turned,
                frame = body.frame() => return frame.map(|frame| frame.map_err(Into::into)),
            },
            Flow::Frozen | Flow::HalfOpen => flow.changed().await,
        };
        if turned.is_err() {
            return Some(Err("the proxy has ended".into()));
        }
    }
}
