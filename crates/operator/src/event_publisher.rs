//! Publishes events before the state that records them, so that a crash or a lost Lease in between repeats the event
//! instead of losing it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::{Error, EventRecorder, Transition, metadata_field, transition_event_name};
use futures::future::join_all;
use serde_json::Value;
use tokio::time::Instant;

/// How long statuses wait for an API server that stores no events. client-go drops an event after the same time.
const MAX_OUTAGE: Duration = Duration::from_secs(120);

/// How long after a transition an equal status may be written with the same time: a second, plus the duration of the writes.
const MAX_EQUAL_STATUS_TIME: Duration = Duration::from_secs(5);

/// Publishes the events of one operator.
pub(crate) struct EventPublisher {
    recorder: EventRecorder,
    outages: Mutex<Outages>,
    occurrences: Mutex<Occurrences>,
}

/// Maximum number of transitions that are counted; each needs at most about 300 bytes. Without a count, a further
/// transition from an equal status within a second has no event of its own.
const MAX_OCCURRENCES: usize = 1024;

/// How often each transition was recorded recently, by the name of its first event.
#[derive(Debug, Default)]
struct Occurrences(BTreeMap<String, Occurrence>);

/// How often a transition was recorded recently.
#[derive(Clone, Copy, Debug)]
struct Occurrence {
    count: u32,
    last: Instant,
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
        EventPublisher { recorder, outages: Mutex::default(), occurrences: Mutex::default() }
    }

    /// Publishes transitions that the status of `object` does not record yet, all at the same time.
    ///
    /// # Errors
    /// An event could not be created, and the same request may succeed later: the status must not be written yet. A
    /// rejected event is logged, and so are all events of a namespace once the API server has stored none for two minutes.
    pub(crate) async fn publish_transitions(&self, object: &Value, transitions: &[Transition]) -> Result<(), Error> {
        let names = self.names(object, transitions);
        let requests = transitions
            .iter()
            .zip(names)
            .map(|(transition, name)| self.recorder.publish_transition(object, "Reconcile", transition, name));
        join_all(requests).await.into_iter().map(|result| self.settle(object, result)).fold(Ok(()), Result::and)
    }

    /// Returns the names of the events about transitions from the status of `object`.
    fn names(&self, object: &Value, transitions: &[Transition]) -> Vec<String> {
        let occurrences = self.occurrences();
        let name = |transition: &Transition| {
            let first = transition_event_name(object, transition, 0);
            match occurrences.count(&first) {
                0 => first,
                count => transition_event_name(object, transition, count),
            }
        };
        transitions.iter().map(name).collect()
    }

    /// Notes that the status of `object` was replaced by one that records the transitions: a further transition from an equal
    /// status is another one, with an event of its own.
    pub(crate) fn note_recorded(&self, object: &Value, transitions: &[Transition]) {
        let names = transitions.iter().map(|transition| transition_event_name(object, transition, 0));
        self.occurrences().add(names, Instant::now());
    }

    fn occurrences(&self) -> MutexGuard<'_, Occurrences> {
        self.occurrences.lock().unwrap_or_else(PoisonError::into_inner)
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
            Err(error) if error.is_transient() || error.is_conflict() => {
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

// === impl Occurrences ===

impl Occurrences {
    fn count(&self, name: &str) -> u32 {
        self.0.get(name).map_or(0, |occurrence| occurrence.count)
    }

    /// Counts transitions, and forgets those whose status is written with another time if it is written again, and the
    /// oldest ones if there are too many.
    fn add(&mut self, names: impl IntoIterator<Item = String>, now: Instant) {
        self.0.retain(|_, occurrence| now.duration_since(occurrence.last) < MAX_EQUAL_STATUS_TIME);
        for name in names {
            let occurrence = self.0.entry(name).or_insert(Occurrence { count: 0, last: now });
            *occurrence = Occurrence { count: occurrence.count.saturating_add(1), last: now };
        }
        while self.0.len() > MAX_OCCURRENCES
            && let Some(oldest) = self.0.iter().min_by_key(|(_, occurrence)| occurrence.last)
        {
            let oldest = oldest.0.clone();
            self.0.remove(&oldest);
        }
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
    fn transitions_are_counted_for_seconds() {
        let (start, mut occurrences) = (Instant::now(), Occurrences::default());
        for seconds in [0, 0, 4] {
            occurrences.add(["a".to_owned()], instant(start, seconds));
        }
        assert_eq!((occurrences.count("a"), occurrences.count("b")), (3, 0));
        occurrences.add(["b".to_owned()], instant(start, 9));
        assert_eq!((occurrences.0.len(), occurrences.count("b")), (1, 1), "earlier transitions are forgotten");
    }

    #[test]
    fn counted_transitions_are_limited() {
        let (start, mut occurrences) = (Instant::now(), Occurrences::default());
        let after = |milliseconds| start.checked_add(Duration::from_millis(milliseconds)).unwrap();
        for number in 0..3 * MAX_OCCURRENCES as u64 {
            occurrences.add([number.to_string()], after(number / 10));
            assert!(occurrences.0.len() <= MAX_OCCURRENCES);
        }
        let newest = (3 * MAX_OCCURRENCES - 1).to_string();
        assert_eq!((occurrences.count(&newest), occurrences.count("0")), (1, 0), "the oldest are forgotten");
        let names = (0..2 * MAX_OCCURRENCES).map(|number| format!("equal{number}"));
        occurrences.add(names, after(4000));
        assert!(occurrences.0.len() <= MAX_OCCURRENCES, "transitions at the same time");
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
