//! Schemas of the types of k8s-openapi: inlined for validation, with references for OpenAPI documents.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::object;

/// Generates the structural schema of `T` with everything inlined. `T` must not be recursive.
pub(crate) fn generate<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    let mut schema = Value::from(SchemaGenerator::new(settings).into_root_schema_for::<T>());
    make_structural(&mut schema);
    let members = object::members(&mut schema);
    members.remove("$schema");
    members.remove("components");
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("metadata".to_owned(), json!({"type": "object"}));
    }
    schema
}

/// Returns the schema name of `T` and all schemas that it references.
pub(crate) fn definitions<T: JsonSchema>() -> (String, Map<String, Value>) {
    let mut generator = SchemaGenerator::new(SchemaSettings::openapi3());
    let _ = generator.subschema_for::<T>();
    let mut definitions = generator.take_definitions(true);
    definitions.values_mut().for_each(wrap_references);
    (T::schema_name().into_owned(), definitions)
}

/// Wraps `$ref` with siblings into `allOf`, as kube-apiserver does: OpenAPI 3.0 ignores siblings of `$ref`.
fn wrap_references(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(wrap_references);
            // A property may be named `$ref`, as in the schema of custom resource definitions.
            if members.len() > 1
                && members.get("$ref").is_some_and(Value::is_string)
                && let Some(reference) = members.remove("$ref")
            {
                members.insert("allOf".to_owned(), json!([{"$ref": reference}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        _ => {}
    }
}

/// Converts the generated schema into a structural schema.
fn make_structural(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    let is_quantity = members
        .get("description")
        .and_then(Value::as_str)
        .is_some_and(|text| text.starts_with("Quantity is a fixed-point representation"));
    members.remove("description");
    if is_quantity {
        members.remove("type");
        members.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
        return;
    }
    let fields = ["properties", "additionalProperties", "x-kubernetes-int-or-string"];
    if !fields.iter().any(|field| members.contains_key(*field))
        && matches!(members.get("type").and_then(Value::as_str), None | Some("object"))
    {
        members.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    for field in ["items", "additionalProperties"] {
        if let Some(child) = members.get_mut(field) {
            make_structural(child);
        }
    }
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(make_structural);
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::Schema;
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::resources::Registry;

    #[test]
    fn definitions_retain_references() {
        let (name, definitions) = definitions::<Pod>();
        assert_eq!(name, "io.k8s.api.core.v1.Pod");
        assert!(definitions.contains_key("io.k8s.api.core.v1.Container"), "{:?}", definitions.keys());
    }

    #[test]
    fn all_builtin_schemas_parse() {
        for resource in Registry::builtin().iter() {
            if resource.plural != "customresourcedefinitions" {
                assert!(resource.schema().is_some(), "{}", resource.kind);
            }
        }
    }

    #[test]
    fn pod_schema_prunes_unknown_fields() {
        let schema = Schema::from_json(&generate::<Pod>()).unwrap();
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}},
                "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": "http"}}}],
            "affinity": {"nodeAffinity": {}}, "bogus": 1}});
        assert_eq!(schema.prune(&mut pod), ["spec.bogus"]);
        assert_eq!(schema.validate(&pod), []);
    }
}
