//! How long a Pod stays on a node that is lost (`DefaultTolerationSeconds`).

use serde_json::{Value, json};

use crate::write::default::spec;

/// Seconds.
const STAYS: u32 = 300;

const LOST: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Adds those that a new Pod does not state itself.
pub(super) fn add(pod: &mut Value) {
    let tolerations = spec(pod).entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = tolerations.as_array_mut() else { return };
    for key in LOST {
        let is_tolerated = list.iter().any(|it| {
            let (all, effect) = (it["key"].is_null() && it["operator"] == "Exists", &it["effect"]);
            (it["key"] == key || all) && (effect == "NoExecute" || effect.is_null())
        });
        if !is_tolerated {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": STAYS}));
        }
    }
}
