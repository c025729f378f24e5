//! Validation of owner references: required fields, and at most one controller.

use apimachinery::{StatusCause, object};
use serde_json::Value;

const FIELD: &str = "metadata.ownerReferences";

pub(super) fn causes(object: &Value) -> Vec<StatusCause> {
    let references: Vec<&Value> = object::owner_references(object).collect();
    let mut causes: Vec<StatusCause> = references
        .iter()
        .enumerate()
        .flat_map(|(index, owner)| reference_causes(&format!("{FIELD}[{index}]"), owner))
        .collect();
    let controllers: Vec<String> =
        references.iter().filter(|owner| owner["controller"] == true).map(|owner| kind_and_name(owner)).collect();
    if let [first, second, ..] = controllers.as_slice() {
        let formatted: Vec<String> = references.iter().map(|owner| format_reference(owner)).collect();
        let hint = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        causes.push(StatusCause::invalid_json(FIELD, &format!("[{}]", formatted.join(",")), &hint));
    }
    causes
}

fn reference_causes(field: &str, owner: &Value) -> Vec<StatusCause> {
    let text = |name: &str| object::text(owner, &format!("/{name}"));
    let mut causes = Vec::new();
    if text("apiVersion").is_empty() {
        causes.push(StatusCause::invalid(format!("{field}.apiVersion"), &"".into(), "version must not be empty"));
    }
    let missing_fields = ["kind", "name", "uid"].into_iter().filter(|name| text(name).is_empty());
    causes.extend(missing_fields.map(|name| StatusCause::required(format!("{field}.{name}"), "must not be empty")));
    // Events cannot be owners, because their dependents would be deleted when the Event expires.
    if (text("apiVersion"), text("kind")) == ("v1", "Event") {
        let hint = "/v1, Kind=Event is disallowed from being an owner";
        causes.push(StatusCause::invalid_json(field, &format_reference(owner), hint));
    }
    causes
}

fn kind_and_name(owner: &Value) -> String {
    format!("{}/{}", object::text(owner, "/kind"), object::text(owner, "/name"))
}

/// Formats a reference as Go does.
fn format_reference(owner: &Value) -> String {
    let required_fields = ["apiVersion", "kind", "name", "uid"];
    let members = required_fields.iter().map(|name| (name, Value::from(object::text(owner, &format!("/{name}")))));
    let optional_fields = ["controller", "blockOwnerDeletion"];
    let flags = optional_fields
        .iter()
        .filter_map(|name| owner.get(*name).filter(|flag| !flag.is_null()).map(|flag| (name, flag.clone())));
    let parts: Vec<String> = members.chain(flags).map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", parts.join(","))
}
