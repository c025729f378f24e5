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
    /// Outages by namespace: a webhook or a quota may concern some namespaces only.
    outages: Mutex<BTreeMap<String, Outage>>,
}

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
                let current = Outage::continued(outages.get(namespace).copied(), Instant::now());
                outages.insert(namespace.to_owned(), current);
                if !current.is_long() {
                    return Err(error);
                }
                tracing::warn!(error = %cluster::error_chain(&error), "the API server stores no events, dropping an event");
            }
            Err(error) => {
                outages.remove(namespace);
                tracing::warn!(error = %cluster::error_chain(&error), "the API server rejected an event");
            }
            Ok(()) => drop(outages.remove(namespace)),
        }
        Ok(())
    }
}

// === impl Outage ===

impl Outage {
    /// Returns the outage with a failure at `now`. Failures are retried within a minute, so an older failure belongs to
    /// another outage.
    fn continued(outage: Option<Outage>, now: Instant) -> Outage {
        let first_failure = match outage {
            Some(outage) if now.duration_since(outage.last_failure) < MAX_OUTAGE => outage.first_failure,
            _ => now,
        };
        Outage { first_failure, last_failure: now }
    }

    fn is_long(&self) -> bool {
        self.last_failure.duration_since(self.first_failure) >= MAX_OUTAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_is_long_after_two_minutes_of_failures() {
        let start = Instant::now();
        let is_long = |seconds: &[u64]| {
            let outage = seconds.iter().fold(None, |outage, seconds| {
                Some(Outage::continued(outage, start.checked_add(Duration::from_secs(*seconds)).unwrap()))
            });
            outage.unwrap().is_long()
        };
        assert!(!is_long(&[0]));
        assert!(!is_long(&[0, 60, 119]));
        assert!(is_long(&[0, 60, 120]));
        assert!(!is_long(&[0, 120, 239]), "the second failure begins another outage");
        assert!(is_long(&[0, 120, 200, 240]));
    }
}
