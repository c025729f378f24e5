//! Pruning of fields that the schema does not specify.

use serde_json::Value;

use super::node::{AdditionalProperties, SchemaNode};
use super::openapi::OBJECT_FIELDS;
use super::paths::join;

/// Removes unspecified fields from `value`; returns their paths, sorted.
pub(super) fn apply(node: &SchemaNode, value: &mut Value) -> Vec<String> {
    let mut pruned = Vec::new();
    prune(node, value, "", &mut pruned);
    pruned.sort();
    pruned
}

fn prune(node: &SchemaNode, value: &mut Value, path: &str, pruned: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let child_schema = match (node.properties.get(name), &node.additional) {
                // `metadata` is not restricted by the schema.
                _ if node.is_resource && OBJECT_FIELDS.contains(&name.as_str()) => return true,
                (Some(child), _) => Some(child),
                (None, AdditionalProperties::Schema(child)) => Some(child.as_ref()),
                (None, AdditionalProperties::Any) => return true,
                (None, AdditionalProperties::Unset) => None,
            };
            let path = join(path, name);
            if let Some(child) = child_schema {
                prune(child, value, &path, pruned);
            } else if !node.preserve_unknown_fields {
                pruned.push(path);
            }
            child_schema.is_some() || node.preserve_unknown_fields
        }),
        Value::Array(list) => {
            if let Some(child) = &node.items {
                for (index, value) in list.iter_mut().enumerate() {
                    prune(child, value, &format!("{path}[{index}]"), pruned);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::schema::Schema;

    #[test]
    fn prunes_unspecified_fields_and_keeps_preserved_ones() {
        let schema =
            Schema::from_json(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                    "typed": {"type": "object", "properties": {"b": {"type": "string"}}}}},
            }}}}))
            .unwrap();
        let mut object = json!({
            "apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "extra": 1,
            "spec": {"list": [{"a": "", "z": 1}], "labels": {"k": "v"}, "nope": {},
                     "template": {"any": {"thing": 1}, "typed": {"b": "", "c": 1}}},
        });
        let pruned = schema.prune(&mut object);
        assert_eq!(pruned, ["extra", "spec.list[0].z", "spec.nope", "spec.template.typed.c"]);
        assert_eq!(object["spec"]["template"], json!({"any": {"thing": 1}, "typed": {"b": ""}}));
        assert_eq!(object["metadata"]["name"], "x");
    }
}
