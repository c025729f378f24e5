//! Fills in what the client left out: schema defaults of custom resources, and the defaults of the built-in kinds
//! (`k8s.io/kubernetes/pkg/apis/*/v1/defaults.go`).

use apimachinery::schema::Nulls;
use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::default_pod;
use crate::resources::Resource;
use crate::{crd, object};

/// Fills in everything but the status of a new object.
pub(crate) fn fill(resource: &Resource, object: &mut Value) {
    fill_written(resource, object, false);
}

/// The same of what is being written; null that was applied is a value, and may be wrong.
pub(super) fn fill_written(resource: &Resource, object: &mut Value, applied: bool) {
    if resource.custom {
        if let Some(schema) = resource.schema() {
            let metadata = object::members(object).remove("metadata");
            schema.default_with(object, if applied { Nulls::Kept } else { Nulls::Dropped });
            if let Some(metadata) = metadata {
                object::members(object).insert("metadata".to_owned(), metadata);
            }
        }
        return;
    }
    match resource.storage.as_str() {
        "pods" => {
            default_pod::specification(spec(object));
            default_pod::only_pods(spec(object));
            set(spec(object), "enableServiceLinks", json!(true));
        }
        "services" => service(spec(object)),
        "deployments.apps" => deployment(spec(object)),
        "replicasets.apps" => replica_set(spec(object)),
        "statefulsets.apps" => stateful_set(spec(object)),
        "jobs.batch" => job(spec(object)),
        "namespaces" => namespace(object),
        "secrets" => secret(object),
        "horizontalpodautoscalers.autoscaling" => autoscaler(spec(object)),
        crd::STORAGE => crd::default(object),
        "persistentvolumeclaims" => set(spec(object), "volumeMode", json!("Filesystem")),
        "persistentvolumes" => volume(spec(object)),
        "storageclasses.storage.k8s.io" => {
            set(object::members(object), "reclaimPolicy", json!("Delete"));
            set(object::members(object), "volumeBindingMode", json!("Immediate"));
        }
        _ => {}
    }
}

/// Clients have no say about the status of a new object, except about Nodes, which register themselves with it.
pub(super) fn no_status(resource: &Resource, object: &mut Value) {
    if resource.status && resource.storage != "nodes" {
        object::members(object).remove("status");
    }
}

/// What the server itself writes into a new object, once it has its uid.
pub(super) fn born(resource: &Resource, object: &mut Value) {
    match resource.storage.as_str() {
        "pods" => {
            default_pod::admitted(spec(object));
            let status = json!({"phase": "Pending", "qosClass": default_pod::quality(object)});
            object::members(object).insert("status".to_owned(), status);
        }
        "namespaces" => {
            namespace(object);
            status(object, json!({"phase": "Active"}));
        }
        "persistentvolumeclaims" => {
            status(object, json!({"phase": "Pending"}));
            object::set_metadata(object, "finalizers", Some(json!(["kubernetes.io/pvc-protection"])));
        }
        "persistentvolumes" => {
            let now = object::text(object, "/metadata/creationTimestamp").to_owned();
            status(object, json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
            object::set_metadata(object, "finalizers", Some(json!(["kubernetes.io/pv-protection"])));
        }
        "jobs.batch" => job_selector(object),
        _ => {}
    }
}

/// What the server itself writes into an object that changes: when a volume came into its phase.
pub(super) fn changed(resource: &Resource, current: &Value, object: &mut Value, now: jiff::Timestamp) {
    let same = |pointer: &str| current.pointer(pointer) == object.pointer(pointer);
    if resource.storage == "persistentvolumes" && !same("/status/phase") && same("/status/lastPhaseTransitionTime") {
        object["status"]["lastPhaseTransitionTime"] = json!(object::time(now));
    }
}

fn status(object: &mut Value, status: Value) {
    object::members(object).insert("status".to_owned(), status);
}

/// A Job selects its Pods by its own uid, unless it selects by hand.
fn job_selector(job: &mut Value) {
    let (uid, name) = (object::uid(job).to_owned(), object::name(job).to_owned());
    let spec = spec(job);
    set(spec, "manualSelector", json!(false));
    if spec["manualSelector"] == true {
        return;
    }
    let labels = child(child(child(spec, "template"), "metadata"), "labels");
    for prefix in ["", "batch.kubernetes.io/"] {
        labels.insert(format!("{prefix}controller-uid"), json!(uid));
        labels.insert(format!("{prefix}job-name"), json!(name));
    }
    let labels = Value::Object(labels.clone());
    set(spec, "selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    let own = object::members(object::metadata(job).entry("labels").or_insert_with(|| json!({})));
    for (label, value) in labels.as_object().into_iter().flatten() {
        set(own, label, value.clone());
    }
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
        let rolling = child(strategy, "rollingUpdate");
        set(rolling, "partition", json!(0));
        set(rolling, "maxUnavailable", json!(1));
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
    set(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
    set(spec, "manualSelector", json!(false));
    set(spec, "suspend", json!(false));
}

fn service(spec: &mut Map<String, Value>) {
    set(spec, "type", json!("ClusterIP"));
    set(spec, "sessionAffinity", json!("None"));
    if spec["sessionAffinity"] == "ClientIP" {
        set(child(child(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", json!(10800));
    }
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

fn autoscaler(spec: &mut Map<String, Value>) {
    set(spec, "minReplicas", json!(1));
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    set(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let up = child(behavior, "scaleUp");
    set(up, "selectPolicy", json!("Max"));
    set(up, "stabilizationWindowSeconds", json!(0));
    set(up, "policies", json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]));
    let down = child(behavior, "scaleDown");
    set(down, "selectPolicy", json!("Max"));
    set(down, "policies", json!([percent]));
}

fn volume(spec: &mut Map<String, Value>) {
    set(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
    set(spec, "volumeMode", json!("Filesystem"));
    if let Some(source) = spec.get_mut("hostPath") {
        set(object::members(source), "type", json!(""));
    }
}

/// `stringData` is written into `data` and never read back.
fn secret(object: &mut Value) {
    let members = object::members(object);
    set(members, "type", json!("Opaque"));
    let Some(texts) = members.remove("stringData") else { return };
    let data = child(members, "data");
    for (key, text) in texts.as_object().into_iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
        data.insert(key.clone(), json!(encoded));
    }
}

fn namespace(object: &mut Value) {
    let name = object::name(object).to_owned();
    // Without it a namespace that is going may go. A new one gets it at its birth, from nobody.
    if !object::is_deleting(object) && !object::uid(object).is_empty() {
        set(spec(object), "finalizers", json!(["kubernetes"]));
    }
    let labels = object::members(object::metadata(object).entry("labels").or_insert_with(|| json!({})));
    labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
}
