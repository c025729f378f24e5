//! Defaults of HorizontalPodAutoscalers.

use serde_json::{Map, Value, json};

use apimachinery::object::{child_object, set_default};

pub(super) fn autoscaler_defaults(spec: &mut Map<String, Value>) {
    set_default(spec, "minReplicas", json!(1));
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    set_default(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let scale_up = child_object(behavior, "scaleUp");
    set_default(scale_up, "selectPolicy", json!("Max"));
    set_default(scale_up, "stabilizationWindowSeconds", json!(0));
    set_default(scale_up, "policies", json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]));
    let scale_down = child_object(behavior, "scaleDown");
    set_default(scale_down, "selectPolicy", json!("Max"));
    set_default(scale_down, "policies", json!([percent]));
}
