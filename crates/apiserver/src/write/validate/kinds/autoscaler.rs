//! Validation of HorizontalPodAutoscalers: replica bounds, target and metrics.

use apimachinery::{Quantity, StatusCause};
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
                causes.extend(check_metric_target(&source.get("target")));
            }
        }
    }
    let has_object_or_external_metric =
        spec.get("metrics").items().any(|metric| ["Object", "External"].contains(&metric.get("type").text()));
    if min_replicas.number() == Some(0) && !has_object_or_external_metric {
        let hint = "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(spec.get("metrics").forbidden(hint));
    }
    for direction in ["scaleUp", "scaleDown"] {
        causes.extend(check_scaling_rules(&spec.get(&format!("behavior.{direction}"))));
    }
    causes.extend(min_replicas.check_not_negative());
    match max_replicas.number().unwrap_or(0) {
        0 => causes.push(max_replicas.required()),
        value if value < 0 => causes.push(max_replicas.invalid("must be greater than or equal to 1")),
        _ => {}
    }
    causes
}

/// Validates the target of a metric (`validateMetricTarget`).
fn check_metric_target(target: &Field<'_>) -> Vec<StatusCause> {
    let utilization = target.get("averageUtilization");
    let is_positive = utilization.number().is_none_or(|percent| percent > 0);
    let mut causes: Vec<StatusCause> =
        (!is_positive).then(|| utilization.invalid("must be greater than 0")).into_iter().collect();
    for name in ["value", "averageValue"] {
        let amount = target.get(name);
        let not_positive = amount.quantity().filter(|quantity| *quantity <= Quantity::ZERO);
        causes.extend(not_positive.map(|quantity| {
            StatusCause::invalid(&amount.path, &Value::from(quantity.to_string()), "must be positive")
        }));
    }
    causes
}

/// Validates the behavior in one direction (`validateScalingRules`).
fn check_scaling_rules(rules: &Field<'_>) -> Vec<StatusCause> {
    const MAX_STABILIZATION_SECONDS: i64 = 3600;
    const MAX_PERIOD_SECONDS: i64 = 1800;
    if !rules.is_set() {
        return Vec::new();
    }
    let (window, policies) = (rules.get("stabilizationWindowSeconds"), rules.get("policies"));
    let mut causes = Vec::new();
    match window.number() {
        Some(..0) => causes.push(window.invalid("must be greater than or equal to zero")),
        Some(seconds) if seconds > MAX_STABILIZATION_SECONDS => {
            causes.push(window.invalid(&format!("must be less than or equal to {MAX_STABILIZATION_SECONDS}")));
        }
        _ => {}
    }
    causes.extend(rules.get("selectPolicy").check_one_of(&["Disabled", "Max", "Min"]));
    if policies.is_empty() {
        causes.push(policies.required_with_hint("must specify at least one Policy"));
    }
    for policy in policies.items() {
        causes.extend(policy.get("type").check_one_of(&["Percent", "Pods"]));
        for name in ["value", "periodSeconds"] {
            let number = policy.get(name);
            if number.number().unwrap_or(0) <= 0 {
                causes.push(number.invalid("must be greater than zero"));
            }
        }
        let period = policy.get("periodSeconds");
        if period.number().is_some_and(|seconds| seconds > MAX_PERIOD_SECONDS) {
            causes.push(period.invalid(&format!("must be less than or equal to {MAX_PERIOD_SECONDS}")));
        }
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
