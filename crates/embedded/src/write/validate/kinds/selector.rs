//! Selectors of labels, and of nodes.

use apimachinery::status::Cause;
use serde_json::Value;

use super::super::metadata;
use super::super::names::key_hints;
use super::field::Field;

const NO_OPERATOR: &str = "not a valid selector operator";
const WANTS_VALUES: &str = "must be specified when `operator` is 'In' or 'NotIn'";
const WANTS_NONE: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";

/// `matchLabels` and `matchExpressions`.
pub(super) fn of_labels(selector: &Field<'_>) -> Vec<Cause> {
    let labels = selector.get("matchLabels");
    let mut causes = metadata::labels(&labels.path, labels.value.as_object());
    for requirement in selector.get("matchExpressions").each() {
        let (operator, values) = (requirement.get("operator"), requirement.get("values"));
        causes.extend(match operator.text() {
            "In" | "NotIn" => values.is_empty().then(|| values.required_because(WANTS_VALUES)),
            "Exists" | "DoesNotExist" => (!values.is_empty()).then(|| values.forbidden(WANTS_NONE)),
            _ => Some(operator.invalid(NO_OPERATOR)),
        });
        causes.extend(requirement.get("key").ruled(key_hints));
    }
    causes
}

/// A term of a selector of nodes.
pub(super) fn of_nodes(term: &Field<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for requirement in term.get("matchExpressions").each() {
        let (operator, values) = (requirement.get("operator"), requirement.get("values"));
        let is_one = values.value.as_array().map(Vec::len) == Some(1);
        causes.extend(match operator.text() {
            "In" | "NotIn" => values.is_empty().then(|| values.required_because(WANTS_VALUES)),
            "Exists" | "DoesNotExist" => (!values.is_empty()).then(|| values.forbidden(WANTS_NONE)),
            "Gt" | "Lt" => (!is_one)
                .then(|| values.required_because("must be specified single value when `operator` is 'Lt' or 'Gt'")),
            _ => Some(operator.invalid(NO_OPERATOR)),
        });
        causes.extend(requirement.get("key").ruled(key_hints));
    }
    causes
}

/// The selector of a workload: there, and not of everything.
pub(super) fn of_workload(spec: &Field<'_>, kind: &str) -> Vec<Cause> {
    let selector = spec.get("selector");
    if !selector.is_set() {
        return vec![selector.required()];
    }
    let mut causes = of_labels(&selector);
    let is_everything = selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty();
    if is_everything {
        let empty = Value::Object(serde_json::Map::new());
        let hint = format!("empty selector is invalid for {kind}");
        causes.push(Cause::invalid(&selector.path, &empty, &hint));
    }
    causes
}
