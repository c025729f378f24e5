//! When statuses are written again that another client replaced.

use std::{collections::BTreeMap, time::Duration};

use cluster::{Kind, NamespacedName};
use serde_json::Value;
use tokio::time::Instant;

/// Time after which a status is restored. Replicas measure different latencies and list models at different times: without a delay,
/// they would replace each other's statuses without end.
pub(super) const RESTORE_DELAY: Duration = Duration::from_secs(30);

/// The statuses `S` that this process has written.
#[derive(Debug)]
pub(super) struct WrittenStatuses<S>(BTreeMap<(Kind, NamespacedName), WrittenStatus<S>>);

#[derive(Debug)]
struct WrittenStatus<S> {
    /// UID and generation of the object.
    version: (Value, Value),
    status: S,
    /// When the status is written again, if another client has replaced it.
    restore_at: Option<Instant>,
}

// === impl WrittenStatuses ===

impl<S> Default for WrittenStatuses<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: PartialEq> WrittenStatuses<S> {
    /// Returns when to write `status`, from which that of `live` differs at `now`: immediately, unless another client has replaced it.
    pub(super) fn write_time(
        &mut self,
        object: &(Kind, NamespacedName),
        live: &Value,
        status: &S,
        now: Instant,
    ) -> Instant {
        match self.0.get_mut(object) {
            Some(written) if written.version == version(live) && written.status == *status => {
                *written.restore_at.get_or_insert(now + RESTORE_DELAY)
            }
            _ => now,
        }
    }

    /// Records that `live` has this status.
    pub(super) fn record(&mut self, object: (Kind, NamespacedName), live: &Value, status: S) {
        self.0.insert(object, WrittenStatus { version: version(live), status, restore_at: None });
    }

    /// Forgets an object that was deleted.
    pub(super) fn remove(&mut self, object: &(Kind, NamespacedName)) {
        self.0.remove(object);
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

    #[test]
    fn replaced_status_is_restored_later() {
        let object = (BACKEND_POOL, NamespacedName::new("ns", "p"));
        let live = |uid: &str, generation: u32| json!({"metadata": {"uid": uid, "generation": generation}});
        let (mut written, start) = (WrittenStatuses::default(), Instant::now());
        let second = Duration::from_secs(1);
        let delay = |written: &mut WrittenStatuses<u8>, uid, generation, status, seconds: u32| {
            let time = written.write_time(&object, &live(uid, generation), &status, start + second * seconds);
            time.duration_since(start).as_secs()
        };
        assert_eq!(delay(&mut written, "u", 1, 1, 0), 0, "it was not written");
        written.record(object.clone(), &live("u", 1), 1);
        assert_eq!(delay(&mut written, "u", 1, 1, 5), 35);
        assert_eq!(delay(&mut written, "u", 1, 1, 20), 35, "it was replaced again");
        assert_eq!(delay(&mut written, "u", 1, 2, 20), 20, "it changed");
        assert_eq!(delay(&mut written, "u", 2, 1, 20), 20, "the object changed");
        assert_eq!(delay(&mut written, "v", 1, 1, 20), 20, "the object was created again");
        written.record(object.clone(), &live("u", 1), 1);
        assert_eq!(delay(&mut written, "u", 1, 1, 50), 80);
        written.remove(&object);
        assert_eq!(delay(&mut written, "u", 1, 1, 50), 50);
    }
}
