//! Queue of events that are sent concurrently with reconciles, so that a slow API server does not delay them.

use cluster::EventRecorder;
use futures::StreamExt as _;
use futures::stream;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::error_chain::error_chain;

/// Maximum number of concurrent requests that create events.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Capacity of the queue; further events are dropped.
const CAPACITY: usize = 4096;

/// Sending half of the queue.
#[derive(Clone, Debug)]
pub(crate) struct EventSender(mpsc::Sender<Value>);

/// Receiving half of the queue.
#[derive(Debug)]
pub(crate) struct EventReceiver(mpsc::Receiver<Value>);

/// Creates an event queue.
pub(crate) fn event_queue() -> (EventSender, EventReceiver) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    (EventSender(sender), EventReceiver(receiver))
}

// === impl EventSender ===

impl EventSender {
    /// Enqueues an event; drops it if the queue is full.
    pub(crate) fn enqueue(&self, event: Value) {
        if self.0.try_send(event).is_err() {
            tracing::warn!(capacity = CAPACITY, "event queue is full, dropping an event");
        }
    }
}

// === impl EventReceiver ===

impl EventReceiver {
    /// Sends all enqueued events until every sender is dropped.
    pub(crate) async fn publish(self, recorder: &EventRecorder) {
        let events = stream::unfold(self.0, |mut events| async { events.recv().await.map(|event| (event, events)) });
        let send = |event: Value| async move {
            if let Err(error) = recorder.send(&event).await {
                tracing::warn!(error = %error_chain(&error), "failed to send an event");
            }
        };
        events.for_each_concurrent(MAX_CONCURRENT_REQUESTS, send).await;
    }
}
