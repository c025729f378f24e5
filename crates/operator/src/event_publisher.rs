//! Publishes events before the state that records them, so that a crash or a lost Lease in between repeats the event
//! instead of losing it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cluster::{Error, EventRecorder, Transition, metadata_field};
use futures::future::join_all;
use serde_json::Value;
use tokio::time::Instant;

/// How long statuses wait for an API server that stores no events. client-go drops an event after the same time.
const MAX_OUTAGE: Duration = Duration::from_secs(120);

/// Publishes the events of one operator.
pub(crate) struct EventPublisher {
    recorder: EventRecorder,
    outages: Mutex<Outages>,
}

/// Outages by namespace: a webhook or a quota may concern some namespaces only.
#[derive(Debug, Default)]
struct Outages(BTreeMap<String, Outage>);

/// Consecutive failures to create events.
#[derive(Clone, Copy, Debug)]
struct Outage {
    first_failure: Instant,
    last_failure: Instant,
}

// === impl EventPublisher ===

impl EventPublisher {
    /// Returns a publisher that creates events with `recorder`.
    pub(crate) fn new(recorder: EventRecorder) -> EventPublisher {
        EventPublisher { recorder, outages: Mutex::default() }
    }

    /// Publishes transitions that the status of `object` does not record yet, all at the same time.
    ///
    /// # Errors
    /// An event could not be created, and the same request may succeed later: the status must not be written yet. A
    /// rejected event is logged, and so are all events of a namespace once the API server has stored none for two minutes.
    pub(crate) async fn publish_transitions(&self, object: &Value, transitions: &[Transition]) -> Result<(), Error> {
        let requests =
            transitions.iter().map(|transition| self.recorder.publish_transition(object, "Reconcile", transition));
        join_all(requests).await.into_iter().map(|result| self.settle(object, result)).fold(Ok(()), Result::and)
    }

    /// Publishes an event about the content of `object`, once for the same content and message.
    ///
    /// # Errors
    /// Same as [`Self::publish_transitions`].
    pub(crate) async fn publish_once(
        &self,
        object: &Value,
        action: &str,
        transition: &Transition,
    ) -> Result<(), Error> {
        self.settle(object, self.recorder.publish_once(object, action, transition).await)
    }

    /// Returns an error only if its event is to be published again.
    fn settle(&self, object: &Value, result: Result<(), Error>) -> Result<(), Error> {
        let namespace = metadata_field(object, "namespace");
        let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Err(error) if error.is_transient() => {
                if !outages.record_failure(namespace, Instant::now()).is_long() {
                    return Err(error);
                }
                tracing::warn!(error = %cluster::error_chain(&error), "the API server stores no events, dropping an event");
            }
            Err(error) if error.is_namespace_deleted() => outages.end(namespace),
            Err(error) => {
                outages.end(namespace);
                tracing::warn!(error = %cluster::error_chain(&error), "the API server rejected an event");
            }
            Ok(()) => outages.end(namespace),
        }
        Ok(())
    }
}

// === impl Outages ===

impl Outages {
    /// Returns the outage of the namespace with a failure at `now`. Failures are retried within a minute, so an older failure
    /// belongs to another outage.
    fn record_failure(&mut self, namespace: &str, now: Instant) -> Outage {
        self.0.retain(|_, outage| now.duration_since(outage.last_failure) < MAX_OUTAGE);
        let new = Outage { first_failure: now, last_failure: now };
        let outage = self.0.entry(namespace.to_owned()).or_insert(new);
        outage.last_failure = now;
        *outage
    }

    fn end(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }
}

// === impl Outage ===

impl Outage {
    fn is_long(&self) -> bool {
        self.last_failure.duration_since(self.first_failure) >= MAX_OUTAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(start: Instant, seconds: u64) -> Instant {
        start.checked_add(Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn outage_is_long_after_two_minutes_of_failures() {
        let start = Instant::now();
        let is_long = |seconds: &[u64]| {
            let mut outages = Outages::default();
            let failures = seconds.iter().map(|seconds| outages.record_failure("a", instant(start, *seconds)));
            failures.last().unwrap().is_long()
        };
        assert!(!is_long(&[0]));
        assert!(!is_long(&[0, 60, 119]));
        assert!(is_long(&[0, 60, 120]));
        assert!(!is_long(&[0, 120, 239]), "the second failure begins another outage");
        assert!(is_long(&[0, 120, 200, 240]));
    }

    #[test]
    fn events_of_one_namespace_do_not_end_the_outage_of_another() {
        let (start, mut outages) = (Instant::now(), Outages::default());
        for seconds in [0, 60] {
            outages.record_failure("a", instant(start, seconds));
            outages.record_failure("b", instant(start, seconds));
            outages.end("b");
        }
        assert!(outages.record_failure("a", instant(start, 120)).is_long());
        assert!(!outages.record_failure("b", instant(start, 120)).is_long());
        outages.record_failure("c", instant(start, 600));
        assert_eq!(outages.0.len(), 1, "outages that have ended are forgotten");
    }
}
