//! Conversion of HorizontalPodAutoscalers. The storage version is `autoscaling/v2`. `autoscaling/v1`, which `kubectl
//! autoscale` used until 1.33, has a field only for the CPU utilization; annotations hold all other metrics, the
//! behavior and the conditions (`k8s.io/kubernetes/pkg/apis/autoscaling/v1/conversion.go`).

mod annotation;
mod behavior;
mod metric;

use apimachinery::{go_format_struct, object};
use serde_json::{Value, json};

use annotation::{items_of, join_array, take_annotation};
pub(crate) use metric::source_field;

/// Name under which HorizontalPodAutoscalers are stored.
pub(crate) const STORAGE: &str = "horizontalpodautoscalers.autoscaling";

const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/conditions";
const TARGET_UTILIZATION: &str = "targetCPUUtilizationPercentage";
const CURRENT_UTILIZATION: &str = "currentCPUUtilizationPercentage";

/// Converts from `autoscaling/v1` to `autoscaling/v2`.
#[must_use]
pub(crate) fn to_v2(mut scaler: Value) -> Value {
    object::members(&mut scaler).insert("apiVersion".to_owned(), json!("autoscaling/v2"));
    let metrics = items_of(take_annotation(&mut scaler, METRICS_ANNOTATION));
    let current = items_of(take_annotation(&mut scaler, CURRENT_METRICS_ANNOTATION));
    let conditions = take_annotation(&mut scaler, CONDITIONS_ANNOTATION);
    let behavior =
        take_annotation(&mut scaler, BEHAVIOR_ANNOTATION).map(|behavior| behavior::from_annotation(&behavior));
    if let Some(spec) = scaler.get_mut("spec").and_then(Value::as_object_mut) {
        let mut all_metrics: Vec<Value> = metrics.iter().map(metric::to_v2).collect();
        all_metrics.extend(
            spec.remove(TARGET_UTILIZATION)
                .filter(|value| !value.is_null())
                .map(|percentage| cpu_utilization_metric(&percentage)),
        );
        if !all_metrics.is_empty() {
            spec.insert("metrics".to_owned(), Value::from(all_metrics));
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = scaler.get_mut("status").and_then(Value::as_object_mut) {
        status.remove(CURRENT_UTILIZATION);
        if !current.is_empty() {
            let current: Vec<Value> = current.iter().map(metric::current_to_v2).collect();
            status.insert("currentMetrics".to_owned(), Value::from(current));
        }
        if let Some(conditions) = conditions {
            status.insert("conditions".to_owned(), conditions);
        }
    }
    scaler
}

/// Converts from `autoscaling/v2` to `autoscaling/v1`.
#[must_use]
pub(crate) fn from_v2(scaler: &Value) -> Value {
    let mut converted = scaler.clone();
    object::members(&mut converted).insert("apiVersion".to_owned(), json!("autoscaling/v1"));
    let mut annotations = Vec::new();
    if let Some(spec) = converted.get_mut("spec").and_then(Value::as_object_mut) {
        let (cpu, others): (Vec<Value>, Vec<Value>) =
            items_of(spec.remove("metrics")).into_iter().partition(is_cpu_utilization);
        if let Some(percentage) = cpu.first().and_then(|metric| metric.pointer("/resource/target/averageUtilization")) {
            spec.insert(TARGET_UTILIZATION.to_owned(), percentage.clone());
        }
        if !others.is_empty() {
            annotations.push((METRICS_ANNOTATION, join_array(others.iter().map(metric::to_v1))));
        }
        if let Some(behavior) = spec.remove("behavior").filter(|behavior| !behavior.is_null()) {
            annotations.push((BEHAVIOR_ANNOTATION, behavior::to_annotation(&behavior)));
        }
    }
    if let Some(status) = converted.get_mut("status").and_then(Value::as_object_mut) {
        let current = items_of(status.remove("currentMetrics"));
        let cpu = current.iter().find(|metric| object::text(metric, "/resource/name") == "cpu");
        if let Some(percentage) = cpu.and_then(|metric| metric.pointer("/resource/current/averageUtilization")) {
            status.insert(CURRENT_UTILIZATION.to_owned(), percentage.clone());
        }
        if !current.is_empty() {
            annotations.push((CURRENT_METRICS_ANNOTATION, join_array(current.iter().map(metric::current_to_v1))));
        }
        let conditions = items_of(status.remove("conditions"));
        if !conditions.is_empty() {
            annotations.push((CONDITIONS_ANNOTATION, join_array(conditions.iter().map(format_condition))));
        }
        status.entry("currentReplicas").or_insert(json!(0));
    }
    for (name, text) in annotations {
        let metadata = object::metadata(&mut converted);
        let all_annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        object::members(all_annotations).insert(name.to_owned(), json!(text));
    }
    converted
}

fn cpu_utilization_metric(percentage: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percentage});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn is_cpu_utilization(metric: &Value) -> bool {
    let is_cpu = object::text(metric, "/resource/name") == "cpu";
    is_cpu && metric.pointer("/resource/target/averageUtilization").is_some_and(|value| !value.is_null())
}

fn format_condition(condition: &Value) -> String {
    let fields = ["type", "status", "lastTransitionTime", "reason", "message"];
    let present_fields = fields.into_iter().filter_map(|field| Some((field, condition.get(field)?.clone())));
    go_format_struct(&present_fields.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_preserve_fields_unknown_to_v1() {
        let scaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {
                "minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "behavior": {"scaleUp": {"selectPolicy": "Max", "stabilizationWindowSeconds": 0,
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}},
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "waiting", "selector": {"matchLabels": {"a": "b"}}},
                        "target": {"type": "AverageValue", "averageValue": "3"}}},
                    {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"},
                        "metric": {"name": "rate"}, "target": {"type": "Value", "value": "10"}}},
                    {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "main",
                        "target": {"type": "Utilization", "averageUtilization": 50}}},
                    {"type": "External", "external": {"metric": {"name": "queue"},
                        "target": {"type": "AverageValue", "averageValue": "30"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
                ],
            },
            "status": {"desiredReplicas": 2, "currentReplicas": 2,
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "200m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True", "reason": "R", "message": "m"}]},
        });
        let converted = from_v2(&scaler);
        assert_eq!(
            (&converted["spec"][TARGET_UTILIZATION], &converted["status"][CURRENT_UTILIZATION]),
            (&json!(60), &json!(40))
        );
        assert!(converted["spec"].get("metrics").is_none());
        let mut round_tripped = to_v2(converted);
        object::members(&mut round_tripped["metadata"]).remove("annotations");
        assert_eq!(round_tripped, scaler);
    }
}
