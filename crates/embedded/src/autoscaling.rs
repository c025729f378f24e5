//! Autoscalers: one storage, two versions. They are kept as `autoscaling/v2`; `autoscaling/v1`, which `kubectl autoscale`
//! wrote until 1.33, knows the use of processors alone and carries everything else in annotations
//! (`k8s.io/kubernetes/pkg/apis/autoscaling/v1/conversion.go`).

use apimachinery::go;
use serde_json::{Map, Value, json};

use crate::object;

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
    let behavior = take_annotation(&mut scaler, BEHAVIOR).map(|behavior| renamed(&behavior, lower));
    if let Some(spec) = scaler.get_mut("spec").and_then(Value::as_object_mut) {
        let mut all: Vec<Value> = metrics.iter().map(metric_to_v2).collect();
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
            let current: Vec<Value> = current.iter().map(current_to_v2).collect();
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
            annotations.push((METRICS, array(others.iter().map(metric_to_v1))));
        }
        if let Some(behavior) = spec.remove("behavior").filter(|behavior| !behavior.is_null()) {
            annotations.push((BEHAVIOR, behavior_text(&behavior)));
        }
    }
    if let Some(status) = shown.get_mut("status").and_then(Value::as_object_mut) {
        let current = list(status.remove("currentMetrics"));
        let own = current.iter().find(|metric| object::text(metric, "/resource/name") == "cpu");
        if let Some(percentage) = own.and_then(|metric| metric.pointer("/resource/current/averageUtilization")) {
            status.insert(CURRENT_PERCENTAGE.to_owned(), percentage.clone());
        }
        if !current.is_empty() {
            annotations.push((CURRENT, array(current.iter().map(current_to_v1))));
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

/// What `kubectl get` shows of the metrics: `cpu: 40%/60%, memory: <unknown>/1Gi`, of either version.
#[must_use]
pub(crate) fn targets(scaler: &Value) -> String {
    let kept =
        if object::text(scaler, "/apiVersion") == "autoscaling/v1" { to_v2(scaler.clone()) } else { scaler.clone() };
    let metrics = list(kept.pointer("/spec/metrics").cloned());
    let current = list(kept.pointer("/status/currentMetrics").cloned());
    let shown: Vec<String> =
        metrics.iter().enumerate().take(2).map(|(index, metric)| target(metric, current.get(index))).collect();
    match (shown.is_empty(), metrics.len() - shown.len()) {
        (true, _) => "<none>".to_owned(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} + {more} more...", shown.join(", ")),
    }
}

fn target(metric: &Value, current: Option<&Value>) -> String {
    let field = source_field(object::text(metric, "/type"));
    let source = metric.get(&field).unwrap_or(&Value::Null);
    let measured = current.and_then(|current| current.get(&field)?.get("current"));
    let name = object::text(source, "/name");
    let label = if name.is_empty() { String::new() } else { format!("{name}: ") };
    for (value, unit) in [("averageValue", ""), ("averageUtilization", "%"), ("value", "")] {
        let Some(wanted) = source.get("target").and_then(|target| target.get(value)) else { continue };
        let now = measured.and_then(|measured| measured.get(value)).filter(|now| !now.is_null());
        let now = now.map_or_else(|| "<unknown>".to_owned(), |now| format!("{}{unit}", go::plain(now)));
        return format!("{label}{now}/{}{unit}", go::plain(wanted));
    }
    format!("{label}<unknown>/<auto>")
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
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

/// How the sources of metrics name their fields: in `autoscaling/v1`, and where the same is in `autoscaling/v2`.
const SOURCES: &[(&str, &[(&str, &str)])] = &[
    (
        "object",
        &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("targetValue", "/target/value"),
            ("selector", "/metric/selector"),
            ("averageValue", "/target/averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "/metric/name"),
            ("targetAverageValue", "/target/averageValue"),
            ("selector", "/metric/selector"),
        ],
    ),
    (
        "resource",
        &[
            ("name", "/name"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "/name"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
            ("container", "/container"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "/metric/name"),
            ("metricSelector", "/metric/selector"),
            ("targetValue", "/target/value"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
];

/// The same of what was measured: `targetAverageValue` is `currentAverageValue` there.
fn measured(name: &str) -> String {
    match name.strip_prefix("target").filter(|rest| !rest.is_empty()) {
        Some(rest) => format!("current{rest}"),
        None => name.to_owned(),
    }
}

fn metric_to_v1(metric: &Value) -> String {
    to_v1(metric, |name, place| (name.to_owned(), place.to_owned()))
}

fn current_to_v1(metric: &Value) -> String {
    to_v1(metric, |name, place| (measured(name), place.replacen("/target/", "/current/", 1)))
}

fn metric_to_v2(metric: &Value) -> Value {
    let mut made = to_v2_source(metric, |name, place| (name.to_owned(), place.to_owned()));
    let source = object::text(metric, "/type").to_owned();
    let members = object::members(&mut made);
    if let Some(target) = members.get_mut(&source_field(&source)).and_then(|source| source.get_mut("target")) {
        let has = |field: &str| target.get(field).is_some();
        let kind = match (has("averageUtilization"), has("averageValue")) {
            (true, _) => "Utilization",
            (false, true) => "AverageValue",
            (false, false) => "Value",
        };
        object::members(target).insert("type".to_owned(), json!(kind));
    }
    made
}

fn current_to_v2(metric: &Value) -> Value {
    to_v2_source(metric, |name, place| (measured(name), place.replacen("/target/", "/current/", 1)))
}

/// `ContainerResource` is the field `containerResource`.
fn source_field(kind: &str) -> String {
    lower(kind)
}

fn to_v1(metric: &Value, names: impl Fn(&str, &str) -> (String, String)) -> String {
    let kind = object::text(metric, "/type");
    let field = source_field(kind);
    let source = metric.get(&field).unwrap_or(&Value::Null);
    let known = SOURCES.iter().find(|(name, _)| *name == field).map_or(&[][..], |(_, fields)| fields);
    let fields: Vec<(String, Value)> = known
        .iter()
        .filter_map(|(name, place)| {
            let (name, place) = names(name, place);
            Some((name, source.pointer(&place).filter(|value| !value.is_null())?.clone()))
        })
        .collect();
    let fields: Vec<(&str, Value)> = fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    format!("{{\"type\":{},{field:?}:{}}}", json!(kind), go::record(&fields))
}

fn to_v2_source(metric: &Value, names: impl Fn(&str, &str) -> (String, String)) -> Value {
    let kind = object::text(metric, "/type");
    let field = source_field(kind);
    let source = metric.get(&field).unwrap_or(&Value::Null);
    let mut made = json!({});
    for (name, place) in SOURCES.iter().find(|(name, _)| *name == field).map_or(&[][..], |(_, fields)| fields) {
        let (name, place) = names(name, place);
        if let Some(value) = source.get(&name).filter(|value| !value.is_null()) {
            put(&mut made, &place, value.clone());
        }
    }
    let mut metric = json!({"type": kind});
    object::members(&mut metric).insert(field, made);
    metric
}

fn put(value: &mut Value, pointer: &str, wanted: Value) {
    let mut at = value;
    for part in pointer.split('/').skip(1) {
        at = object::members(at).entry(part).or_insert(Value::Null);
    }
    *at = wanted;
}

fn array(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn condition_text(condition: &Value) -> String {
    let fields = ["type", "status", "lastTransitionTime", "reason", "message"];
    let given = fields.into_iter().filter_map(|field| Some((field, condition.get(field)?.clone())));
    go::record(&given.collect::<Vec<_>>())
}

/// The rules as Go's own structs of them are written.
fn behavior_text(behavior: &Value) -> String {
    let rules = |name: &str| match behavior.get(name) {
        Some(rules) if !rules.is_null() => rules_text(rules),
        _ => "null".to_owned(),
    };
    format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"))
}

fn rules_text(rules: &Value) -> String {
    let of = |value: &Value, field: &str| value.get(field).cloned().unwrap_or_default();
    let policies = list(rules.get("policies").cloned());
    let policies = array(policies.iter().map(|policy| {
        let fields = [("Type", "type"), ("Value", "value"), ("PeriodSeconds", "periodSeconds")];
        go::record(&fields.map(|(shown, field)| (shown, of(policy, field))))
    }));
    format!(
        "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":{policies},\"Tolerance\":{}}}",
        of(rules, "stabilizationWindowSeconds"),
        of(rules, "selectPolicy"),
        of(rules, "tolerance")
    )
}

/// With other names of members, and without nulls.
fn renamed(value: &Value, name: impl Fn(&str) -> String + Copy) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(members.map(|(key, value)| (name(key), renamed(value, name))).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| renamed(item, name)).collect(),
        other => other.clone(),
    }
}

/// `ScaleUp` is `scaleUp`.
fn lower(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
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
