//! The admission plugin `DefaultTolerationSeconds`.

use serde_json::{Value, json};

use apimachinery::object::spec;

/// Time in seconds for which Pods remain bound to a node after it becomes not ready or unreachable.
const DEFAULT_TOLERATION_SECONDS: u32 = 300;

const NODE_FAILURE_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Adds the default tolerations for the taints `not-ready` and `unreachable` unless the Pod already tolerates them.
pub(super) fn add_default_tolerations(pod: &mut Value) {
    let tolerations = spec(pod).entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = tolerations.as_array_mut() else { return };
    for key in NODE_FAILURE_TAINTS {
        let is_tolerated = list.iter().any(|toleration| {
            let effect = &toleration["effect"];
            let matches_all_keys = toleration["key"].is_null() && toleration["operator"] == "Exists";
            (toleration["key"] == key || matches_all_keys) && (effect == "NoExecute" || effect.is_null())
        });
        if !is_tolerated {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT_TOLERATION_SECONDS}));
        }
    }
}
