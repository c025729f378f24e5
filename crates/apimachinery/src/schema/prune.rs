//! Pruning of fields that the schema does not know.

use serde_json::Value;

use super::node::{Additional, Node};
use super::{OBJECT_FIELDS, join};

pub(super) fn apply(node: &Node, value: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    prune(node, value, "", &mut dropped);
    dropped.sort();
    dropped
}

fn prune(node: &Node, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let known = match (node.properties.get(name), &node.additional) {
                // What metadata may hold is not the schema's to say.
                _ if node.is_resource && OBJECT_FIELDS.contains(&name.as_str()) => return true,
                (Some(child), _) => Some(child),
                (None, Additional::Schema(child)) => Some(child.as_ref()),
                (None, Additional::Any) => return true,
                (None, Additional::Unknown) => None,
            };
            let path = join(path, name);
            if let Some(child) = known {
                prune(child, value, &path, dropped);
            } else if !node.preserve_unknown {
                dropped.push(path);
            }
            known.is_some() || node.preserve_unknown
        }),
        Value::Array(list) => {
            if let Some(child) = &node.items {
                for (index, value) in list.iter_mut().enumerate() {
                    prune(child, value, &format!("{path}[{index}]"), dropped);
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
    fn drops_the_unknown_and_keeps_what_is_preserved() {
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
        let dropped = schema.prune(&mut object);
        assert_eq!(dropped, ["extra", "spec.list[0].z", "spec.nope", "spec.template.typed.c"]);
        assert_eq!(object["spec"]["template"], json!({"any": {"thing": 1}, "typed": {"b": ""}}));
        assert_eq!(object["metadata"]["name"], "x");
    }
}
