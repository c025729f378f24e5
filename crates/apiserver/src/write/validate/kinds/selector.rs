//! Validation of label selectors and node selectors.

use apimachinery::StatusCause;
use serde_json::Value;

use super::super::metadata;
use super::super::names::label_key_hints;
use super::field::Field;

const INVALID_OPERATOR_MESSAGE: &str = "not a valid selector operator";
const VALUES_REQUIRED_MESSAGE: &str = "must be specified when `operator` is 'In' or 'NotIn'";
const VALUES_FORBIDDEN_MESSAGE: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";

/// Validates a label selector.
pub(super) fn check_label_selector(selector: &Field<'_>) -> Vec<StatusCause> {
    let labels = selector.get("matchLabels");
    let mut causes = metadata::check_labels(&labels.path, labels.value.as_object());
    for requirement in selector.get("matchExpressions").items() {
        let (operator, values) = (requirement.get("operator"), requirement.get("values"));
        causes.extend(match operator.text() {
            "In" | "NotIn" => values.is_empty().then(|| values.required_with_hint(VALUES_REQUIRED_MESSAGE)),
            "Exists" | "DoesNotExist" => (!values.is_empty()).then(|| values.forbidden(VALUES_FORBIDDEN_MESSAGE)),
            _ => Some(operator.invalid(INVALID_OPERATOR_MESSAGE)),
        });
        causes.extend(requirement.get("key").check(label_key_hints));
    }
    causes
}

/// Validates a term of a node selector.
pub(super) fn check_node_selector_term(term: &Field<'_>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    for requirement in term.get("matchExpressions").items() {
        let (operator, values) = (requirement.get("operator"), requirement.get("values"));
        let has_single_value = values.value.as_array().map(Vec::len) == Some(1);
        causes.extend(match operator.text() {
            "In" | "NotIn" => values.is_empty().then(|| values.required_with_hint(VALUES_REQUIRED_MESSAGE)),
            "Exists" | "DoesNotExist" => (!values.is_empty()).then(|| values.forbidden(VALUES_FORBIDDEN_MESSAGE)),
            "Gt" | "Lt" => (!has_single_value)
                .then(|| values.required_with_hint("must be specified single value when `operator` is 'Lt' or 'Gt'")),
            _ => Some(operator.invalid(INVALID_OPERATOR_MESSAGE)),
        });
        causes.extend(requirement.get("key").check(label_key_hints));
    }
    causes
}

/// Validates the selector of a workload, which is required and must not be empty.
pub(super) fn check_workload_selector(spec: &Field<'_>, kind: &str) -> Vec<StatusCause> {
    let selector = spec.get("selector");
    if !selector.is_set() {
        return vec![selector.required()];
    }
    let mut causes = check_label_selector(&selector);
    let selects_everything = selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty();
    if selects_everything {
        let empty = Value::Object(serde_json::Map::new());
        let hint = format!("empty selector is invalid for {kind}");
        causes.push(StatusCause::invalid(&selector.path, &empty, &hint));
    }
    causes
}
