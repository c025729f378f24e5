//! Where a Pod may run: affinity, tolerations and spread.

use apimachinery::status::Cause;
use serde_json::json;

use super::super::names::{LABEL_VALUE, is_label_value, key_hints};
use super::field::Field;
use super::selector;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// `affinity` of a Pod.
pub(super) fn affinity(affinity: &Field<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let nodes = affinity.get("nodeAffinity");
    let required = nodes.get(REQUIRED);
    if required.is_set() {
        let terms = required.get("nodeSelectorTerms");
        if terms.is_empty() {
            causes.push(terms.required_because("must have at least one node selector term"));
        }
        causes.extend(terms.each().flat_map(|term| selector::of_nodes(&term)));
    }
    for preferred in nodes.get(PREFERRED).each() {
        causes.extend(weight(&preferred));
        causes.extend(selector::of_nodes(&preferred.get("preference")));
    }
    for name in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(name);
        causes.extend(pods.get(REQUIRED).each().flat_map(|term| neighbours(&term)));
        for preferred in pods.get(PREFERRED).each() {
            causes.extend(weight(&preferred));
            causes.extend(neighbours(&preferred.get("podAffinityTerm")));
        }
    }
    causes
}

fn weight(preferred: &Field<'_>) -> Option<Cause> {
    let weight = preferred.get("weight");
    let fits = (1..=100).contains(&weight.number().unwrap_or(0));
    let shown = json!(weight.number().unwrap_or(0));
    (!fits).then(|| Cause::invalid(&weight.path, &shown, "must be in the range 1-100"))
}

fn neighbours(term: &Field<'_>) -> Vec<Cause> {
    let mut causes = selector::of_labels(&term.get("labelSelector"));
    causes.extend(selector::of_labels(&term.get("namespaceSelector")));
    let key = term.get("topologyKey");
    if key.is_empty() {
        causes.push(key.required_because("can not be empty"));
    }
    let shown = json!(key.text());
    causes.extend(key_hints(key.text()).iter().map(|hint| Cause::invalid(&key.path, &shown, hint)));
    causes
}

/// `tolerations` of a Pod.
pub(super) fn tolerations(tolerations: &Field<'_>) -> Vec<Cause> {
    tolerations.each().flat_map(|toleration| tolerated(&toleration)).collect()
}

fn tolerated(toleration: &Field<'_>) -> Vec<Cause> {
    let [key, operator, value, effect] = ["key", "operator", "value", "effect"].map(|name| toleration.get(name));
    let mut causes = key.ruled_if_given(key_hints);
    if key.is_empty() && operator.text() != "Exists" {
        let hint = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        causes.push(Cause::invalid(&operator.path, &json!(operator.text()), hint));
    }
    if toleration.get("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
        let hint = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        causes.push(Cause::invalid(&effect.path, &json!(effect.text()), hint));
    }
    match operator.text() {
        "" | "Equal" if is_label_value(value.text()) => {}
        "" | "Equal" => causes.push(Cause::invalid(&operator.path, value.value, LABEL_VALUE)),
        "Exists" if value.is_empty() => {}
        "Exists" => {
            let hint = "value must be empty when `operator` is 'Exists'";
            causes.push(Cause::invalid(&operator.path, value.value, hint));
        }
        _ => causes.push(operator.not_supported(&["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        causes.extend(effect.one_of(&EFFECTS));
    }
    causes
}

/// `topologySpreadConstraints` of a Pod.
pub(super) fn spread(constraints: &Field<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for constraint in constraints.each() {
        let (skew, key, otherwise) =
            (constraint.get("maxSkew"), constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"));
        let count = skew.number().unwrap_or(0);
        if count <= 0 {
            causes.push(Cause::invalid(&skew.path, &json!(count), "must be greater than zero"));
        }
        if key.is_empty() {
            causes.push(key.required_because("can not be empty"));
        } else {
            causes.extend(key.ruled(key_hints));
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&otherwise.text()) {
            causes.push(otherwise.not_supported(&["DoNotSchedule", "ScheduleAnyway"]));
        }
        causes.extend(selector::of_labels(&constraint.get("labelSelector")));
    }
    causes
}

/// `taints` of a Node.
pub(super) fn taints(taints: &Field<'_>) -> Vec<Cause> {
    let mut seen = std::collections::BTreeSet::new();
    let mut causes = Vec::new();
    for taint in taints.each() {
        let [key, value, effect] = ["key", "value", "effect"].map(|name| taint.get(name));
        causes.extend(key.ruled(key_hints));
        if !is_label_value(value.text()) {
            causes.push(value.invalid(LABEL_VALUE));
        }
        if effect.is_empty() {
            causes.push(effect.required());
        } else {
            causes.extend(effect.one_of(&EFFECTS));
        }
        if !effect.is_empty() && !key.is_empty() && !seen.insert((key.text(), effect.text())) {
            // As Go prints a taint.
            let [key, value, effect] = [key, value, effect].map(|field| json!(field.text()));
            let shown = format!(r#"{{"Key":{key},"Value":{value},"Effect":{effect},"TimeAdded":null}}"#);
            let message = format!("Duplicate value: {shown}: taints must be unique by key and effect pair");
            causes.push(Cause::new(&taint.path, "FieldValueDuplicate", message));
        }
    }
    causes
}
