//! HorizontalPodAutoscalers: one storage, two versions. They are kept as `autoscaling/v2`; `autoscaling/v1`, which `kubectl autoscale`
//! wrote until 1.33, knows the use of processors alone and carries everything else in annotations
//! (`k8s.io/kubernetes/pkg/apis/autoscaling/v1/conversion.go`).

mod behavior;
mod metric;

use apimachinery::go;
use serde_json::{Value, json};

use crate::object;
pub(crate) use metric::source_field;

pub(crate) const STORAGE: &str = "horizontalpodautoscalers.autoscaling";

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const PERCENTAGE: &str = "targetCPUUtilizationPercentage";
const CURRENT_PERCENTAGE: &str = "currentCPUUtilizationPercentage";

/// From `autoscaling/v1` to what is kept.
#[must_use]
pub(crate) fn to_v2(mut scaler: Value) -> Value {
    object::members(&mut scaler).insert("apiVersion".to_owned(), json!("autoscaling/v2"));
    let metrics = list(take_annotation(&mut scaler, METRICS));
    let current = list(take_annotation(&mut scaler, CURRENT));
    let conditions = take_annotation(&mut scaler, CONDITIONS);
    let behavior = take_annotation(&mut scaler, BEHAVIOR).map(|behavior| behavior::read(&behavior));
    if let Some(spec) = scaler.get_mut("spec").and_then(Value::as_object_mut) {
        let mut all: Vec<Value> = metrics.iter().map(metric::to_v2).collect();
        all.extend(spec.remove(PERCENTAGE).filter(|value| !value.is_null()).map(|percentage| processors(&percentage)));
        if !all.is_empty() {
            spec.insert("metrics".to_owned(), Value::from(all));
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = scaler.get_mut("status").and_then(Value::as_object_mut) {
        status.remove(CURRENT_PERCENTAGE);
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

/// From what is kept to `autoscaling/v1`.
#[must_use]
pub(crate) fn from_v2(scaler: &Value) -> Value {
    let mut shown = scaler.clone();
    object::members(&mut shown).insert("apiVersion".to_owned(), json!("autoscaling/v1"));
    let mut annotations = Vec::new();
    if let Some(spec) = shown.get_mut("spec").and_then(Value::as_object_mut) {
        let (own, others): (Vec<Value>, Vec<Value>) = list(spec.remove("metrics")).into_iter().partition(is_processors);
        if let Some(percentage) = own.first().and_then(|metric| metric.pointer("/resource/target/averageUtilization")) {
            spec.insert(PERCENTAGE.to_owned(), percentage.clone());
        }
        if !others.is_empty() {
            annotations.push((METRICS, array(others.iter().map(metric::to_v1))));
        }
        if let Some(behavior) = spec.remove("behavior").filter(|behavior| !behavior.is_null()) {
            annotations.push((BEHAVIOR, behavior::text(&behavior)));
        }
    }
    if let Some(status) = shown.get_mut("status").and_then(Value::as_object_mut) {
        let current = list(status.remove("currentMetrics"));
        let own = current.iter().find(|metric| object::text(metric, "/resource/name") == "cpu");
        if let Some(percentage) = own.and_then(|metric| metric.pointer("/resource/current/averageUtilization")) {
            status.insert(CURRENT_PERCENTAGE.to_owned(), percentage.clone());
        }
        if !current.is_empty() {
            annotations.push((CURRENT, array(current.iter().map(metric::current_to_v1))));
        }
        let conditions = list(status.remove("conditions"));
        if !conditions.is_empty() {
            annotations.push((CONDITIONS, array(conditions.iter().map(condition_text))));
        }
        status.entry("currentReplicas").or_insert(json!(0));
    }
    for (name, text) in annotations {
        let metadata = object::metadata(&mut shown);
        let all = metadata.entry("annotations").or_insert_with(|| json!({}));
        object::members(all).insert(name.to_owned(), json!(text));
    }
    shown
}

/// The JSON in an annotation; one that is none stays where it is.
fn take_annotation(scaler: &mut Value, name: &str) -> Option<Value> {
    let annotations = scaler.pointer_mut("/metadata/annotations")?.as_object_mut()?;
    let read = serde_json::from_str(annotations.get(name)?.as_str()?).ok()?;
    annotations.remove(name);
    Some(read)
}

fn processors(percentage: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percentage});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn is_processors(metric: &Value) -> bool {
    let is_cpu = object::text(metric, "/resource/name") == "cpu";
    is_cpu && metric.pointer("/resource/target/averageUtilization").is_some_and(|value| !value.is_null())
}

fn condition_text(condition: &Value) -> String {
    let fields = ["type", "status", "lastTransitionTime", "reason", "message"];
    let given = fields.into_iter().filter_map(|field| Some((field, condition.get(field)?.clone())));
    go::record(&given.collect::<Vec<_>>())
}

/// The elements of a list that may not be there.
fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Texts as a JSON array.
fn array(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_first_version_does_not_know_comes_back() {
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
        let shown = from_v2(&scaler);
        assert_eq!((&shown["spec"][PERCENTAGE], &shown["status"][CURRENT_PERCENTAGE]), (&json!(60), &json!(40)));
        assert!(shown["spec"].get("metrics").is_none());
        let mut back = to_v2(shown);
        object::members(&mut back["metadata"]).remove("annotations");
        assert_eq!(back, scaler);
    }
}
