//! Validation of scheduling constraints: affinity, tolerations, topology spread and taints.

use apimachinery::StatusCause;
use serde_json::json;

use super::super::names::{LABEL_VALUE_MESSAGE, is_label_value, label_key_hints};
use super::field::Field;
use super::selector;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates `affinity` of a Pod.
pub(super) fn check_affinity(affinity: &Field<'_>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let nodes = affinity.get("nodeAffinity");
    let required = nodes.get(REQUIRED);
    if required.is_set() {
        let terms = required.get("nodeSelectorTerms");
        if terms.is_empty() {
            causes.push(terms.required_with_hint("must have at least one node selector term"));
        }
        causes.extend(terms.items().flat_map(|term| selector::check_node_selector_term(&term)));
    }
    for preferred in nodes.get(PREFERRED).items() {
        causes.extend(check_weight(&preferred));
        causes.extend(selector::check_node_selector_term(&preferred.get("preference")));
    }
    for name in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(name);
        causes.extend(pods.get(REQUIRED).items().flat_map(|term| check_pod_affinity_term(&term)));
        for preferred in pods.get(PREFERRED).items() {
            causes.extend(check_weight(&preferred));
            causes.extend(check_pod_affinity_term(&preferred.get("podAffinityTerm")));
        }
    }
    causes
}

fn check_weight(preferred: &Field<'_>) -> Option<StatusCause> {
    let weight = preferred.get("weight");
    let is_in_range = (1..=100).contains(&weight.number().unwrap_or(0));
    let reported = json!(weight.number().unwrap_or(0));
    (!is_in_range).then(|| StatusCause::invalid(&weight.path, &reported, "must be in the range 1-100"))
}

fn check_pod_affinity_term(term: &Field<'_>) -> Vec<StatusCause> {
    let mut causes = selector::check_label_selector(&term.get("labelSelector"));
    causes.extend(selector::check_label_selector(&term.get("namespaceSelector")));
    let key = term.get("topologyKey");
    if key.is_empty() {
        causes.push(key.required_with_hint("can not be empty"));
    }
    let reported = json!(key.text());
    causes.extend(label_key_hints(key.text()).iter().map(|hint| StatusCause::invalid(&key.path, &reported, hint)));
    causes
}

/// Validates `tolerations` of a Pod.
pub(super) fn check_tolerations(tolerations: &Field<'_>) -> Vec<StatusCause> {
    tolerations.items().flat_map(|toleration| toleration_causes(&toleration)).collect()
}

fn toleration_causes(toleration: &Field<'_>) -> Vec<StatusCause> {
    let [key, operator, value, effect] = ["key", "operator", "value", "effect"].map(|name| toleration.get(name));
    let mut causes = key.check_if_set(label_key_hints);
    if key.is_empty() && operator.text() != "Exists" {
        let hint = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        causes.push(StatusCause::invalid(&operator.path, &json!(operator.text()), hint));
    }
    if toleration.get("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
        let hint = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        causes.push(StatusCause::invalid(&effect.path, &json!(effect.text()), hint));
    }
    match operator.text() {
        "" | "Equal" if is_label_value(value.text()) => {}
        "" | "Equal" => causes.push(StatusCause::invalid(&operator.path, value.value, LABEL_VALUE_MESSAGE)),
        "Exists" if value.is_empty() => {}
        "Exists" => {
            let hint = "value must be empty when `operator` is 'Exists'";
            causes.push(StatusCause::invalid(&operator.path, value.value, hint));
        }
        _ => causes.push(operator.not_supported(&["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        causes.extend(effect.check_one_of(&EFFECTS));
    }
    causes
}

/// Validates `topologySpreadConstraints` of a Pod.
pub(super) fn check_topology_spread(constraints: &Field<'_>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    for constraint in constraints.items() {
        let (max_skew, key, when_unsatisfiable) =
            (constraint.get("maxSkew"), constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"));
        let count = max_skew.number().unwrap_or(0);
        if count <= 0 {
            causes.push(StatusCause::invalid(&max_skew.path, &json!(count), "must be greater than zero"));
        }
        if key.is_empty() {
            causes.push(key.required_with_hint("can not be empty"));
        } else {
            causes.extend(key.check(label_key_hints));
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&when_unsatisfiable.text()) {
            causes.push(when_unsatisfiable.not_supported(&["DoNotSchedule", "ScheduleAnyway"]));
        }
        let min_domains = constraint.get("minDomains");
        if min_domains.number().is_some_and(|count| count <= 0) {
            causes.push(min_domains.invalid("must be greater than zero"));
        }
        if min_domains.is_set() && when_unsatisfiable.text() != "DoNotSchedule" {
            let action = when_unsatisfiable.text();
            let hint = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            causes.push(min_domains.invalid(&hint));
        }
        causes.extend(selector::check_label_selector(&constraint.get("labelSelector")));
    }
    causes
}

/// Validates `taints` of a Node.
pub(super) fn check_taints(taints: &Field<'_>) -> Vec<StatusCause> {
    let mut seen = std::collections::BTreeSet::new();
    let mut causes = Vec::new();
    for taint in taints.items() {
        let [key, value, effect] = ["key", "value", "effect"].map(|name| taint.get(name));
        causes.extend(key.check(label_key_hints));
        if !is_label_value(value.text()) {
            causes.push(value.invalid(LABEL_VALUE_MESSAGE));
        }
        if effect.is_empty() {
            causes.push(effect.required());
        } else {
            causes.extend(effect.check_one_of(&EFFECTS));
        }
        if !effect.is_empty() && !key.is_empty() && !seen.insert((key.text(), effect.text())) {
            // Formatted as Go formats the struct.
            let [key, value, effect] = [key, value, effect].map(|field| json!(field.text()));
            let reported = format!(r#"{{"Key":{key},"Value":{value},"Effect":{effect},"TimeAdded":null}}"#);
            let message = format!("Duplicate value: {reported}: taints must be unique by key and effect pair");
            causes.push(StatusCause::new(&taint.path, "FieldValueDuplicate", message));
        }
    }
    causes
}
