//! Schemas of Pods and containers. Fields that are not specified here are preserved.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{open_object, text_format};

/// A Kubernetes Container: specified fields are typed, newer fields are preserved.
pub(crate) fn container(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(container_schema()).unwrap_or_default()
}

/// A list of containers.
pub(crate) fn containers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": container_schema()})
}

/// Kubernetes EnvVars.
pub(crate) fn env_vars(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": env_var_schema()})
}

/// Kubernetes ResourceRequirements.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(resources_schema()).unwrap_or_default()
}

/// A Kubernetes PodTemplateSpec.
pub(crate) fn pod_template(_: &mut SchemaGenerator) -> Schema {
    let containers =
        |description: &str| json!({"type": "array", "description": description, "items": container_schema()});
    let mut spec = open_object();
    spec["description"] = json!("Kubernetes PodSpec.");
    spec["properties"] = json!({
        "containers": containers("Containers of the Pod; the first is the engine."),
        "initContainers": containers("Containers that run to completion before the others start."),
    });
    let mut template = open_object();
    template["properties"] = json!({"spec": spec});
    Schema::try_from(template).unwrap_or_default()
}

/// The fields of a Kubernetes PodSpec that ostler passes through; declaring them makes misspelled fields detectable.
pub(crate) fn pod_fields(_: &mut SchemaGenerator) -> Schema {
    let mut object = open_object();
    object["nullable"] = Value::Bool(true);
    let groups: [(&[&str], Value); 7] = [
        (&STRING_FIELDS, json!({"type": "string", "nullable": true})),
        (&BOOLEAN_FIELDS, json!({"type": "boolean", "nullable": true})),
        (&INTEGER_FIELDS, json!({"type": "integer", "nullable": true})),
        (&OBJECT_FIELDS, object),
        (&LIST_FIELDS, json!({"type": "array", "nullable": true, "items": open_object()})),
        (&CONTAINER_FIELDS, json!({"type": "array", "nullable": true, "items": container_schema()})),
        (&["overhead"], json!({"type": "object", "nullable": true, "additionalProperties": quantity_schema()})),
    ];
    let mut properties = Map::new();
    for (names, mut schema) in groups {
        for name in names {
            schema["description"] = json!(format!("`{name}` of the Kubernetes PodSpec."));
            properties.insert((*name).to_owned(), schema.clone());
        }
    }
    json_schema!({"type": "object", "properties": properties})
}

fn container_schema() -> Value {
    let strings = |description: &str| json!({"type": "array", "description": description, "items": {"type": "string"}});
    let mut container = open_object();
    container["properties"] = json!({
        "name": {"type": "string", "description": "Name of the container."},
        "image": {"type": "string", "description": "Image of the container."},
        "command": strings("Entry point; the entry point of the image if unset."),
        "args": strings("Arguments of the entry point."),
        "env": {"type": "array", "description": "Environment variables, in order.", "items": env_var_schema()},
        "resources": with_description(resources_schema(), "Resource requests and limits of the container."),
    });
    container
}

fn env_var_schema() -> Value {
    let mut env_var = open_object();
    env_var["required"] = json!(["name"]);
    env_var["properties"] = json!({
        "name": {"type": "string", "description": "Name of the variable."},
        "value": {"type": "string", "description": "Value of the variable; `$(VAR)` references are expanded."},
    });
    env_var
}

fn resources_schema() -> Value {
    let quantities = |description: &str| json!({"type": "object", "description": description, "additionalProperties": quantity_schema()});
    let mut resources = open_object();
    resources["properties"] = json!({
        "requests": quantities("Minimum resources that the scheduler reserves, by resource name."),
        "limits": quantities("Maximum resources that the container may use, by resource name."),
    });
    resources
}

fn quantity_schema() -> Value {
    json!({"x-kubernetes-int-or-string": true, "pattern": text_format::QUANTITY.pattern, "minimum": 0})
}

fn with_description(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

const STRING_FIELDS: [&str; 12] = [
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
const BOOLEAN_FIELDS: [&str; 8] = [
    "automountServiceAccountToken",
    "enableServiceLinks",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
];
const INTEGER_FIELDS: [&str; 3] = ["activeDeadlineSeconds", "priority", "terminationGracePeriodSeconds"];
const OBJECT_FIELDS: [&str; 3] = ["dnsConfig", "os", "securityContext"];
const CONTAINER_FIELDS: [&str; 2] = ["containers", "initContainers"];
const LIST_FIELDS: [&str; 7] = [
    "ephemeralContainers",
    "hostAliases",
    "imagePullSecrets",
    "readinessGates",
    "resourceClaims",
    "schedulingGates",
    "topologySpreadConstraints",
];
