//! Validation of HorizontalPodAutoscalers: replica bounds, target and metrics.

use apimachinery::StatusCause;
use serde_json::Value;

use super::field::Field;

const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

pub(super) fn causes(scaler: &Value) -> Vec<StatusCause> {
    let spec = Field::root(scaler).get("spec");
    let (min_replicas, max_replicas) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    let mut causes = Vec::new();
    if max_replicas.number().unwrap_or(0) < min_replicas.number().unwrap_or(1) {
        causes.push(max_replicas.invalid("must be greater than or equal to `minReplicas`"));
    }
    causes.extend(target_causes(&spec.get("scaleTargetRef")));
    for metric in spec.get("metrics").items() {
        let kind = metric.get("type");
        match SOURCES.iter().find(|(supported, _)| *supported == kind.text()) {
            None => causes.push(kind.not_supported(&SOURCES.map(|(supported, _)| supported))),
            Some((_, source)) => {
                let source = metric.get(source);
                if !source.is_set() {
                    causes.push(source.required_with_hint("must populate information for the given metric source"));
                }
            }
        }
    }
    let has_object_or_external_metric =
        spec.get("metrics").items().any(|metric| ["Object", "External"].contains(&metric.get("type").text()));
    if min_replicas.number() == Some(0) && !has_object_or_external_metric {
        let hint = "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(spec.get("metrics").forbidden(hint));
    }
    causes.extend(min_replicas.check_not_negative());
    match max_replicas.number().unwrap_or(0) {
        0 => causes.push(max_replicas.required()),
        value if value < 0 => causes.push(max_replicas.invalid("must be greater than or equal to 1")),
        _ => {}
    }
    causes
}

fn target_causes(target: &Field<'_>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    for name in ["kind", "name"] {
        let field = target.get(name);
        if field.is_empty() {
            causes.push(field.required());
        }
    }
    let version = target.get("apiVersion");
    if !version.text().contains('/') {
        let reported = Value::from(version.text());
        causes.push(StatusCause::invalid(&version.path, &reported, "apiVersion must specify API group"));
    }
    causes
}
