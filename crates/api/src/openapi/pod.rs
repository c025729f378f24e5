//! The parts of Pods and containers that a schema says something about; everything else of them is kept as it is.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{form, open_object};

/// A Kubernetes Container: what specifications name is typed, fields newer than we are survive.
pub(crate) fn container(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(container_schema()).unwrap_or_default()
}

/// A list of containers.
pub(crate) fn containers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": container_schema()})
}

/// Kubernetes EnvVars.
pub(crate) fn variables(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": environment()})
}

/// Kubernetes ResourceRequirements.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(resources_schema()).unwrap_or_default()
}

/// A Kubernetes PodTemplateSpec.
pub(crate) fn pod_template(_: &mut SchemaGenerator) -> Schema {
    let list = |description: &str| json!({"type": "array", "description": description, "items": container_schema()});
    let mut spec = open_object();
    spec["description"] = json!("Kubernetes PodSpec.");
    spec["properties"] = json!({
        "containers": list("Containers of the Pod; the first is the engine."),
        "initContainers": list("Containers that end before the others start."),
    });
    let mut template = open_object();
    template["properties"] = json!({"spec": spec});
    Schema::try_from(template).unwrap_or_default()
}

/// The fields of a Kubernetes PodSpec that no rule of ours reads, so that they are kept and misspellings are found.
pub(crate) fn pod_fields(_: &mut SchemaGenerator) -> Schema {
    let mut open = open_object();
    open["nullable"] = Value::Bool(true);
    let groups: [(&[&str], Value); 7] = [
        (&STRINGS, json!({"type": "string", "nullable": true})),
        (&BOOLEANS, json!({"type": "boolean", "nullable": true})),
        (&INTEGERS, json!({"type": "integer", "nullable": true})),
        (&OBJECTS, open),
        (&LISTS, json!({"type": "array", "nullable": true, "items": open_object()})),
        (&CONTAINERS, json!({"type": "array", "nullable": true, "items": container_schema()})),
        (&["overhead"], json!({"type": "object", "nullable": true, "additionalProperties": amount()})),
    ];
    let mut properties = Map::new();
    for (names, mut schema) in groups {
        for name in names {
            schema["description"] = json!(format!("`{name}` of the PodSpec, as Kubernetes has it."));
            properties.insert((*name).to_owned(), schema.clone());
        }
    }
    json_schema!({"type": "object", "properties": properties})
}

fn container_schema() -> Value {
    let words = |description: &str| json!({"type": "array", "description": description, "items": {"type": "string"}});
    let mut container = open_object();
    container["properties"] = json!({
        "name": {"type": "string", "description": "Name of the container."},
        "image": {"type": "string", "description": "Image of the container."},
        "command": words("Entry point; the image's own if unset."),
        "args": words("Arguments of the entry point."),
        "env": {"type": "array", "description": "Environment variables, in order.", "items": environment()},
        "resources": described(resources_schema(), "What the container requests and may use."),
    });
    container
}

fn environment() -> Value {
    let mut variable = open_object();
    variable["required"] = json!(["name"]);
    variable["properties"] = json!({
        "name": {"type": "string", "description": "Name of the variable."},
        "value": {"type": "string", "description": "Its value; `$(OTHER)` is expanded."},
    });
    variable
}

fn resources_schema() -> Value {
    let amounts =
        |description: &str| json!({"type": "object", "description": description, "additionalProperties": amount()});
    let mut resources = open_object();
    resources["properties"] = json!({
        "requests": amounts("What the scheduler sets aside, by resource name."),
        "limits": amounts("What the container may use, by resource name."),
    });
    resources
}

fn amount() -> Value {
    json!({"x-kubernetes-int-or-string": true, "pattern": form::AMOUNT.pattern, "minimum": 0})
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

const STRINGS: [&str; 12] = [
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
const BOOLEANS: [&str; 8] = [
    "automountServiceAccountToken",
    "enableServiceLinks",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
];
const INTEGERS: [&str; 3] = ["activeDeadlineSeconds", "priority", "terminationGracePeriodSeconds"];
const OBJECTS: [&str; 3] = ["dnsConfig", "os", "securityContext"];
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];
const LISTS: [&str; 7] = [
    "ephemeralContainers",
    "hostAliases",
    "imagePullSecrets",
    "readinessGates",
    "resourceClaims",
    "schedulingGates",
    "topologySpreadConstraints",
];
