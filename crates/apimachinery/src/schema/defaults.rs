//! Defaulting of fields from a structural schema.

use serde_json::Value;

use super::node::{AdditionalProperties, SchemaNode};

/// How defaulting treats null in a field that is not nullable and has no default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullPolicy {
    /// Remove it, as for decoded request bodies.
    Prune,
    /// Keep it, as for results of server-side apply.
    Retain,
}

/// Fills in defaults of `node` in `value`, recursively.
pub(super) fn apply(node: &SchemaNode, value: &mut Value, nulls: NullPolicy) {
    match value {
        Value::Object(map) => {
            for (name, child) in &node.properties {
                let is_forbidden_null = !child.nullable && map.get(name).is_some_and(Value::is_null);
                if is_forbidden_null && (nulls == NullPolicy::Prune || child.default.is_some()) {
                    map.remove(name);
                }
                if let (false, Some(default)) = (map.contains_key(name), &child.default) {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(name) {
                    apply(child, value, nulls);
                }
            }
            if let AdditionalProperties::Schema(child) = &node.additional {
                let additional = map.iter_mut().filter(|(name, _)| !node.properties.contains_key(*name));
                additional.for_each(|(_, value)| apply(child, value, nulls));
            }
        }
        Value::Array(list) => {
            if let Some(child) = &node.items {
                list.iter_mut().for_each(|value| apply(child, value, nulls));
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
    fn fills_nested_defaults_and_prunes_forbidden_nulls() {
        let schema = Schema::from_json(&json!({"type": "object", "properties": {"spec": {
        "type": "object", "default": {}, "properties": {
            "replicas": {"type": "integer", "default": 1},
            "note": {"type": "string"},
            "maybe": {"type": "string", "nullable": true, "default": "x"},
            "ports": {"type": "array", "items": {"type": "object", "properties": {
                "protocol": {"type": "string", "default": "TCP"}}}},
        }}}}))
        .unwrap();
        let mut object = json!({});
        schema.default(&mut object);
        assert_eq!(object, json!({"spec": {"replicas": 1, "maybe": "x"}}));
        let mut object = json!({"spec": {"replicas": null, "note": null, "maybe": null, "ports": [{}]}});
        schema.default(&mut object);
        assert_eq!(object, json!({"spec": {"replicas": 1, "maybe": null, "ports": [{"protocol": "TCP"}]}}));
    }
}
