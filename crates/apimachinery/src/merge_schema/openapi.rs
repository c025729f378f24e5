//! Reads merge semantics from an `openAPIV3Schema`.

use serde_json::Value;

use super::meta::metadata;
use super::node::{ListMapKey, MergeSchema, MergeStrategy, PatchStrategy};

/// Reads the merge semantics of an `openAPIV3Schema`; fields that it does not specify are deduced.
pub fn openapi_merge_schema(schema: &Value) -> MergeSchema {
    let mut root = node(schema);
    root.fields.insert("metadata".into(), metadata());
    root
}

fn node(schema: &Value) -> MergeSchema {
    let flag = |key: &str| schema[key].as_bool().unwrap_or(false);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut result = MergeSchema {
        merge: merge(schema),
        patch: PatchStrategy::Default,
        fields: properties.map(|(name, child)| (name.clone(), node(child))).collect(),
        additional: schema
            .get("additionalProperties")
            .filter(|value| value.is_object())
            .map(|value| Box::new(node(value))),
        items: schema.get("items").map(|items| Box::new(node(items))),
        nullable: flag("nullable"),
    };
    if flag("x-kubernetes-embedded-resource") {
        result.fields.insert("metadata".into(), metadata());
    }
    result
}

fn merge(schema: &Value) -> MergeStrategy {
    match (schema["x-kubernetes-list-type"].as_str(), schema["x-kubernetes-map-type"].as_str()) {
        (Some("set"), _) => MergeStrategy::Set,
        (Some("map"), _) => MergeStrategy::Map(keys(schema)),
        (Some("atomic"), _) | (_, Some("atomic")) => MergeStrategy::Atomic,
        _ => MergeStrategy::Deduced,
    }
}

fn keys(schema: &Value) -> Vec<ListMapKey> {
    let names = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let default = |name: &str| schema["items"]["properties"][name].get("default").cloned();
    names.map(|name| ListMapKey { name: name.to_owned(), default: default(name) }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::merge_schema::constructors::{key, key_with_default};

    #[test]
    fn reads_list_and_map_types() {
        let schema = openapi_merge_schema(&json!({"properties": {"spec": {"properties": {
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                      "items": {"properties": {"protocol": {"default": "TCP"}}}},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }}}}));
        let spec = schema.field("spec");
        assert_eq!(
            spec.field("ports").merge,
            MergeStrategy::Map(vec![key("port"), key_with_default("protocol", "TCP")])
        );
        assert_eq!(spec.field("selector").merge, MergeStrategy::Atomic);
        assert!(spec.field("labels").is_map_key("any"));
        assert_eq!(schema.field("metadata").field("finalizers").merge, MergeStrategy::Set);
    }
}
