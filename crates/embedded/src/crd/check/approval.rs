//! Groups that belong to the Kubernetes project.

use apimachinery::status::Cause;
use serde_json::{Map, Value, json};

use crate::object;

const APPROVAL: &str = "api-approved.kubernetes.io";

/// Groups of the Kubernetes project want to be asked.
pub(super) fn check(definition: &Value, found: &mut Vec<Cause>) {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = object::text(definition, "/spec/group");
    let is_protected =
        ["k8s.io", "kubernetes.io"].iter().any(|one| group == *one || group.ends_with(&format!(".{one}")));
    if !is_protected {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let empty = Map::new();
    let annotations = definition.pointer("/metadata/annotations").and_then(Value::as_object).unwrap_or(&empty);
    let must = format!("protected groups must have approval annotation \"{APPROVAL}\"");
    match annotations.get(APPROVAL).and_then(Value::as_str).unwrap_or_default() {
        "" => found.push(Cause::required(field, &format!("{must}, {SEE}"))),
        given if given.starts_with("unapproved") || given.contains("://") => {}
        given => {
            let hint = format!("{must} with either a URL or a reason starting with \"unapproved\", {SEE}");
            found.push(Cause::invalid(field, &json!(given), &hint));
        }
    }
}
