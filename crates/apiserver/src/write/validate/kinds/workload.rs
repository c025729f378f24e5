//! Validation of Deployments, ReplicaSets and StatefulSets.

use apimachinery::{LabelSelector, StatusCause};
use serde_json::Value;

use super::super::metadata;
use super::field::Field;
use super::selector;
use super::{int_or_percent, pod};

/// Validates a Deployment.
pub(super) fn deployment_causes(object: &Value) -> Vec<StatusCause> {
    let spec = Field::root(object).get("spec");
    let mut causes = replicated_workload_causes(object, "deployment");
    causes.extend(check_strategy(&spec.get("strategy")));
    let (min_ready, deadline) = (spec.get("minReadySeconds"), spec.get("progressDeadlineSeconds"));
    causes.extend(min_ready.check_not_negative());
    causes.extend(spec.get("revisionHistoryLimit").check_not_negative());
    causes.extend(deadline.check_not_negative());
    if deadline.number().is_some_and(|deadline| deadline <= min_ready.number().unwrap_or(0)) {
        causes.push(deadline.invalid("must be greater than minReadySeconds"));
    }
    causes
}

/// Validates a ReplicaSet.
pub(super) fn replica_set_causes(object: &Value) -> Vec<StatusCause> {
    let mut causes = replicated_workload_causes(object, "deployment");
    causes.extend(Field::root(object).get("spec.minReadySeconds").check_not_negative());
    causes
}

/// Validates a StatefulSet.
pub(super) fn stateful_set_causes(object: &Value) -> Vec<StatusCause> {
    let spec = Field::root(object).get("spec");
    let mut causes = Vec::new();
    let policy = spec.get("podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy.text()) {
        causes.push(policy.invalid("must be 'OrderedReady' or 'Parallel'"));
    }
    let (strategy, kind) = (spec.get("updateStrategy"), spec.get("updateStrategy.type"));
    if !["RollingUpdate", "OnDelete"].contains(&kind.text()) {
        let formatted = format!(r#"{{"Type":{:?},"RollingUpdate":null}}"#, kind.text());
        causes.push(StatusCause::invalid_json(&strategy.path, &formatted, "must be 'RollingUpdate' or 'OnDelete'"));
    }
    causes.extend(spec.get("updateStrategy.rollingUpdate.partition").check_not_negative());
    for name in ["whenDeleted", "whenScaled"] {
        let retention = spec.get(&format!("persistentVolumeClaimRetentionPolicy.{name}"));
        causes.extend(retention.check_one_of(&["Retain", "Delete"]));
    }
    causes.extend(spec.get("replicas").check_not_negative());
    causes.extend(spec.get("minReadySeconds").check_not_negative());
    causes.extend(spec.get("ordinals.start").check_not_negative());
    causes.extend(selector_causes(object, "statefulset"));
    causes.extend(check_template(object));
    causes.extend(check_restart_policy(object));
    causes
}

/// Validates the replica counts of a Deployment status. No count may be negative or exceed the count that includes it.
pub(super) fn deployment_status_causes(object: &Value) -> Vec<StatusCause> {
    const SUBSET_AND_TOTAL: [(&str, &str); 4] = [
        ("updatedReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ];
    let status = Field::root(object).get("status");
    let count = |name: &str| status.get(name).number().unwrap_or(0);
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"];
    let mut causes: Vec<StatusCause> = counts.iter().filter_map(|name| status.get(name).check_not_negative()).collect();
    for (subset, total) in SUBSET_AND_TOTAL.into_iter().filter(|(subset, total)| count(subset) > count(total)) {
        let total = if total == "replicas" { "status.replicas" } else { total };
        causes.push(status.get(subset).invalid(&format!("cannot be greater than {total}")));
    }
    causes
}

fn replicated_workload_causes(object: &Value, kind: &str) -> Vec<StatusCause> {
    let mut causes: Vec<StatusCause> =
        Field::root(object).get("spec.replicas").check_not_negative().into_iter().collect();
    causes.extend(selector_causes(object, kind));
    causes.extend(check_template(object));
    causes.extend(check_restart_policy(object));
    causes
}

/// Validates the Pod template of a workload.
pub(super) fn check_template(object: &Value) -> Vec<StatusCause> {
    let labels = Field::root(object).get("spec.template.metadata.labels");
    let mut causes = metadata::check_labels(&labels.path, labels.value.as_object());
    causes.extend(pod::causes(object.pointer("/spec/template/spec").unwrap_or(&Value::Null), "spec.template.spec"));
    causes
}

fn check_restart_policy(object: &Value) -> Option<StatusCause> {
    let policy = Field::root(object).get("spec.template.spec.restartPolicy");
    (policy.text() != "Always").then(|| policy.not_supported(&["Always"]))
}

fn selector_causes(object: &Value, kind: &str) -> Vec<StatusCause> {
    let mut causes = selector::check_workload_selector(&Field::root(object).get("spec"), kind);
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    match selector.map(LabelSelector::from_json).transpose() {
        Ok(_) => causes.extend(check_selector_matches_template(object)),
        Err(_) => {
            let selector = Field::root(object).get("spec.selector");
            causes.push(selector.invalid("invalid label selector"));
        }
    }
    causes
}

/// Checks that the selector matches the labels of the template; otherwise the workload would create Pods endlessly.
pub(super) fn check_selector_matches_template(object: &Value) -> Option<StatusCause> {
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    let selector = selector.map(LabelSelector::from_json).transpose().ok()?;
    // Empty selectors are rejected separately.
    if selector.as_ref().is_some_and(LabelSelector::is_empty) {
        return None;
    }
    let template = object.pointer("/spec/template").unwrap_or(&Value::Null);
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    // An absent selector matches nothing.
    (!selector.is_some_and(|selector| selector.matches_object(template))).then(|| {
        StatusCause::invalid("spec.template.metadata.labels", &labels, "`selector` does not match template `labels`")
    })
}

fn check_strategy(strategy: &Field<'_>) -> Vec<StatusCause> {
    let (kind, rolling_update) = (strategy.get("type"), strategy.get("rollingUpdate"));
    match kind.text() {
        "Recreate" if rolling_update.is_set() => {
            vec![rolling_update.forbidden("may not be specified when strategy `type` is 'Recreate'")]
        }
        "Recreate" => Vec::new(),
        "RollingUpdate" => {
            let (max_unavailable, max_surge) = (rolling_update.get("maxUnavailable"), rolling_update.get("maxSurge"));
            let mut causes = int_or_percent::check_not_negative(&max_unavailable);
            causes.extend(int_or_percent::check_not_negative(&max_surge));
            if int_or_percent::is_zero(&max_unavailable) && int_or_percent::is_zero(&max_surge) {
                causes.push(max_unavailable.invalid("may not be 0 when `maxSurge` is 0"));
            }
            causes.extend(int_or_percent::check_at_most_100_percent(&max_unavailable));
            causes
        }
        other => {
            let formatted = format!("Unsupported value: {{\"Type\":{other:?},\"RollingUpdate\":null}}");
            let message = format!("{formatted}: supported values: \"Recreate\", \"RollingUpdate\"");
            vec![StatusCause::new(&strategy.path, "FieldValueNotSupported", message)]
        }
    }
}
