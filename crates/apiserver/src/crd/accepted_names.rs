//! Accepts those names of a custom resource definition that no other definition in its API group uses
//! (`apiextensions-apiserver/pkg/controller/status`).

use std::collections::BTreeSet;

use apimachinery::condition::{self, Condition};
use apimachinery::object;
use serde_json::{Map, Value, json};

use crate::resources::definition::{self, STORAGE};
use crate::transaction::Transaction;

/// Names that the other definitions in the API group use.
#[derive(Default)]
struct NamesInUse {
    /// Accepted plural, singular and short names.
    resources: BTreeSet<String>,
    /// Accepted kinds and list kinds.
    kinds: BTreeSet<String>,
}

/// Returns the status of a definition with `acceptedNames` and the conditions updated.
pub(super) fn naming_status(transaction: &Transaction<'_>, definition: &Value, now: &str) -> Value {
    let in_use = NamesInUse::in_group_of(transaction, definition);
    let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    let requested = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let mut accepted = status.get("acceptedNames").cloned().unwrap_or_default();
    let mut conflict = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &in_use.resources),
        ("singular", "SingularConflict", &in_use.resources),
        ("shortNames", "ShortNamesConflict", &in_use.resources),
        ("kind", "KindConflict", &in_use.kinds),
        ("listKind", "ListKindConflict", &in_use.kinds),
    ] {
        let names = names_in(requested.get(field));
        let accepted_before = names_in(accepted.get(field));
        // Names that are already accepted do not conflict.
        let conflicts: Vec<String> = names
            .iter()
            .filter(|name| !accepted_before.contains(name) && used.contains(**name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match conflicts.as_slice() {
            [] => copy_field(&mut accepted, &requested, field),
            [single] => conflict = Some((reason, single.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    copy_field(&mut accepted, &requested, "categories");
    let members = object::members(&mut status);
    members.insert("acceptedNames".to_owned(), accepted);
    if members.get("conditions").is_none_or(Value::is_null) {
        members.insert("conditions".to_owned(), json!([]));
    }
    let is_accepted = conflict.is_none();
    let (reason, message) = conflict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    condition::set(
        &mut status,
        Condition { type_: "NamesAccepted", status: is_accepted, reason, message: &message },
        now,
    );
    let established = condition::is_true(&json!({"status": status}), "Established");
    let (reason, message) = match is_accepted {
        true => ("InitialNamesAccepted", "the initial names have been accepted"),
        false => ("NotAccepted", "not all names are accepted"),
    };
    if !established {
        condition::set(&mut status, Condition { type_: "Established", status: is_accepted, reason, message }, now);
    }
    status
}

// === impl NamesInUse ===

impl NamesInUse {
    fn in_group_of(transaction: &Transaction<'_>, definition: &Value) -> Self {
        let mut in_use = Self::default();
        let name = object::name(definition);
        for other in transaction.list_named(STORAGE, |other| definition::is_in_same_group(other, name)) {
            let names = other.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
            let accepted_names_of =
                |field: &str| names_in(names.get(field)).into_iter().map(str::to_owned).collect::<Vec<_>>();
            in_use.resources.extend(["plural", "singular", "shortNames"].into_iter().flat_map(accepted_names_of));
            in_use.kinds.extend(["kind", "listKind"].into_iter().flat_map(accepted_names_of));
        }
        in_use
    }
}

/// Returns the names in a field that is either a string or a list of strings.
fn names_in(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) if !text.is_empty() => vec![text],
        other => object::strings(other),
    }
}

fn copy_field(to: &mut Value, from: &Value, field: &str) {
    let members: &mut Map<String, Value> = object::members(to);
    if let Some(value) = from.get(field) {
        members.insert(field.to_owned(), value.clone());
    }
}
