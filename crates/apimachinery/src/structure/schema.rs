//! From `openAPIV3Schema`.

use serde_json::Value;

use super::{Key, Merge, Strategic, Structure, builtin};

pub(super) fn root(schema: &Value) -> Structure {
    let mut root = node(schema);
    root.fields.insert("metadata".into(), builtin::metadata());
    root
}

fn node(schema: &Value) -> Structure {
    let flag = |key: &str| schema[key].as_bool().unwrap_or(false);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut result = Structure {
        merge: merge(schema),
        strategic: Strategic::Plain,
        fields: properties.map(|(name, child)| (name.clone(), node(child))).collect(),
        rest: schema.get("additionalProperties").filter(|a| a.is_object()).map(|a| Box::new(node(a))),
        items: schema.get("items").map(|items| Box::new(node(items))),
        nullable: flag("nullable"),
    };
    if flag("x-kubernetes-embedded-resource") {
        result.fields.insert("metadata".into(), builtin::metadata());
    }
    result
}

fn merge(schema: &Value) -> Merge {
    match (schema["x-kubernetes-list-type"].as_str(), schema["x-kubernetes-map-type"].as_str()) {
        (Some("set"), _) => Merge::Set,
        (Some("map"), _) => Merge::Map(keys(schema)),
        (Some("atomic"), _) | (_, Some("atomic")) => Merge::Atomic,
        _ => Merge::Deduced,
    }
}

fn keys(schema: &Value) -> Vec<Key> {
    let names = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let default = |name: &str| schema["items"]["properties"][name].get("default").cloned();
    names.map(|name| Key { name: name.to_owned(), default: default(name) }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_list_and_map_types() {
        let structure = root(&json!({"properties": {"spec": {"properties": {
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                      "items": {"properties": {"protocol": {"default": "TCP"}}}},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }}}}));
        let spec = structure.field("spec");
        assert_eq!(
            spec.field("ports").merge,
            Merge::Map(vec![builtin::key("port"), builtin::key_or("protocol", "TCP")])
        );
        assert_eq!(spec.field("selector").merge, Merge::Atomic);
        assert!(spec.field("labels").is_map_key("any"));
        assert_eq!(structure.field("metadata").field("finalizers").merge, Merge::Set);
    }
}
