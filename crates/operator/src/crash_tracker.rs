//! Counts Pods that crashed and were replaced.
//!
//! LeaderWorkerSet recreates a group as soon as one of its containers restarts, so the restart counts of its Pods stay
//! at zero. The tracker counts the recently crashed Pods of each set instead.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cluster::{Change, NamespacedName, generation, is_terminating, metadata_field};
use jiff::{SignedDuration, Timestamp};
use plan::labels::LEADER_WORKER_SET_NAME;
use serde_json::Value;

use crate::kinds::{LEADER_WORKER_SET, POD};
use crate::readiness::has_crashed;

/// Time after which a crash is ignored, equal to the time after which the kubelet resets its restart back-off.
const CRASH_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Maximum number of stored crashes per set; more would not change the status.
const MAX_CRASHES_PER_SET: usize = 16;

/// Crashed Pods of each LeaderWorkerSet: UID of the Pod, and the time of the first observation.
#[derive(Debug, Default)]
pub(crate) struct CrashTracker {
    crashes: Mutex<BTreeMap<NamespacedName, Vec<(String, Timestamp)>>>,
}

// === impl CrashTracker ===

impl CrashTracker {
    /// Applies a change of a Pod or a set. Crashes of a changed or deleted set are discarded.
    pub(crate) fn apply(&self, change: &Change, now: Timestamp) {
        let Change::Object { kind, key, old, new } = change else { return };
        let mut crashes = self.crashes.lock().unwrap_or_else(PoisonError::into_inner);
        match (*kind, new.as_ref().or(old.as_ref())) {
            // The containers of a terminating Pod are stopped; engines exit with 143 or 137 then.
            (POD, Some(pod)) if has_crashed(pod) && !is_terminating(pod) => record_crash(&mut crashes, pod, now),
            (LEADER_WORKER_SET, Some(set)) => {
                let is_unchanged = new.is_some() && old.as_ref().is_none_or(|old| generation(old) == generation(set));
                if !is_unchanged {
                    crashes.remove(key);
                }
            }
            _ => {}
        }
    }

    /// Returns the number of recently crashed Pods of a set.
    pub(crate) fn recent_crashes(&self, set: &NamespacedName, now: Timestamp) -> usize {
        let crashes = self.crashes.lock().unwrap_or_else(PoisonError::into_inner);
        crashes.get(set).map_or(0, |crashes| crashes.iter().filter(|(_, time)| is_recent(*time, now)).count())
    }
}

fn record_crash(crashes: &mut BTreeMap<NamespacedName, Vec<(String, Timestamp)>>, pod: &Value, now: Timestamp) {
    let Some(set) = pod["metadata"]["labels"][LEADER_WORKER_SET_NAME].as_str() else { return };
    // Any Pod may have the label, also without such a set.
    crashes.retain(|_, crashes| {
        crashes.retain(|(_, time)| is_recent(*time, now));
        !crashes.is_empty()
    });
    let crashes = crashes.entry(NamespacedName::new(metadata_field(pod, "namespace"), set)).or_default();
    let uid = metadata_field(pod, "uid");
    if crashes.len() < MAX_CRASHES_PER_SET && crashes.iter().all(|(recorded, _)| recorded != uid) {
        crashes.push((uid.to_owned(), now));
    }
}

fn is_recent(time: Timestamp, now: Timestamp) -> bool {
    now.duration_since(time) < CRASH_WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Kind;
    use serde_json::json;
    use std::sync::Arc;

    fn change(kind: Kind, old: Option<Value>, new: Option<Value>) -> Change {
        let key = NamespacedName::from_object(new.as_ref().or(old.as_ref()).unwrap());
        Change::Object { kind, key, old: old.map(Arc::new), new: new.map(Arc::new) }
    }

    fn pod(uid: &str, exit_code: i64) -> Value {
        json!({"metadata": {"namespace": "n", "name": "s-0", "uid": uid, "labels": {LEADER_WORKER_SET_NAME: "s"}},
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": exit_code}}}]}})
    }

    fn set(generation: i64) -> Value {
        json!({"metadata": {"namespace": "n", "name": "s", "generation": generation}})
    }

    #[test]
    fn counts_each_recently_crashed_pod_once() {
        let (tracker, key) = (CrashTracker::default(), NamespacedName::new("n", "s"));
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        for uid in ["a", "a", "b"] {
            tracker.apply(&change(POD, None, Some(pod(uid, 1))), at(0));
        }
        tracker.apply(&change(POD, None, Some(pod("healthy", 0))), at(0));
        let mut stopped = pod("stopped", 143);
        stopped["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:30Z");
        tracker.apply(&change(POD, Some(pod("stopped", 0)), Some(stopped.clone())), at(0));
        tracker.apply(&change(POD, Some(stopped), None), at(0));
        // This Pod is first observed when it is deleted.
        tracker.apply(&change(POD, Some(pod("c", 1)), None), at(60));
        assert_eq!([at(60), at(600), at(660)].map(|now| tracker.recent_crashes(&key, now)), [3, 1, 0]);
    }

    /// Users may label crashing Pods with any name.
    #[test]
    fn old_crashes_of_unknown_sets_are_forgotten() {
        let tracker = CrashTracker::default();
        for number in 0..3_i64 {
            let mut pod = pod(&format!("uid-{number}"), 1);
            pod["metadata"]["labels"][LEADER_WORKER_SET_NAME] = json!(format!("unknown-{number}"));
            tracker.apply(&change(POD, None, Some(pod)), Timestamp::from_second(600 * number).unwrap());
        }
        assert_eq!(tracker.crashes.lock().unwrap().len(), 1);
    }

    #[test]
    fn changed_template_resets_the_count() {
        let (tracker, key, now) = (CrashTracker::default(), NamespacedName::new("n", "s"), Timestamp::UNIX_EPOCH);
        tracker.apply(&change(POD, None, Some(pod("a", 1))), now);
        tracker.apply(&change(LEADER_WORKER_SET, Some(set(1)), Some(set(1))), now);
        assert_eq!(tracker.recent_crashes(&key, now), 1);
        tracker.apply(&change(LEADER_WORKER_SET, Some(set(1)), Some(set(2))), now);
        assert_eq!(tracker.recent_crashes(&key, now), 0);
    }
}
