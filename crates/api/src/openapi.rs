//! Schemas for fields whose Rust type says less than the CRD must: user templates, quantities, aliases.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

mod form;
mod pod;

pub(crate) use form::{CAPABILITY, DURATION, Form, MEMORY, SIZE, VERSION};
pub(crate) use pod::{container, containers, pod_fields, pod_template, resources, variables};

/// An object whose inside belongs to the user or to Kubernetes.
pub(crate) fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of such objects.
pub(crate) fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": open_object()})
}

/// A count or a percentage: a number or a string.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// A whole number of at least one, as a number or as text.
pub(crate) fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "pattern": form::COUNT.pattern, "minimum": 1})
}

/// Bytes and the like: a quantity that is not negative.
pub(crate) fn amount(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "pattern": form::AMOUNT.pattern, "minimum": 0})
}

/// A number that people also write as text, with or without a fraction: `2.21`, `"2.21"`, `40`. Never negative.
pub(crate) fn number_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true, "pattern": form::NUMBER.pattern, "minimum": 0})
}

/// A version, refused with a sentence where it is none.
pub(crate) fn version(_: &mut SchemaGenerator) -> Schema {
    VERSION.schema(64)
}

/// A compute capability, refused with a sentence where it is none.
pub(crate) fn capability(_: &mut SchemaGenerator) -> Schema {
    CAPABILITY.schema(32)
}

/// Protocols that clients and engines may speak.
pub(crate) fn protocol(_: &mut SchemaGenerator) -> Schema {
    protocols()
}

/// A list of them.
pub(crate) fn protocol_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 16, "items": protocols()})
}

fn protocols() -> Schema {
    json_schema!({"type": "string", "enum": ["openAI", "cohere", "openInference-v1", "openInference-v2"]})
}

/// `preferenceOrder[].conditions`: maps from what is compared to a comparison.
pub(crate) fn preference_conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {
            "type": "object",
            "maxProperties": 8,
            "additionalProperties": form::COMPARISON.schema(32),
            "x-kubernetes-validations": [{
                "rule": "self.all(name, name in ['modelSize', 'requestSize'])",
                "message": "unknown condition; conditions are modelSize and requestSize",
            }],
        },
    })
}

/// `status.conditions`: a list that several managers share, keyed by type.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let item = generator.subschema_for::<crate::condition::Condition>();
    json_schema!({
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// The deployed upstream names of a field, accepted beside ours with the same schema.
pub(crate) fn accept(names: &'static [(&'static str, &'static [&'static str])]) -> impl FnMut(&mut Schema) {
    move |schema| {
        let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
            return;
        };
        for (name, aliases) in names {
            let Some(same) = properties.get(*name).cloned() else { continue };
            for alias in *aliases {
                properties.insert((*alias).to_owned(), same.clone());
            }
        }
    }
}

/// A rule over the object itself: CEL, and the sentence for who breaks it.
pub(crate) fn rule(rule: &'static str, message: &'static str) -> impl FnMut(&mut Schema) {
    move |schema| {
        let stated = json!({"rule": rule, "message": message});
        match schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
            Some(rules) => rules.push(stated),
            None => {
                schema.insert("x-kubernetes-validations".to_owned(), json!([stated]));
            }
        }
    }
}

fn open_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
