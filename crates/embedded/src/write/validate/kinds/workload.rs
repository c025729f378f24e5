//! What makes Pods of a template: Deployments, ReplicaSets and StatefulSets.

use apimachinery::selector::LabelSelector;
use apimachinery::status::Cause;
use serde_json::Value;

use super::super::metadata;
use super::field::Field;
use super::selector;
use super::{pod, share};

/// What is wrong with a Deployment.
pub(super) fn deployment(object: &Value) -> Vec<Cause> {
    let spec = Field::of(object).get("spec");
    let mut causes = common(object, "deployment");
    causes.extend(strategy(&spec.get("strategy")));
    let (least, deadline) = (spec.get("minReadySeconds"), spec.get("progressDeadlineSeconds"));
    causes.extend(least.not_negative());
    causes.extend(spec.get("revisionHistoryLimit").not_negative());
    causes.extend(deadline.not_negative());
    if deadline.number().is_some_and(|deadline| deadline <= least.number().unwrap_or(0)) {
        causes.push(deadline.invalid("must be greater than minReadySeconds"));
    }
    causes
}

/// What is wrong with a ReplicaSet.
pub(super) fn replica_set(object: &Value) -> Vec<Cause> {
    let mut causes = common(object, "deployment");
    causes.extend(Field::of(object).get("spec.minReadySeconds").not_negative());
    causes
}

/// What is wrong with a StatefulSet.
pub(super) fn stateful_set(object: &Value) -> Vec<Cause> {
    let spec = Field::of(object).get("spec");
    let mut causes = Vec::new();
    let policy = spec.get("podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy.text()) {
        causes.push(policy.invalid("must be 'OrderedReady' or 'Parallel'"));
    }
    let (strategy, kind) = (spec.get("updateStrategy"), spec.get("updateStrategy.type"));
    if !["RollingUpdate", "OnDelete"].contains(&kind.text()) {
        let shown = format!(r#"{{"Type":{:?},"RollingUpdate":null}}"#, kind.text());
        causes.push(Cause::invalid_text(&strategy.path, &shown, "must be 'RollingUpdate' or 'OnDelete'"));
    }
    causes.extend(spec.get("updateStrategy.rollingUpdate.partition").not_negative());
    for name in ["whenDeleted", "whenScaled"] {
        let retention = spec.get(&format!("persistentVolumeClaimRetentionPolicy.{name}"));
        causes.extend(retention.one_of(&["Retain", "Delete"]));
    }
    causes.extend(spec.get("replicas").not_negative());
    causes.extend(spec.get("minReadySeconds").not_negative());
    causes.extend(spec.get("ordinals.start").not_negative());
    causes.extend(selected(object, "statefulset"));
    causes.extend(template(object));
    causes.extend(always_restarted(object));
    causes
}

/// The counts of a status, none of which is above the one that it is a part of.
pub(super) fn status(object: &Value) -> Vec<Cause> {
    const PARTS: [(&str, &str); 4] = [
        ("updatedReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ];
    let status = Field::of(object).get("status");
    let count = |name: &str| status.get(name).number().unwrap_or(0);
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"];
    let mut causes: Vec<Cause> = counts.iter().filter_map(|name| status.get(name).not_negative()).collect();
    for (part, whole) in PARTS.into_iter().filter(|(part, whole)| count(part) > count(whole)) {
        let whole = if whole == "replicas" { "status.replicas" } else { whole };
        causes.push(status.get(part).invalid(&format!("cannot be greater than {whole}")));
    }
    causes
}

fn common(object: &Value, kind: &str) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Field::of(object).get("spec.replicas").not_negative().into_iter().collect();
    causes.extend(selected(object, kind));
    causes.extend(template(object));
    causes.extend(always_restarted(object));
    causes
}

/// What is wrong with the Pods that it would make.
pub(super) fn template(object: &Value) -> Vec<Cause> {
    let labels = Field::of(object).get("spec.template.metadata.labels");
    let mut causes = metadata::labels(&labels.path, labels.value.as_object());
    causes.extend(pod::causes(object.pointer("/spec/template/spec").unwrap_or(&Value::Null), "spec.template.spec"));
    causes
}

fn always_restarted(object: &Value) -> Option<Cause> {
    let policy = Field::of(object).get("spec.template.spec.restartPolicy");
    (policy.text() != "Always").then(|| policy.not_supported(&["Always"]))
}

fn selected(object: &Value, kind: &str) -> Vec<Cause> {
    let mut causes = selector::of_workload(&Field::of(object).get("spec"), kind);
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    match selector.map(LabelSelector::from_json).transpose() {
        Ok(_) => causes.extend(selector_matches_template(object)),
        Err(_) => {
            let selector = Field::of(object).get("spec.selector");
            causes.push(selector.invalid("invalid label selector"));
        }
    }
    causes
}

/// A workload that does not select its own pods would create them forever.
pub(super) fn selector_matches_template(object: &Value) -> Option<Cause> {
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    let selector = selector.map(LabelSelector::from_json).transpose().ok()?;
    // An empty one is refused for what it is.
    if selector.as_ref().is_some_and(LabelSelector::is_empty) {
        return None;
    }
    let template = object.pointer("/spec/template").unwrap_or(&Value::Null);
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    // None selects nothing.
    (!selector.is_some_and(|selector| selector.matches_object(template))).then(|| {
        Cause::invalid("spec.template.metadata.labels", &labels, "`selector` does not match template `labels`")
    })
}

fn strategy(strategy: &Field<'_>) -> Vec<Cause> {
    let (kind, rolling) = (strategy.get("type"), strategy.get("rollingUpdate"));
    match kind.text() {
        "Recreate" if rolling.is_set() => {
            vec![rolling.forbidden("may not be specified when strategy `type` is 'Recreate'")]
        }
        "Recreate" => Vec::new(),
        "RollingUpdate" => {
            let (missing, surplus) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            let mut causes = share::not_negative(&missing);
            causes.extend(share::not_negative(&surplus));
            if share::is_zero(&missing) && share::is_zero(&surplus) {
                causes.push(missing.invalid("may not be 0 when `maxSurge` is 0"));
            }
            causes.extend(share::not_above_all(&missing));
            causes
        }
        other => {
            let shown = format!("Unsupported value: {{\"Type\":{other:?},\"RollingUpdate\":null}}");
            let message = format!("{shown}: supported values: \"Recreate\", \"RollingUpdate\"");
            vec![Cause::new(&strategy.path, "FieldValueNotSupported", message)]
        }
    }
}
