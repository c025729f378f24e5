//! Who may own an object: somebody who is named in full, one of them its controller.

use apimachinery::status::Cause;
use serde_json::Value;

use crate::object;

const FIELD: &str = "metadata.ownerReferences";

pub(super) fn causes(object: &Value) -> Vec<Cause> {
    let references: Vec<&Value> = object::owner_references(object).collect();
    let mut causes: Vec<Cause> =
        references.iter().enumerate().flat_map(|(index, owner)| one(&format!("{FIELD}[{index}]"), owner)).collect();
    let controllers: Vec<String> =
        references.iter().filter(|owner| owner["controller"] == true).map(|owner| named(owner)).collect();
    if let [first, second, ..] = controllers.as_slice() {
        let shown: Vec<String> = references.iter().map(|owner| printed(owner)).collect();
        let hint = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        causes.push(Cause::invalid_text(FIELD, &format!("[{}]", shown.join(",")), &hint));
    }
    causes
}

fn one(field: &str, owner: &Value) -> Vec<Cause> {
    let text = |name: &str| object::text(owner, &format!("/{name}"));
    let mut causes = Vec::new();
    if text("apiVersion").is_empty() {
        causes.push(Cause::invalid(format!("{field}.apiVersion"), &"".into(), "version must not be empty"));
    }
    let missing = ["kind", "name", "uid"].into_iter().filter(|name| text(name).is_empty());
    causes.extend(missing.map(|name| Cause::required(format!("{field}.{name}"), "must not be empty")));
    // Events go by themselves, and would take along what they own.
    if (text("apiVersion"), text("kind")) == ("v1", "Event") {
        let hint = "/v1, Kind=Event is disallowed from being an owner";
        causes.push(Cause::invalid_text(field, &printed(owner), hint));
    }
    causes
}

fn named(owner: &Value) -> String {
    format!("{}/{}", object::text(owner, "/kind"), object::text(owner, "/name"))
}

/// As Go prints a reference.
fn printed(owner: &Value) -> String {
    let always = ["apiVersion", "kind", "name", "uid"];
    let members = always.iter().map(|name| (name, Value::from(object::text(owner, &format!("/{name}")))));
    let given = ["controller", "blockOwnerDeletion"];
    let flags = given
        .iter()
        .filter_map(|name| owner.get(*name).filter(|flag| !flag.is_null()).map(|flag| (name, flag.clone())));
    let parts: Vec<String> = members.chain(flags).map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", parts.join(","))
}
