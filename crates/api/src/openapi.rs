//! Schemas for fields whose Rust type says less than the CRD must: user templates, quantities, aliases.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// An object whose inside belongs to the user or to Kubernetes.
pub(crate) fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of such objects.
pub(crate) fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": open_object()})
}

/// A quantity, a count or a percentage: a number or a string.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// A number that people also write as text, with or without a fraction: `2.21`, `"2.21"`, `40`.
pub(crate) fn number_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
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

/// The fields of a Kubernetes PodSpec that no rule of ours reads, so that they are kept and misspellings are found.
pub(crate) fn pod_fields(_: &mut SchemaGenerator) -> Schema {
    let mut properties = Map::new();
    let groups: [(&[&str], Value); 6] = [
        (&POD_STRINGS, json!({"type": "string", "nullable": true})),
        (&POD_BOOLEANS, json!({"type": "boolean", "nullable": true})),
        (&POD_INTEGERS, json!({"type": "integer", "nullable": true})),
        (&POD_OBJECTS, {
            let mut schema = open_object();
            schema["nullable"] = Value::Bool(true);
            schema
        }),
        (&POD_LISTS, json!({"type": "array", "nullable": true, "items": open_object()})),
        (
            &["overhead"],
            json!({"type": "object", "nullable": true, "additionalProperties": {"x-kubernetes-int-or-string": true}}),
        ),
    ];
    for (names, schema) in groups {
        for name in names {
            properties.insert((*name).to_owned(), schema.clone());
        }
    }
    json_schema!({"type": "object", "properties": properties})
}

fn open_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

const POD_STRINGS: [&str; 12] = [
    "dnsPolicy",
    "hostname",
    "hostnameOverride",
    "nodeName",
    "preemptionPolicy",
    "priorityClassName",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "serviceAccount",
    "serviceAccountName",
    "subdomain",
];
const POD_BOOLEANS: [&str; 8] = [
    "automountServiceAccountToken",
    "enableServiceLinks",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
];
const POD_INTEGERS: [&str; 3] = ["activeDeadlineSeconds", "priority", "terminationGracePeriodSeconds"];
const POD_OBJECTS: [&str; 3] = ["dnsConfig", "os", "securityContext"];
const POD_LISTS: [&str; 9] = [
    "containers",
    "ephemeralContainers",
    "hostAliases",
    "imagePullSecrets",
    "initContainers",
    "readinessGates",
    "resourceClaims",
    "schedulingGates",
    "topologySpreadConstraints",
];
