//! What of an applied configuration cannot be owned, as server-side apply says it: fields that nobody declared, values
//! of another type, elements of lists that cannot be told apart. Value validations come later.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::OBJECT_FIELDS;
use super::node::{Additional, Kind, Node};
use crate::apply::element_name;
use crate::go;
use crate::structure::{Merge, Structure};

/// What is compared with the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Which fields there are; the types of the values are known better elsewhere.
    Fields,
    /// Types, too.
    Types,
}

struct Walk {
    depth: Depth,
    found: BTreeSet<String>,
}

pub(super) fn find(node: &Node, structure: &Structure, value: &Value, depth: Depth) -> BTreeSet<String> {
    let mut walk = Walk { depth, found: BTreeSet::new() };
    walk.value(node, structure, value, "", false);
    walk.found
}

// === impl Walk ===

impl Walk {
    /// `open`: something above preserves what it does not know.
    fn value(&mut self, node: &Node, structure: &Structure, value: &Value, path: &str, open: bool) {
        let open = open || node.preserve_unknown;
        match (value, node.kind) {
            (Value::Null, _) => {}
            (Value::Object(members), None | Some(Kind::Object)) => self.members(node, structure, members, path, open),
            (Value::Array(items), None | Some(Kind::Array)) => self.items(node, structure, items, path, open),
            (value, Some(kind)) if self.depth == Depth::Types => {
                let is_text = matches!(node.limits.format.as_deref(), None | Some("byte"));
                self.found.extend(misfit(kind, is_text, value).map(|what| format!("{path}: {what}")));
            }
            _ => {}
        }
    }

    fn members(&mut self, node: &Node, structure: &Structure, members: &Map<String, Value>, path: &str, open: bool) {
        for (name, value) in members {
            if node.is_resource && OBJECT_FIELDS.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{path}.{name}");
            match (node.properties.get(name), &node.additional) {
                (Some(child), _) => self.value(child, structure.field(name), value, &path, open),
                (None, Additional::Schema(child)) => self.value(child, structure.field(name), value, &path, open),
                // An object without properties is free.
                (None, Additional::Unknown) if !open && !node.properties.is_empty() => {
                    self.found.insert(format!("{path}: field not declared in schema"));
                }
                (None, _) => {}
            }
        }
    }

    fn items(&mut self, node: &Node, structure: &Structure, items: &[Value], path: &str, open: bool) {
        let is_taken_apart = matches!(structure.merge, Merge::Set | Merge::Map(_));
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = match element_name(structure, index, item) {
                Err(why) => {
                    // What cannot be named is not looked into, nor what follows.
                    self.found.insert(format!("{path}: {why}"));
                    return;
                }
                Ok(step) if is_taken_apart => step,
                Ok(_) => format!("[{index}]"),
            };
            if is_taken_apart && !seen.insert(step.clone()) {
                self.found.insert(format!("{path}: duplicate entries for key {step}"));
            }
            if let Some(child) = &node.items {
                self.value(child, structure.item(), item, &format!("{path}{step}"), open);
            }
        }
    }
}

/// What is said of a value that is not of `kind`. A text with a format may be any scalar.
fn misfit(kind: Kind, is_text: bool, value: &Value) -> Option<String> {
    let is_scalar = !value.is_array() && !value.is_object();
    let plain = || format!("&{{{}}}", go::plain(value));
    match kind {
        Kind::Object => Some(format!("expected map, got {}", plain())),
        Kind::Array => Some(format!("expected list, got {}", plain())),
        Kind::String if value.is_string() || is_scalar && !is_text => None,
        Kind::String if !is_text => Some(format!("expected any scalar, got {}", plain())),
        Kind::String => Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go::literal(value))),
        Kind::Integer | Kind::Number if value.is_number() => None,
        Kind::Integer | Kind::Number => Some(format!("expected numeric (int or float), got {}", go::kind(value))),
        Kind::Boolean if value.is_boolean() => None,
        Kind::Boolean => Some(format!("expected boolean, got {}", plain())),
        Kind::IntOrString => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    #[test]
    fn everything_that_does_not_fit_is_told() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "ratio": {"type": "number"},
            "when": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "properties": {"id": {"type": "string"}}}},
        }}}});
        let applied = json!({"apiVersion": "x/v1", "metadata": {"any": 1}, "spec": {
            "bogus": 1, "free": [1], "ratio": "1", "when": 7, "tags": ["a", "a", 1],
            "parts": [{"id": "x", "bogus": 1}, {}, {"other": 1}]}});
        let structure = Structure::from_schema(&schema);
        let found = Schema::from_json(&schema).unwrap().misfits(&structure, &applied, Depth::Types);
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [
                ".spec.bogus: field not declared in schema",
                ".spec.free: expected map, got &{[1]}",
                ".spec.parts: element 1: associative list with keys has an element that omits all key fields [\"id\"] (and doesn't have default values for any key fields)",
                ".spec.parts[id=\"x\"].bogus: field not declared in schema",
                ".spec.ratio: expected numeric (int or float), got string",
                ".spec.tags: duplicate entries for key [=\"a\"]",
                ".spec.tags[=1]: expected string, got &value.valueUnstructured{Value:1}",
            ]
        );
    }
}
