//! Fills in what the client left out: schema defaults of custom resources, and the defaults of the built-in kinds
//! (`k8s.io/kubernetes/pkg/apis/*/v1/defaults.go`).

use serde_json::{Map, Value, json};

use super::default_pod;
use crate::resources::Resource;
use crate::{crd, object};

/// Fills in everything but the status of a new object.
pub(super) fn fill(resource: &Resource, object: &mut Value) {
    if resource.custom {
        if let Some(schema) = resource.schema() {
            let metadata = object::members(object).remove("metadata");
            schema.default(object);
            if let Some(metadata) = metadata {
                object::members(object).insert("metadata".to_owned(), metadata);
            }
        }
        return;
    }
    match resource.storage.as_str() {
        "pods" => default_pod::specification(spec(object)),
        "services" => service(spec(object)),
        "deployments.apps" => deployment(spec(object)),
        "replicasets.apps" => replica_set(spec(object)),
        "statefulsets.apps" => stateful_set(spec(object)),
        "jobs.batch" => job(spec(object)),
        "namespaces" => namespace(object),
        "secrets" => set(object::members(object), "type", json!("Opaque")),
        crd::STORAGE => crd::default(object),
        "persistentvolumeclaims" => set(spec(object), "volumeMode", json!("Filesystem")),
        _ => {}
    }
}

/// The status an object is born with; clients have no say, except about Nodes, which register themselves with it.
pub(super) fn initial_status(resource: &Resource, object: &mut Value) {
    if !resource.status || resource.storage == "nodes" {
        return;
    }
    let status = match resource.storage.as_str() {
        "pods" => Some(json!({"phase": "Pending", "qosClass": default_pod::quality(object)})),
        "namespaces" => Some(json!({"phase": "Active"})),
        "persistentvolumeclaims" | "persistentvolumes" => Some(json!({"phase": "Pending"})),
        "services" => Some(json!({"loadBalancer": {}})),
        _ if resource.custom => None,
        _ => Some(json!({})),
    };
    let members = object::members(object);
    match status {
        Some(status) => members.insert("status".to_owned(), status),
        None => members.remove("status"),
    };
}

/// Sets a field that is absent.
pub(super) fn set(members: &mut Map<String, Value>, field: &str, value: Value) {
    members.entry(field).or_insert(value);
}

/// The object under `field`, created when absent.
pub(super) fn child<'a>(members: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    object::members(members.entry(field).or_insert_with(|| json!({})))
}

fn spec(object: &mut Value) -> &mut Map<String, Value> {
    child(object::members(object), "spec")
}

fn template(spec: &mut Map<String, Value>) {
    let template = child(spec, "template");
    child(template, "metadata");
    default_pod::specification(child(template, "spec"));
}

fn deployment(spec: &mut Map<String, Value>) {
    template(spec);
    set(spec, "replicas", json!(1));
    set(spec, "revisionHistoryLimit", json!(10));
    set(spec, "progressDeadlineSeconds", json!(600));
    let strategy = child(spec, "strategy");
    set(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        set(rolling, "maxUnavailable", json!("25%"));
        set(rolling, "maxSurge", json!("25%"));
    }
}

fn replica_set(spec: &mut Map<String, Value>) {
    set(spec, "replicas", json!(1));
    template(spec);
}

fn stateful_set(spec: &mut Map<String, Value>) {
    template(spec);
    set(spec, "replicas", json!(1));
    set(spec, "revisionHistoryLimit", json!(10));
    set(spec, "podManagementPolicy", json!("OrderedReady"));
    let strategy = child(spec, "updateStrategy");
    set(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        set(child(strategy, "rollingUpdate"), "partition", json!(0));
    }
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    set(retention, "whenDeleted", json!("Retain"));
    set(retention, "whenScaled", json!("Retain"));
}

fn job(spec: &mut Map<String, Value>) {
    template(spec);
    set(spec, "completions", json!(1));
    set(spec, "parallelism", json!(1));
    set(spec, "backoffLimit", json!(6));
    set(spec, "completionMode", json!("NonIndexed"));
    set(spec, "suspend", json!(false));
}

/// No cluster address is handed out: nothing on a single machine would answer there.
fn service(spec: &mut Map<String, Value>) {
    set(spec, "type", json!("ClusterIP"));
    set(spec, "sessionAffinity", json!("None"));
    if spec["type"] != "ExternalName" {
        set(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports {
        let port = object::members(port);
        set(port, "protocol", json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            set(port, "targetPort", number);
        }
    }
}

fn namespace(object: &mut Value) {
    let name = object::name(object).to_owned();
    // Without it a namespace that is going may go.
    if !object::is_deleting(object) {
        set(spec(object), "finalizers", json!(["kubernetes"]));
    }
    let labels = object::members(object::metadata(object).entry("labels").or_insert_with(|| json!({})));
    labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
}
