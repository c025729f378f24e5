//! Queue of events that are sent concurrently with reconciles, so that a slow API server does not delay them.

use std::time::Duration;

use cluster::EventRecorder;
use futures::StreamExt as _;
use futures::stream;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error_chain::error_chain;

/// Maximum number of concurrent requests that create events.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Capacity of the queue; further events are dropped.
const CAPACITY: usize = 4096;
/// Maximum number of attempts to send an event, and the delay between them, as in client-go.
const MAX_ATTEMPTS: usize = 12;
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Delay between attempts after shutdown.
const SHUTDOWN_RETRY_DELAY: Duration = Duration::from_millis(250);

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
    /// Sends all enqueued events until every sender is dropped. A failed request is retried, after `stop` with a shorter
    /// delay.
    pub(crate) async fn publish(self, recorder: &EventRecorder, stop: &CancellationToken) {
        let events = stream::unfold(self.0, |mut events| async { events.recv().await.map(|event| (event, events)) });
        let send = |event: Value| async move { send_with_retries(recorder, &event, stop).await };
        events.for_each_concurrent(MAX_CONCURRENT_REQUESTS, send).await;
    }
}

/// Sends an event. An earlier attempt whose response was lost may have created it.
async fn send_with_retries(recorder: &EventRecorder, event: &Value, stop: &CancellationToken) {
    for attempt in 1..=MAX_ATTEMPTS {
        match recorder.send(event).await {
            Ok(()) => return,
            Err(error) if error.is_conflict() => return,
            Err(error) if error.is_transient() && attempt < MAX_ATTEMPTS => {}
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "failed to send an event");
                return;
            }
        }
        let delay = if stop.is_cancelled() { SHUTDOWN_RETRY_DELAY } else { RETRY_DELAY };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = stop.cancelled(), if !stop.is_cancelled() => {}
        }
    }
}
