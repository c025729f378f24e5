//! Changes whose handling panicked. They are handled again with increasing delays, and the others are handled meanwhile.

use std::collections::BTreeMap;

use cluster::{Change, Kind, NamespacedName, WorkQueue};
use tokio::time::Instant;

/// Kind and object of a change; the completed first list of a kind has no object.
type ChangeKey = (Kind, Option<NamespacedName>);

/// The changes that wait for another attempt, one per object.
#[derive(Debug, Default)]
pub(crate) struct FailedChanges {
    waiting: BTreeMap<ChangeKey, Change>,
    retries: WorkQueue<ChangeKey>,
}

// === impl FailedChanges ===

impl FailedChanges {
    /// Merges `change` into the waiting change of the same object; returns false if there is none.
    pub(super) fn merge(&mut self, change: &Change) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let Some(waiting) = self.waiting.get_mut(&change_key(change)) else { return false };
        if let (Change::Object { old, new, .. }, Change::Object { old: latest_old, new: latest, .. }) =
            (waiting, change)
        {
            // The failed attempt may have applied a part of a creation.
            *old = old.take().or_else(|| latest_old.clone());
            new.clone_from(latest);
        }
        true
    }

    /// Records that the handling of `change` panicked.
    pub(super) fn record(&mut self, change: &Change, now: Instant) {
        let key = change_key(change);
        self.waiting.insert(key.clone(), change.clone());
        self.retries.retry(key, now);
    }

    /// Returns a change that is due for another attempt, which ends with [`Self::record`] or [`Self::done`].
    pub(super) fn pop(&mut self, now: Instant) -> Option<Change> {
        let key = self.retries.pop(now)?;
        self.waiting.remove(&key)
    }

    /// Records that the handling of a change from [`Self::pop`] succeeded.
    pub(super) fn done(&mut self, change: &Change) {
        self.retries.done(&change_key(change));
    }

    /// Returns when the next attempt is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.retries.next_due()
    }
}

fn change_key(change: &Change) -> ChangeKey {
    match change {
        Change::Synced(kind) => (*kind, None),
        Change::Object { kind, key, .. } => (*kind, Some(key.clone())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::kinds::{NODE, POD};

    type Versions = (Option<u64>, Option<u64>);

    fn change(name: &str, (old, new): Versions) -> Change {
        let version = |number: Option<u64>| number.map(|number| Arc::new(json!(number)));
        Change::Object { kind: POD, key: NamespacedName::new("n", name), old: version(old), new: version(new) }
    }

    #[rstest]
    #[case::updates((Some(1), Some(2)), (Some(2), Some(3)), (Some(1), Some(3)))]
    #[case::creation_and_update((None, Some(1)), (Some(1), Some(2)), (Some(1), Some(2)))]
    #[case::creation_and_deletion((None, Some(1)), (Some(1), None), (Some(1), None))]
    #[case::deletion_and_creation((Some(1), None), (None, Some(2)), (Some(1), Some(2)))]
    fn later_changes_of_an_object_are_merged(
        #[case] failed: Versions,
        #[case] later: Versions,
        #[case] expected: Versions,
    ) {
        let (now, mut changes) = (Instant::now(), FailedChanges::default());
        changes.record(&change("a", failed), now);
        assert!(changes.merge(&change("a", later)));
        assert!(!changes.merge(&change("b", later)), "other objects do not wait");
        assert_eq!(changes.pop(now), None);
        assert_eq!(changes.pop(changes.next_due().unwrap()), Some(change("a", expected)));
        assert!(!changes.merge(&change("a", later)), "a change that is handled again does not wait");
    }

    #[test]
    fn first_lists_wait_like_objects() {
        let mut changes = FailedChanges::default();
        changes.record(&Change::Synced(POD), Instant::now());
        assert!(changes.merge(&Change::Synced(POD)) && !changes.merge(&Change::Synced(NODE)));
        assert!(!changes.merge(&change("a", (None, Some(1)))));
    }

    #[test]
    fn delays_double_until_an_attempt_succeeds() {
        let (mut now, mut changes) = (Instant::now(), FailedChanges::default());
        let change = change("a", (None, Some(1)));
        let mut fail = |changes: &mut FailedChanges| {
            changes.record(&change, now);
            let due = changes.next_due().unwrap();
            let delay = due.duration_since(now);
            now = due;
            assert_eq!(changes.pop(due).as_ref(), Some(&change));
            delay
        };
        let delays: Vec<Duration> = (0..10).map(|_| fail(&mut changes)).collect();
        assert_eq!((delays[0].as_millis(), delays[1].as_millis(), delays[9].as_secs()), (200, 400, 60));
        changes.done(&change);
        assert_eq!(changes.next_due(), None);
        assert_eq!(fail(&mut changes).as_millis(), 200);
    }
}
