//! Cache of recent selections, so that status changes of Pods do not repeat a decision with the same inputs.
//!
//! Only the most recently decided services are cached. Changes of one service come in bursts; an older entry is usually
//! outdated by the claims of other services, and a plan with its objects takes as much memory as its service.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::{NamespacedName, find_condition, generation};
use serde_json::Value;

use crate::relevant_fields::user_fields;
use crate::selection::{Selection, has_ready_replicas};

/// Maximum number of cached services.
const CAPACITY: usize = 64;

/// The last selection of each recently decided service.
#[derive(Debug, Default)]
pub(crate) struct DecisionCache {
    /// Most recent entry last.
    entries: Mutex<VecDeque<Entry>>,
}

/// Cached selection of one service.
#[derive(Debug)]
struct Entry {
    key: NamespacedName,
    inputs: DecisionInputs,
    selection: Arc<Selection>,
}

/// All inputs of a decision.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DecisionInputs {
    /// User-provided fields of the service, and the status fields that the decision reads, as JSON text: a JSON tree
    /// takes several times the memory.
    service: Box<str>,
    /// Epoch of the selection snapshot.
    epoch: u64,
    /// Version of the claims of other services.
    claims_version: u64,
}

// === impl DecisionCache ===

impl DecisionCache {
    /// Returns the selection of the service if it was made from the same inputs.
    pub(crate) fn get(&self, key: &NamespacedName, inputs: &DecisionInputs) -> Option<Arc<Selection>> {
        let entries = self.lock();
        let entry = entries.iter().find(|entry| entry.key == *key && entry.inputs == *inputs)?;
        Some(Arc::clone(&entry.selection))
    }

    /// Caches a selection; evicts the oldest entry if the cache is full.
    pub(crate) fn insert(&self, key: &NamespacedName, inputs: DecisionInputs, selection: &Arc<Selection>) {
        let mut entries = self.lock();
        entries.retain(|entry| entry.key != *key);
        if entries.len() >= CAPACITY {
            entries.pop_front();
        }
        entries.push_back(Entry { key: key.clone(), inputs, selection: Arc::clone(selection) });
    }

    /// Removes a deleted service.
    pub(crate) fn remove(&self, key: &NamespacedName) {
        self.lock().retain(|entry| entry.key != *key);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl DecisionInputs ===

impl DecisionInputs {
    /// Collects the inputs of a decision about `service`.
    pub(crate) fn new(service: &Value, epoch: u64, claims_version: u64) -> DecisionInputs {
        let status = &service["status"];
        let ready = find_condition(&status["conditions"], "Ready").map(|ready| &ready["status"]);
        let fields = (user_fields(service), generation(service), has_ready_replicas(service), ready);
        // Their replica counts follow from the spec.
        let components = plan::component_shapes(&plan::recorded_components(status));
        let decision = (&status["decision"], &status["observedGeneration"], components);
        let text = serde_json::to_string(&(fields, decision)).unwrap_or_default();
        DecisionInputs { service: text.into_boxed_str(), epoch, claims_version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn inputs(epoch: u64, service: Value) -> DecisionInputs {
        DecisionInputs::new(&service, epoch, 1)
    }

    fn empty_selection() -> Arc<Selection> {
        let plan = plan::ServicePlan::default();
        Arc::new(Selection { plan, better_plan: None, full_class: None, versions: Arc::default() })
    }

    fn service(replicas: i64, ready: &str, message: &str, image: &str) -> Value {
        json!({"metadata": {"namespace": "n", "name": "s", "resourceVersion": message}, "spec": {"image": image},
            "status": {"components": {"engine": {"readyReplicas": replicas}},
                "conditions": [{"type": "Ready", "status": ready, "message": message}]}})
    }

    #[rstest]
    #[case::another_message(1, service(1, "True", "later", "a"), true)]
    #[case::more_replicas(1, service(2, "True", "", "a"), true)]
    #[case::another_epoch(2, service(1, "True", "", "a"), false)]
    #[case::no_ready_replicas(1, service(0, "True", "", "a"), false)]
    #[case::not_ready(1, service(1, "False", "", "a"), false)]
    #[case::edited(1, service(1, "True", "", "b"), false)]
    fn returns_selection_for_equal_inputs(#[case] epoch: u64, #[case] later: Value, #[case] is_cached: bool) {
        let (cache, key) = (DecisionCache::default(), NamespacedName::new("n", "s"));
        let selection = empty_selection();
        cache.insert(&key, inputs(1, service(1, "True", "", "a")), &selection);
        assert_eq!(cache.get(&key, &inputs(epoch, later)), is_cached.then_some(selection));
        cache.remove(&key);
        assert!(cache.entries.lock().unwrap().is_empty());
    }

    #[test]
    fn evicts_the_oldest_entry() {
        let cache = DecisionCache::default();
        let selection = empty_selection();
        let inputs = || inputs(1, service(1, "True", "", "a"));
        for number in 0..=CAPACITY {
            cache.insert(&NamespacedName::new("n", &number.to_string()), inputs(), &selection);
            cache.insert(&NamespacedName::new("n", "1"), inputs(), &selection);
        }
        let is_cached = |name: &str| cache.get(&NamespacedName::new("n", name), &inputs()).is_some();
        assert_eq!((is_cached("0"), is_cached("1"), is_cached(&CAPACITY.to_string())), (false, true, true));
        assert_eq!(cache.entries.lock().unwrap().len(), CAPACITY);
    }
}
