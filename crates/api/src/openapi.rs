//! Schemas of fields that are not derived from the Rust type: user templates, quantities and aliases.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

mod pod;
mod text_format;

pub(crate) use pod::{container, containers, env_vars, pod_fields, pod_template, resources};
pub(crate) use text_format::{COMPUTE_CAPABILITY, DURATION, MEMORY, MODEL_SIZE, TextFormat, VERSION};

/// An object with arbitrary fields, defined by the user or by Kubernetes.
pub(crate) fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of objects with arbitrary fields.
pub(crate) fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": open_object()})
}

/// A count or a percentage, as an integer or a string.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// An integer of at least one, as a number or a string.
pub(crate) fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "pattern": text_format::COUNT.pattern, "minimum": 1})
}

/// A non-negative quantity.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "pattern": text_format::QUANTITY.pattern, "minimum": 0})
}

/// A non-negative number, as a number or a string: `2.21`, `"2.21"`, `40`.
pub(crate) fn number_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true, "pattern": text_format::NUMBER.pattern, "minimum": 0})
}

/// A version, validated by a CEL rule with a message.
pub(crate) fn version(_: &mut SchemaGenerator) -> Schema {
    VERSION.schema(64)
}

/// A compute capability, validated by a CEL rule with a message.
pub(crate) fn compute_capability(_: &mut SchemaGenerator) -> Schema {
    COMPUTE_CAPABILITY.schema(32)
}

/// A protocol of clients and engines.
pub(crate) fn protocol(_: &mut SchemaGenerator) -> Schema {
    protocol_schema()
}

/// A list of protocols.
pub(crate) fn protocol_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 16, "items": protocol_schema()})
}

fn protocol_schema() -> Schema {
    json_schema!({"type": "string", "enum": ["openAI", "cohere", "openInference-v1", "openInference-v2"]})
}

/// `preferenceOrder[].conditions`: maps from the compared attribute to a comparison.
pub(crate) fn preference_conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {
            "type": "object",
            "maxProperties": 8,
            "additionalProperties": text_format::COMPARISON.schema(32),
            "x-kubernetes-validations": [{
                "rule": "self.all(name, name in ['modelSize', 'requestSize'])",
                "message": "unknown condition; supported conditions are modelSize and requestSize",
            }],
        },
    })
}

/// `status.conditions`: a list keyed by type, which several field managers share.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let item = generator.subschema_for::<crate::condition::Condition>();
    json_schema!({
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// Adds aliases of fields, used by upstream OME, with the schema of the aliased field.
pub(crate) fn accept_aliases(names: &'static [(&'static str, &'static [&'static str])]) -> impl FnMut(&mut Schema) {
    move |schema| {
        let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
            return;
        };
        for (name, aliases) in names {
            let Some(field) = properties.get(*name).cloned() else { continue };
            for alias in *aliases {
                properties.insert((*alias).to_owned(), field.clone());
            }
        }
    }
}

/// Adds a CEL rule to the object, with the message of its violation.
pub(crate) fn validation_rule(rule: &'static str, message: &'static str) -> impl FnMut(&mut Schema) {
    move |schema| {
        let validation = json!({"rule": rule, "message": message});
        match schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
            Some(rules) => rules.push(validation),
            None => {
                schema.insert("x-kubernetes-validations".to_owned(), json!([validation]));
            }
        }
    }
}

fn open_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
