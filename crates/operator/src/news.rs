//! Events on their way: what a reconcile has to tell is sent beside it, a few at a time, so that a server that is slow to
//! take news holds no work up.

use cluster::events::Recorder;
use futures::StreamExt as _;
use futures::stream;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::run::chain;

/// Events that are sent at the same time.
const SENT: usize = 8;
/// Events that wait to be sent; where a server takes none for so long, further ones are lost.
const WAITING: usize = 4096;

/// Where events are handed in.
#[derive(Clone, Debug)]
pub(crate) struct Feed(mpsc::Sender<Value>);

/// Where they come out.
#[derive(Debug)]
pub(crate) struct Outlet(mpsc::Receiver<Value>);

/// A way for events, and its end.
pub(crate) fn feed() -> (Feed, Outlet) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Feed(sender), Outlet(receiver))
}

// === impl Feed ===

impl Feed {
    /// News that get lost stop nothing.
    pub(crate) fn tell(&self, event: Value) {
        if self.0.try_send(event).is_err() {
            tracing::warn!("event was lost: the API server takes none");
        }
    }
}

// === impl Outlet ===

impl Outlet {
    /// Sends everything that comes, until nobody can hand in any more.
    pub(crate) async fn publish(self, recorder: &Recorder) {
        let events = stream::unfold(self.0, |mut events| async { events.recv().await.map(|event| (event, events)) });
        let send = |event: Value| async move {
            if let Err(error) = recorder.send(&event).await {
                tracing::warn!(error = %chain(&error), "event was lost");
            }
        };
        events.for_each_concurrent(SENT, send).await;
    }
}
