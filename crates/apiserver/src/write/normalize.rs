//! Normalizes objects to the JSON encoding of their Go type: adds zero values that are always encoded (`status: {}`,
//! `eventTime: null`) and removes zero values that are omitted (`finalizers: []`, `namespace: ""`). Clients can observe
//! the difference, because they compare objects, and because `managedFields` are computed relative to an empty object.

use apimachinery::object;
use serde_json::{Map, Value, json};

use crate::api_types::type_check::{self, TypeMismatch};
use crate::api_types::{self, Cardinality, TypeField};
use crate::resources::Resource;

/// Returns the type mismatches of an object. For custom resources, it checks only the metadata.
pub(crate) fn type_mismatches(resource: &Resource, object: &Value) -> Vec<TypeMismatch> {
    if resource.custom {
        return type_check::type_mismatches_at(
            "meta.v1.ObjectMeta",
            object.get("metadata").unwrap_or(&Value::Null),
            "metadata",
        );
    }
    type_check::type_mismatches(&api_types::type_name(&resource.api_version(), &resource.kind), object)
}

/// Replaces null values with the empty string in maps with string values.
pub(crate) fn replace_null_strings(resource: &Resource, mut object: Value) -> Value {
    let Value::Object(members) = &mut object else { return object };
    if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
        type_check::replace_null_strings("meta.v1.ObjectMeta", metadata);
    }
    if !resource.custom {
        type_check::replace_null_strings(&api_types::type_name(&resource.api_version(), &resource.kind), members);
    }
    object
}

/// Normalizes an object. For custom resources, it normalizes only the metadata.
pub(crate) fn normalize(resource: &Resource, object: &mut Value) {
    let Value::Object(members) = object else { return };
    match type_fields(resource) {
        Some(fields) => normalize_fields(fields, members),
        None => {
            if let (Some(fields), Some(Value::Object(metadata))) =
                (api_types::fields("meta.v1.ObjectMeta"), members.get_mut("metadata"))
            {
                normalize_fields(fields, metadata);
            }
        }
    }
}

/// Converts floats without a fraction in custom resources to integers.
pub(crate) fn normalize_integers(resource: &Resource, object: &mut Value) {
    if resource.custom {
        object::normalize_integers(object);
    }
}

/// Returns the normalized form of an empty object of a resource.
pub(crate) fn empty_object(resource: &Resource) -> Value {
    let mut members = Map::new();
    if let Some(fields) = type_fields(resource) {
        normalize_fields(fields, &mut members);
    }
    Value::Object(members)
}

fn type_fields(resource: &Resource) -> Option<&'static [TypeField]> {
    if resource.custom {
        None
    } else {
        api_types::fields(&api_types::type_name(&resource.api_version(), &resource.kind))
    }
}

fn normalize_fields(fields: &[TypeField], members: &mut Map<String, Value>) {
    for field in fields {
        if field.name == "." {
            if let Some(inner) = api_types::fields(field.kind) {
                normalize_fields(inner, members);
            }
        } else if let Some(value) = members.get_mut(field.name) {
            normalize_value(field, value);
            if is_omitted(field, value) {
                members.remove(field.name);
            }
        } else if field.is_always_encoded {
            members.insert(field.name.to_owned(), zero_value(field));
        }
    }
}

fn normalize_value(field: &TypeField, value: &mut Value) {
    let Some(inner) = api_types::fields(field.kind) else { return };
    match (field.cardinality, value) {
        (Cardinality::Single, Value::Object(members)) => normalize_fields(inner, members),
        (Cardinality::List, Value::Array(items)) => {
            items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| normalize_fields(inner, item));
        }
        (Cardinality::Map, Value::Object(entries)) => {
            entries.values_mut().filter_map(Value::as_object_mut).for_each(|entry| normalize_fields(inner, entry));
        }
        _ => {}
    }
}

/// Reports whether the JSON encoding omits the value.
fn is_omitted(field: &TypeField, value: &Value) -> bool {
    if field.is_always_encoded {
        return false;
    }
    match (field.cardinality, value) {
        (_, Value::Null) => true,
        (Cardinality::List, Value::Array(items)) => items.is_empty(),
        (Cardinality::Map, Value::Object(entries)) => entries.is_empty(),
        (Cardinality::Single, _) if field.is_pointer => false,
        (Cardinality::Single, Value::String(text)) => text.is_empty(),
        (Cardinality::Single, Value::Bool(value)) => !value,
        (Cardinality::Single, Value::Number(number)) => number.as_i64() == Some(0),
        _ => false,
    }
}

fn zero_value(field: &TypeField) -> Value {
    if field.is_pointer || field.cardinality != Cardinality::Single {
        return Value::Null;
    }
    match field.kind {
        "string" => json!(""),
        "int" | "int64" | "util.intstr.IntOrString" => json!(0),
        "bool" => json!(false),
        "resource.Quantity" => json!("0"),
        kind => match api_types::fields(kind) {
            Some(inner) => {
                let mut members = Map::new();
                normalize_fields(inner, &mut members);
                Value::Object(members)
            }
            // Timestamps and raw JSON are encoded as null.
            None => Value::Null,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Registry;

    #[test]
    fn adds_zero_values_that_are_always_encoded() {
        let registry = Registry::builtin();
        let deployment = registry.by_name("deployments.apps").unwrap();
        assert_eq!(
            empty_object(&deployment),
            json!({"metadata": {}, "status": {}, "spec": {"selector": null, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": null}}}})
        );
        let event = registry.by_name("events").unwrap();
        let mut object = json!({"metadata": {"name": "e", "labels": {}, "finalizers": []}, "count": 0});
        normalize(&event, &mut object);
        assert_eq!(object["metadata"], json!({"name": "e"}));
        assert_eq!(object["eventTime"], Value::Null);
        assert!(object.get("eventTime").is_some() && object.get("count").is_none(), "{object}");
        let normalized = object.clone();
        normalize(&event, &mut object);
        assert_eq!(object, normalized);
    }
}
