//! Validation of the approval annotation, which definitions in API groups of the Kubernetes project require.

use apimachinery::{StatusCause, object};
use serde_json::{Map, Value, json};

const APPROVAL: &str = "api-approved.kubernetes.io";

/// Checks the approval annotation of a definition in a protected API group (`*.k8s.io` and `*.kubernetes.io`).
pub(super) fn check(definition: &Value, causes: &mut Vec<StatusCause>) {
    const REFERENCE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = object::text(definition, "/spec/group");
    let is_protected =
        ["k8s.io", "kubernetes.io"].iter().any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if !is_protected {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let empty = Map::new();
    let annotations = definition.pointer("/metadata/annotations").and_then(Value::as_object).unwrap_or(&empty);
    let message = format!("protected groups must have approval annotation \"{APPROVAL}\"");
    match annotations.get(APPROVAL).and_then(Value::as_str).unwrap_or_default() {
        "" => causes.push(StatusCause::required(field, &format!("{message}, {REFERENCE}"))),
        value if value.starts_with("unapproved") || value.contains("://") => {}
        value => {
            let hint = format!("{message} with either a URL or a reason starting with \"unapproved\", {REFERENCE}");
            causes.push(StatusCause::invalid(field, &json!(value), &hint));
        }
    }
}
