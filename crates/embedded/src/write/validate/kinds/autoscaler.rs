//! HorizontalPodAutoscalers: bounds that leave room, somebody to scale, and what to scale by.

use apimachinery::status::Cause;
use serde_json::Value;

use super::field::Field;

const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

pub(super) fn causes(scaler: &Value) -> Vec<Cause> {
    let spec = Field::of(scaler).get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    let mut causes = Vec::new();
    if most.number().unwrap_or(0) < least.number().unwrap_or(1) {
        causes.push(most.invalid("must be greater than or equal to `minReplicas`"));
    }
    causes.extend(target(&spec.get("scaleTargetRef")));
    for metric in spec.get("metrics").each() {
        let kind = metric.get("type");
        match SOURCES.iter().find(|(known, _)| *known == kind.text()) {
            None => causes.push(kind.not_supported(&SOURCES.map(|(known, _)| known))),
            Some((_, source)) => {
                let source = metric.get(source);
                if !source.is_set() {
                    causes.push(source.required_because("must populate information for the given metric source"));
                }
            }
        }
    }
    let from_outside =
        spec.get("metrics").each().any(|metric| ["Object", "External"].contains(&metric.get("type").text()));
    if least.number() == Some(0) && !from_outside {
        let hint = "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(spec.get("metrics").forbidden(hint));
    }
    causes.extend(least.not_negative());
    match most.number().unwrap_or(0) {
        0 => causes.push(most.required()),
        given if given < 0 => causes.push(most.invalid("must be greater than or equal to 1")),
        _ => {}
    }
    causes
}

fn target(target: &Field<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["kind", "name"] {
        let field = target.get(name);
        if field.is_empty() {
            causes.push(field.required());
        }
    }
    let version = target.get("apiVersion");
    if !version.text().contains('/') {
        let shown = Value::from(version.text());
        causes.push(Cause::invalid(&version.path, &shown, "apiVersion must specify API group"));
    }
    causes
}
