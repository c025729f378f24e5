//! Pods that crashed and were replaced.
//!
//! LeaderWorkerSet makes a group anew as soon as one of its containers restarts, so no Pod of one lives long enough to
//! count its own restarts. They are counted here, over all Pods of a set that were seen to crash lately.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cluster::object::{generation, meta};
use cluster::{Change, Key};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::kinds::{LEADER_WORKER_SET, LEADER_WORKER_SET_NAME, POD};
use crate::readiness::crashed;

/// A kubelet forgets the restarts of a container that has run for so long, and so do we.
const LATELY: SignedDuration = SignedDuration::from_mins(10);
/// Crashes remembered per set: more change nothing.
const MOST: usize = 16;

/// Crashes of the Pods of each LeaderWorkerSet: UID of the Pod, and when it was first seen.
#[derive(Debug, Default)]
pub(crate) struct Crashes {
    seen: Mutex<BTreeMap<Key, Vec<(String, Timestamp)>>>,
}

// === impl Crashes ===

impl Crashes {
    /// Takes in what happened to a Pod or a set. A set that is changed or gone starts anew.
    pub(crate) fn take(&self, change: &Change, now: Timestamp) {
        let Change::Object { kind, key, old, new } = change else { return };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match (*kind, new.as_ref().or(old.as_ref())) {
            (POD, Some(pod)) if crashed(pod) => note(&mut seen, pod, now),
            (LEADER_WORKER_SET, Some(set)) => {
                let same = new.is_some() && old.as_ref().is_none_or(|old| generation(old) == generation(set));
                if !same {
                    seen.remove(key);
                }
            }
            _ => {}
        }
    }

    /// How many Pods of the set `key` crashed lately.
    pub(crate) fn of(&self, key: &Key, now: Timestamp) -> usize {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(key).map_or(0, |crashes| crashes.iter().filter(|(_, at)| is_late(*at, now)).count())
    }
}

fn note(seen: &mut BTreeMap<Key, Vec<(String, Timestamp)>>, pod: &Value, now: Timestamp) {
    let Some(set) = pod["metadata"]["labels"][LEADER_WORKER_SET_NAME].as_str() else { return };
    let crashes = seen.entry(Key::new(meta(pod, "namespace"), set)).or_default();
    crashes.retain(|(_, at)| is_late(*at, now));
    let uid = meta(pod, "uid");
    if crashes.len() < MOST && crashes.iter().all(|(known, _)| known != uid) {
        crashes.push((uid.to_owned(), now));
    }
}

fn is_late(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) < LATELY
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Kind;
    use serde_json::json;
    use std::sync::Arc;

    fn change(kind: Kind, old: Option<Value>, new: Option<Value>) -> Change {
        let key = Key::of(new.as_ref().or(old.as_ref()).unwrap());
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
    fn each_pod_that_crashed_counts_once_for_a_while() {
        let (crashes, key) = (Crashes::default(), Key::new("n", "s"));
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        for uid in ["a", "a", "b"] {
            crashes.take(&change(POD, None, Some(pod(uid, 1))), at(0));
        }
        crashes.take(&change(POD, None, Some(pod("fine", 0))), at(0));
        // Seen for the first and last time as it went.
        crashes.take(&change(POD, Some(pod("c", 1)), None), at(60));
        assert_eq!([at(60), at(600), at(660)].map(|now| crashes.of(&key, now)), [3, 1, 0]);
    }

    #[test]
    fn another_template_is_another_chance() {
        let (crashes, key, now) = (Crashes::default(), Key::new("n", "s"), Timestamp::UNIX_EPOCH);
        crashes.take(&change(POD, None, Some(pod("a", 1))), now);
        crashes.take(&change(LEADER_WORKER_SET, Some(set(1)), Some(set(1))), now);
        assert_eq!(crashes.of(&key, now), 1);
        crashes.take(&change(LEADER_WORKER_SET, Some(set(1)), Some(set(2))), now);
        assert_eq!(crashes.of(&key, now), 0);
    }
}
