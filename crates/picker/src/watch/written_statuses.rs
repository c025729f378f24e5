//! When statuses are written again that another client replaced.

use std::{collections::BTreeMap, time::Duration};

use cluster::{Kind, NamespacedName};
use serde_json::Value;
use tokio::time::Instant;

/// Time after which a status is restored. Replicas measure different latencies and list models at different times: without a delay,
/// they would replace each other's statuses without end.
pub(super) const RESTORE_DELAY: Duration = Duration::from_secs(30);

/// The statuses `S` that this process has written last.
#[derive(Debug)]
pub(super) struct WrittenStatuses<S>(BTreeMap<(Kind, NamespacedName), WrittenStatus<S>>);

#[derive(Debug)]
struct WrittenStatus<S> {
    /// UID and generation of the object.
    version: (Value, Value),
    status: S,
    restoration: Restoration,
}

/// Whether a status has to be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restoration {
    /// No other client has replaced it.
    NotNeeded,
    /// Another client has replaced it.
    At(Instant),
    /// The delay has elapsed.
    Due,
}

// === impl WrittenStatuses ===

impl<S> Default for WrittenStatuses<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: Clone + PartialEq> WrittenStatuses<S> {
    /// Returns whether `status`, from which that of `live` differs at `now`, is written later: it is the last one, which another client
    /// has replaced.
    pub(super) fn is_postponed(
        &mut self,
        object: &(Kind, NamespacedName),
        live: &Value,
        status: &S,
        now: Instant,
    ) -> bool {
        let is_replaced = |written: &&mut WrittenStatus<S>| {
            written.version == version(live) && written.status == *status && written.restoration != Restoration::Due
        };
        let Some(written) = self.0.get_mut(object).filter(is_replaced) else { return false };
        if written.restoration == Restoration::NotNeeded {
            written.restoration = Restoration::At(now + RESTORE_DELAY);
        }
        true
    }

    /// Records that `live` has this status.
    pub(super) fn record(&mut self, object: (Kind, NamespacedName), live: &Value, status: S) {
        let restoration = Restoration::NotNeeded;
        self.0.insert(object, WrittenStatus { version: version(live), status, restoration });
    }

    /// Forgets an object that was deleted.
    pub(super) fn remove(&mut self, object: &(Kind, NamespacedName)) {
        self.0.remove(object);
    }

    /// Returns when the next status is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let time = |written: &WrittenStatus<S>| match written.restoration {
            Restoration::At(time) => Some(time),
            Restoration::NotNeeded | Restoration::Due => None,
        };
        self.0.values().filter_map(time).min()
    }

    /// Returns the statuses that are due at `now`, each once.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<((Kind, NamespacedName), S)> {
        let is_due = |written: &WrittenStatus<S>| matches!(written.restoration, Restoration::At(time) if time <= now);
        let due = self.0.iter_mut().filter(|(_, written)| is_due(written));
        due.map(|(object, written)| {
            written.restoration = Restoration::Due;
            (object.clone(), written.status.clone())
        })
        .collect()
    }
}

fn version(live: &Value) -> (Value, Value) {
    (live["metadata"]["uid"].clone(), live["metadata"]["generation"].clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::BACKEND_POOL;

    fn object() -> (Kind, NamespacedName) {
        (BACKEND_POOL, NamespacedName::new("ns", "p"))
    }

    fn live(uid: &str, generation: u32) -> Value {
        json!({"metadata": {"uid": uid, "generation": generation}})
    }

    #[test]
    fn replaced_status_is_restored_later() {
        let (mut written, start) = (WrittenStatuses::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!written.is_postponed(&object(), &live("u", 1), &1, start), "it was not written");
        written.record(object(), &live("u", 1), 1);
        assert_eq!(written.next_due(), None);
        assert!(written.is_postponed(&object(), &live("u", 1), &1, at(5)));
        assert!(written.is_postponed(&object(), &live("u", 1), &1, at(20)), "it was replaced again");
        assert_eq!(written.next_due(), Some(at(35)));
        assert_eq!(written.take_due(at(34)), []);
        assert_eq!(written.take_due(at(35)), [(object(), 1)]);
        assert_eq!((written.next_due(), written.take_due(at(36))), (None, Vec::new()), "once");
        assert!(!written.is_postponed(&object(), &live("u", 1), &1, at(36)), "also after a failed write");
        written.record(object(), &live("u", 1), 1);
        assert!(written.is_postponed(&object(), &live("u", 1), &1, at(50)));
        assert_eq!(written.next_due(), Some(at(80)));
    }

    #[test]
    fn new_status_is_written_immediately() {
        let (mut written, now) = (WrittenStatuses::default(), Instant::now());
        written.record(object(), &live("u", 1), 1);
        assert!(written.is_postponed(&object(), &live("u", 1), &1, now));
        for (uid, generation, status) in [("u", 1, 2), ("u", 2, 1), ("v", 1, 1)] {
            assert!(!written.is_postponed(&object(), &live(uid, generation), &status, now));
        }
        written.record(object(), &live("u", 1), 2);
        assert_eq!(written.next_due(), None, "the old status is not restored");
        written.remove(&object());
        assert!(!written.is_postponed(&object(), &live("u", 1), &2, now));
    }
}
