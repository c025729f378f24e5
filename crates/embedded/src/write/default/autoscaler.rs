//! The defaults of a HorizontalPodAutoscaler.

use serde_json::{Map, Value, json};

use super::{child, set};

pub(super) fn fill(spec: &mut Map<String, Value>) {
    set(spec, "minReplicas", json!(1));
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    set(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let up = child(behavior, "scaleUp");
    set(up, "selectPolicy", json!("Max"));
    set(up, "stabilizationWindowSeconds", json!(0));
    set(up, "policies", json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]));
    let down = child(behavior, "scaleDown");
    set(down, "selectPolicy", json!("Max"));
    set(down, "policies", json!([percent]));
}
