//! Whether the names of a definition are free in its group (`apiextensions-apiserver/pkg/controller/status`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::STORAGE;
use crate::object;
use crate::server::Server;
use crate::workloads::condition::{self, Condition};

/// What the other definitions of a group have.
#[derive(Default)]
struct Taken {
    /// Plurals, singulars and short names.
    resources: BTreeSet<String>,
    /// Kinds and kinds of lists.
    kinds: BTreeSet<String>,
}

/// The status of a definition: the names it may have, and whether it is established.
pub(super) fn settled(server: &Server, definition: &Value, now: &str) -> Value {
    let taken = Taken::beside(server, definition);
    let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    let wanted = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let mut accepted = status.get("acceptedNames").cloned().unwrap_or_default();
    let mut conflict = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let names = texts(wanted.get(field));
        let own = texts(accepted.get(field));
        // What was accepted once stays.
        let used: Vec<String> = names
            .iter()
            .filter(|name| !own.contains(name) && used.contains(**name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match used.as_slice() {
            [] => copy(&mut accepted, &wanted, field),
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    copy(&mut accepted, &wanted, "categories");
    let members = object::members(&mut status);
    members.insert("acceptedNames".to_owned(), accepted);
    if members.get("conditions").is_none_or(Value::is_null) {
        members.insert("conditions".to_owned(), json!([]));
    }
    let free = conflict.is_none();
    let (reason, message) = conflict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    condition::set(&mut status, Condition { kind: "NamesAccepted", status: free, reason, message: &message }, now);
    let established = condition::is_true(&json!({"status": status}), "Established");
    let (reason, message) = match free {
        true => ("InitialNamesAccepted", "the initial names have been accepted"),
        false => ("NotAccepted", "not all names are accepted"),
    };
    if !established {
        condition::set(&mut status, Condition { kind: "Established", status: free, reason, message }, now);
    }
    status
}

// === impl Taken ===

impl Taken {
    fn beside(server: &Server, definition: &Value) -> Self {
        let mut taken = Self::default();
        for other in server.list(STORAGE) {
            let same_group = object::text(&other, "/spec/group") == object::text(definition, "/spec/group");
            if !same_group || object::name(&other) == object::name(definition) {
                continue;
            }
            let names = other.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
            let owned = |field: &str| texts(names.get(field)).into_iter().map(str::to_owned).collect::<Vec<_>>();
            taken.resources.extend(["plural", "singular", "shortNames"].into_iter().flat_map(owned));
            taken.kinds.extend(["kind", "listKind"].into_iter().flat_map(owned));
        }
        taken
    }
}

/// One name or several; empty ones are none.
fn texts(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) if !text.is_empty() => vec![text],
        other => object::strings(other),
    }
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    let members: &mut Map<String, Value> = object::members(to);
    if let Some(value) = from.get(field) {
        members.insert(field.to_owned(), value.clone());
    }
}
