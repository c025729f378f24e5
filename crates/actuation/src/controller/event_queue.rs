//! Publishes Events in the background: they neither delay decisions nor prevent them.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::catch_future_panic;
use cluster::{EventRecorder, Transition};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::event::PodEvent;
use crate::pod_ref::PodRef;

/// Maximum number of Events that wait for the API server.
const MAX_WAITING: usize = 256;
/// How long Events are published after the end of the term.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Events of one Pod in a short time, and the time after which it may have another one: as client-go limits the Events of an object.
const BURST: u32 = 25;
const REFILL_INTERVAL: Duration = Duration::from_secs(300);
/// Maximum number of Pods whose Events are counted; each needs about 100 bytes.
const MAX_COUNTED_PODS: usize = 4096;

/// Queue of Events.
#[derive(Clone)]
pub(super) struct EventQueue(mpsc::Sender<PodEvent>);

/// The task that publishes the Events of a queue.
pub(super) struct EventPublisher(AbortOnDropHandle<()>);

/// Limits the Events of each Pod.
#[derive(Debug, Default)]
struct EventLimits(BTreeMap<String, EventLimit>);

#[derive(Clone, Copy, Debug)]
struct EventLimit {
    remaining: u32,
    refilled: Instant,
}

/// Returns a queue, and starts the task that publishes its Events with `recorder`.
pub(super) fn start(recorder: EventRecorder) -> (EventQueue, EventPublisher) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    (EventQueue(sender), EventPublisher(AbortOnDropHandle::new(tokio::spawn(publish_all(recorder, receiver)))))
}

async fn publish_all(recorder: EventRecorder, mut events: mpsc::Receiver<PodEvent>) {
    let mut limits = EventLimits::default();
    while let Some(event) = events.recv().await {
        if !limits.permit(&event.pod.uid, Instant::now()) {
            tracing::debug!(pod = event.pod.name, reason = event.reason, "the Pod has too many Events, dropping one");
            continue;
        }
        let PodEvent { pod, is_warning, reason, action, message } = event;
        let transition = Transition { warning: is_warning, reason: reason.to_owned(), message };
        let object = regarding(&pod);
        match catch_future_panic(recorder.publish(&object, action, &transition)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = %cluster::error_chain(&error), "failed to publish an Event"),
            Err(panic) => tracing::error!(%panic, "failed to publish an Event"),
        }
    }
}

/// Returns the fields of a Pod that an Event refers to.
fn regarding(pod: &PodRef) -> serde_json::Value {
    let PodRef { namespace, name, uid, resource_version, .. } = pod;
    let metadata = json!({"namespace": namespace, "name": name, "uid": uid, "resourceVersion": resource_version});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
}

// === impl EventQueue ===

impl EventQueue {
    /// Adds an Event, unless the API server takes too long to store the earlier ones.
    pub(super) fn push(&self, event: PodEvent) {
        if let Err(error) = self.0.try_send(event) {
            tracing::warn!(%error, "the API server stores Events too slowly, dropping one");
        }
    }
}

// === impl EventPublisher ===

impl EventPublisher {
    /// Waits until the remaining Events are published. All queues are dropped before.
    pub(super) async fn close(self) {
        if timeout(CLOSE_TIMEOUT, self.0).await.is_err() {
            tracing::warn!("the API server stores Events too slowly, dropping the remaining ones");
        }
    }
}

// === impl EventLimits ===

impl EventLimits {
    /// Returns whether the Pod may have a further Event now.
    fn permit(&mut self, uid: &str, now: Instant) -> bool {
        if !self.0.contains_key(uid) && self.0.len() >= MAX_COUNTED_PODS {
            self.0.retain(|_, limit| limit.refill(now).remaining < BURST);
            if self.0.len() >= MAX_COUNTED_PODS {
                return false;
            }
        }
        let limit = self.0.entry(uid.to_owned()).or_insert(EventLimit { remaining: BURST, refilled: now });
        *limit = limit.refill(now);
        let is_permitted = limit.remaining > 0;
        limit.remaining = limit.remaining.saturating_sub(1);
        is_permitted
    }
}

// === impl EventLimit ===

impl EventLimit {
    /// Returns the limit after the time that has passed.
    fn refill(self, now: Instant) -> EventLimit {
        let intervals = now.duration_since(self.refilled).as_secs().checked_div(REFILL_INTERVAL.as_secs()).unwrap_or(0);
        let intervals = u32::try_from(intervals).unwrap_or(BURST);
        match intervals {
            0 => self,
            _ => EventLimit { remaining: self.remaining.saturating_add(intervals).min(BURST), refilled: now },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_pod_are_limited() {
        let (mut limits, start) = (EventLimits::default(), Instant::now());
        let permitted = |limits: &mut EventLimits, uid: &str, now| (0..100).filter(|_| limits.permit(uid, now)).count();
        assert_eq!(permitted(&mut limits, "a", start), 25);
        assert_eq!(permitted(&mut limits, "b", start), 25, "pods are limited separately");
        assert_eq!(permitted(&mut limits, "a", start + REFILL_INTERVAL * 2), 2);
    }

    #[test]
    fn counted_pods_are_limited() {
        let (mut limits, start) = (EventLimits::default(), Instant::now());
        let permitted = (0..2 * MAX_COUNTED_PODS).filter(|number| limits.permit(&number.to_string(), start)).count();
        assert_eq!((permitted, limits.0.len()), (MAX_COUNTED_PODS, MAX_COUNTED_PODS));
        assert!(limits.permit("later", start + REFILL_INTERVAL));
        assert_eq!(limits.0.len(), 1, "those without recent Events are forgotten");
    }
}
