//! Gives an object the form that its Go type has in JSON: empty fields that are always written are there (`status: {}`,
//! `eventTime: null`), empty ones that never are (`finalizers: []`, `namespace: ""`) are not. Clients compare objects,
//! and `managedFields` are counted from what an empty object looks like.

use serde_json::{Map, Value, json};

use crate::resources::Resource;
use crate::types::fit::{self, Misfit};
use crate::types::{self, Field, Shape};

/// The values of an object that do not fit its type; of a custom resource, those of its metadata.
pub(crate) fn misfits(resource: &Resource, object: &Value) -> Vec<Misfit> {
    if resource.custom {
        return fit::check_part("meta.v1.ObjectMeta", object.get("metadata").unwrap_or(&Value::Null), "metadata");
    }
    fit::check(&types::name(&resource.api_version(), &resource.kind), object)
}

/// With empty texts for what is null in maps of texts.
pub(crate) fn without_nulls(resource: &Resource, mut object: Value) -> Value {
    let Value::Object(members) = &mut object else { return object };
    if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
        fit::fill_nulls("meta.v1.ObjectMeta", metadata);
    }
    if !resource.custom {
        fit::fill_nulls(&types::name(&resource.api_version(), &resource.kind), members);
    }
    object
}

/// Custom resources have a type for their metadata only.
pub(crate) fn form(resource: &Resource, object: &mut Value) {
    let Value::Object(members) = object else { return };
    match of(resource) {
        Some(fields) => normalise(fields, members),
        None => {
            if let (Some(fields), Some(Value::Object(metadata))) =
                (types::fields("meta.v1.ObjectMeta"), members.get_mut("metadata"))
            {
                normalise(fields, metadata);
            }
        }
    }
}

/// What an empty object of the resource looks like.
pub(crate) fn blank(resource: &Resource) -> Value {
    let mut members = Map::new();
    if let Some(fields) = of(resource) {
        normalise(fields, &mut members);
    }
    Value::Object(members)
}

fn of(resource: &Resource) -> Option<&'static [Field]> {
    if resource.custom { None } else { types::fields(&types::name(&resource.api_version(), &resource.kind)) }
}

fn normalise(fields: &[Field], members: &mut Map<String, Value>) {
    for field in fields {
        if field.name == "." {
            if let Some(inner) = types::fields(field.kind) {
                normalise(inner, members);
            }
        } else if let Some(value) = members.get_mut(field.name) {
            descend(field, value);
            if is_empty(field, value) {
                members.remove(field.name);
            }
        } else if field.is_always {
            members.insert(field.name.to_owned(), zero(field));
        }
    }
}

fn descend(field: &Field, value: &mut Value) {
    let Some(inner) = types::fields(field.kind) else { return };
    match (field.shape, value) {
        (Shape::One, Value::Object(members)) => normalise(inner, members),
        (Shape::List, Value::Array(items)) => {
            items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| normalise(inner, item));
        }
        (Shape::Map, Value::Object(entries)) => {
            entries.values_mut().filter_map(Value::as_object_mut).for_each(|entry| normalise(inner, entry));
        }
        _ => {}
    }
}

/// Whether JSON leaves the value out.
fn is_empty(field: &Field, value: &Value) -> bool {
    if field.is_always {
        return false;
    }
    match (field.shape, value) {
        (_, Value::Null) => true,
        (Shape::List, Value::Array(items)) => items.is_empty(),
        (Shape::Map, Value::Object(entries)) => entries.is_empty(),
        (Shape::One, _) if field.is_pointer => false,
        (Shape::One, Value::String(text)) => text.is_empty(),
        (Shape::One, Value::Bool(value)) => !value,
        (Shape::One, Value::Number(number)) => number.as_i64() == Some(0),
        _ => false,
    }
}

fn zero(field: &Field) -> Value {
    if field.is_pointer || field.shape != Shape::One {
        return Value::Null;
    }
    match field.kind {
        "string" => json!(""),
        "int" | "util.intstr.IntOrString" => json!(0),
        "bool" => json!(false),
        "resource.Quantity" => json!("0"),
        kind => match types::fields(kind) {
            Some(inner) => {
                let mut members = Map::new();
                normalise(inner, &mut members);
                Value::Object(members)
            }
            // Times and raw JSON.
            None => Value::Null,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Registry;

    #[test]
    fn an_object_has_what_its_type_always_writes() {
        let registry = Registry::builtin();
        let deployment = registry.by_name("deployments.apps").unwrap();
        assert_eq!(
            blank(&deployment),
            json!({"metadata": {}, "status": {}, "spec": {"selector": null, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": null}}}})
        );
        let event = registry.by_name("events").unwrap();
        let mut object = json!({"metadata": {"name": "e", "labels": {}, "finalizers": []}, "count": 0});
        form(&event, &mut object);
        assert_eq!(object["metadata"], json!({"name": "e"}));
        assert_eq!(object["eventTime"], Value::Null);
        assert!(object.get("eventTime").is_some() && object.get("count").is_none(), "{object}");
        let again = object.clone();
        form(&event, &mut object);
        assert_eq!(object, again);
    }
}
