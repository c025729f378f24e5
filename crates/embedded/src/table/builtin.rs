//! The columns of the built-in kinds (`k8s.io/kubernetes/pkg/printers/internalversion`).

use apimachinery::selector::LabelSelector;
use serde_json::{Value, json};

use super::pod::{self, Summary};
use super::{Column, since, storage};
use crate::workloads::volume_claim;
use crate::{autoscaling, object};

/// What is said of a whole row, as `conditions` of it: whether a Pod is over.
pub(super) fn conditions(storage: &str, object: &Value) -> Option<Value> {
    let (reason, message) = match (storage, object::text(object, "/status/phase")) {
        ("pods", "Succeeded") => ("Succeeded", "The pod has completed successfully."),
        ("pods", "Failed") => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// Whether the name is told last and only with `-o wide`: those of events say nothing.
pub(super) fn names_last(storage: &str) -> bool {
    storage == "events"
}

/// All columns but a name that comes first.
pub(super) fn columns(storage: &str) -> Vec<Column> {
    let age = || Column::made("Age", "string", 0, age);
    let column = Column::made;
    match storage {
        "pods" => vec![
            column("Ready", "string", 0, |pod, _| json!(Summary::of(pod).readiness())),
            column("Status", "string", 0, |pod, _| json!(Summary::of(pod).reason)),
            column("Restarts", "string", 0, |pod, now| json!(Summary::of(pod).restarts(now))),
            age(),
            column("IP", "string", 1, |pod, _| or_none(object::text(pod, "/status/podIP"))),
            column("Node", "string", 1, |pod, _| or_none(object::text(pod, "/spec/nodeName"))),
            column("Nominated Node", "string", 1, |pod, _| or_none(object::text(pod, "/status/nominatedNodeName"))),
            column("Readiness Gates", "string", 1, |pod, _| or_none(&pod::readiness_gates(pod))),
        ],
        volume_claim::CLAIMS => vec![
            column("Status", "string", 0, |claim, _| json!(storage::phase(claim))),
            column("Volume", "string", 0, |claim, _| json!(object::text(claim, "/spec/volumeName"))),
            column("Capacity", "string", 0, |claim, _| json!(storage::given(claim, "/status/capacity/storage"))),
            column("Access Modes", "string", 0, |claim, _| json!(storage::given_modes(claim))),
            column("StorageClass", "string", 0, |claim, _| json!(storage::class(claim))),
            column("VolumeAttributesClass", "string", 0, |claim, _| {
                stated_or(claim, "/spec/volumeAttributesClassName", "<unset>")
            }),
            age(),
            column("VolumeMode", "string", 1, |claim, _| stated_or(claim, "/spec/volumeMode", "<unset>")),
        ],
        volume_claim::VOLUMES => vec![
            column("Capacity", "string", 0, |volume, _| json!(object::text(volume, "/spec/capacity/storage"))),
            column("Access Modes", "string", 0, |volume, _| json!(storage::modes(volume, "/spec/accessModes"))),
            column("Reclaim Policy", "string", 0, |volume, _| {
                json!(object::text(volume, "/spec/persistentVolumeReclaimPolicy"))
            }),
            column("Status", "string", 0, |volume, _| json!(storage::phase(volume))),
            column("Claim", "string", 0, |volume, _| json!(storage::claim(volume))),
            column("StorageClass", "string", 0, |volume, _| json!(storage::class(volume))),
            column("VolumeAttributesClass", "string", 0, |volume, _| {
                stated_or(volume, "/spec/volumeAttributesClassName", "<unset>")
            }),
            column("Reason", "string", 0, |volume, _| json!(object::text(volume, "/status/reason"))),
            age(),
            column("VolumeMode", "string", 1, |volume, _| stated_or(volume, "/spec/volumeMode", "<unset>")),
        ],
        volume_claim::CLASSES => vec![
            column("Provisioner", "string", 0, |class, _| json!(object::text(class, "/provisioner"))),
            column("ReclaimPolicy", "string", 0, |class, _| stated_or(class, "/reclaimPolicy", "Delete")),
            column("VolumeBindingMode", "string", 0, |class, _| stated_or(class, "/volumeBindingMode", "Immediate")),
            column("AllowVolumeExpansion", "string", 0, |class, _| json!(class["allowVolumeExpansion"] == true)),
            age(),
        ],
        "deployments.apps" => vec![
            column("Ready", "string", 0, |object, _| {
                json!(format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")))
            }),
            column("Up-to-date", "string", 0, |object, _| json!(number(object, "/status/updatedReplicas"))),
            column("Available", "string", 0, |object, _| json!(number(object, "/status/availableReplicas"))),
            age(),
            column("Containers", "string", 1, |object, _| json!(containers(object, "name"))),
            column("Images", "string", 1, |object, _| json!(containers(object, "image"))),
            column("Selector", "string", 1, |object, _| json!(selector(object))),
        ],
        "replicasets.apps" => vec![
            column("Desired", "integer", 0, |object, _| json!(number(object, "/spec/replicas"))),
            column("Current", "integer", 0, |object, _| json!(number(object, "/status/replicas"))),
            column("Ready", "integer", 0, |object, _| json!(number(object, "/status/readyReplicas"))),
            age(),
            column("Containers", "string", 1, |object, _| json!(containers(object, "name"))),
            column("Images", "string", 1, |object, _| json!(containers(object, "image"))),
            column("Selector", "string", 1, |object, _| json!(selector(object))),
        ],
        "statefulsets.apps" => vec![
            column("Ready", "string", 0, |object, _| {
                json!(format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")))
            }),
            age(),
            column("Containers", "string", 1, |object, _| json!(containers(object, "name"))),
            column("Images", "string", 1, |object, _| json!(containers(object, "image"))),
        ],
        "jobs.batch" => vec![
            column("Status", "string", 0, |job, _| json!(job_status(job))),
            column("Completions", "string", 0, |job, _| json!(job_completions(job))),
            column("Duration", "string", 0, |job, now| json!(job_duration(job, now))),
            age(),
            column("Containers", "string", 1, |job, _| json!(containers(job, "name"))),
            column("Images", "string", 1, |job, _| json!(containers(job, "image"))),
            column("Selector", "string", 1, |job, _| json!(selector(job))),
        ],
        "secrets" => vec![
            column("Type", "string", 0, |secret, _| json!(object::text(secret, "/type"))),
            column("Data", "string", 0, |secret, _| json!(entries(secret, "data"))),
            age(),
        ],
        "nodes" => vec![
            column("Status", "string", 0, |node, _| json!(node_status(node))),
            column("Roles", "string", 0, |node, _| or_none(&node_roles(node))),
            age(),
            column("Version", "string", 0, |node, _| json!(object::text(node, "/status/nodeInfo/kubeletVersion"))),
            column("Internal-IP", "string", 1, |node, _| or_none(address(node, "InternalIP"))),
            column("External-IP", "string", 1, |node, _| or_none(address(node, "ExternalIP"))),
            column("OS-Image", "string", 1, |node, _| or_unknown(object::text(node, "/status/nodeInfo/osImage"))),
            column("Kernel-Version", "string", 1, |node, _| {
                or_unknown(object::text(node, "/status/nodeInfo/kernelVersion"))
            }),
            column("Container-Runtime", "string", 1, |node, _| {
                or_unknown(object::text(node, "/status/nodeInfo/containerRuntimeVersion"))
            }),
        ],
        "services" => vec![
            column("Type", "string", 0, |service, _| json!(object::text(service, "/spec/type"))),
            column("Cluster-IP", "string", 0, |service, _| or_none(object::text(service, "/spec/clusterIP"))),
            column("External-IP", "string", 0, |_, _| or_none("")),
            column("Port(s)", "string", 0, |service, _| or_none(&service_ports(service))),
            age(),
            column("Selector", "string", 1, |service, _| or_none(&pairs(service.pointer("/spec/selector")))),
        ],
        "events" => vec![
            column("Last Seen", "string", 0, |event, now| json!(last_seen(event, now))),
            column("Type", "string", 0, |event, _| json!(object::text(event, "/type"))),
            column("Reason", "string", 0, |event, _| json!(object::text(event, "/reason"))),
            column("Object", "string", 0, |event, _| json!(event_object(event))),
            column("Subobject", "string", 1, |event, _| {
                json!(first(event, &["/involvedObject/fieldPath", "/regarding/fieldPath"]))
            }),
            column("Source", "string", 1, |event, _| json!(source(event))),
            column("Message", "string", 0, |event, _| json!(first(event, &["/message", "/note"]).trim())),
            column("First Seen", "string", 1, |event, now| json!(first_seen(event, now))),
            column("Count", "string", 1, |event, _| json!(times(event))),
            Column::name(1),
        ],
        "namespaces" => {
            vec![column("Status", "string", 0, |object, _| json!(object::text(object, "/status/phase"))), age()]
        }
        "configmaps" => {
            vec![column("Data", "string", 0, |map, _| json!(entries(map, "data") + entries(map, "binaryData"))), age()]
        }
        "customresourcedefinitions.apiextensions.k8s.io" => vec![column("Created At", "date", 0, |object, _| {
            json!(object::text(object, "/metadata/creationTimestamp"))
        })],
        "poddisruptionbudgets.policy" => vec![
            column("Min Available", "string", 0, |budget, _| stated(budget, "/spec/minAvailable")),
            column("Max Unavailable", "string", 0, |budget, _| stated(budget, "/spec/maxUnavailable")),
            column("Allowed Disruptions", "integer", 0, |budget, _| {
                json!(number(budget, "/status/disruptionsAllowed"))
            }),
            age(),
        ],
        "priorityclasses.scheduling.k8s.io" => vec![
            column("Value", "integer", 0, |class, _| json!(number(class, "/value"))),
            column("Global-Default", "boolean", 0, |class, _| json!(class["globalDefault"] == true)),
            age(),
            column("PreemptionPolicy", "string", 0, |class, _| json!(object::text(class, "/preemptionPolicy"))),
        ],
        autoscaling::STORAGE => vec![
            column("Reference", "string", 0, |scaler, _| {
                let text = |field: &str| object::text(scaler, &format!("/spec/scaleTargetRef/{field}")).to_owned();
                json!(format!("{}/{}", text("kind"), text("name")))
            }),
            column("Targets", "string", 0, |scaler, _| json!(autoscaling::targets(scaler))),
            column("MinPods", "string", 0, |scaler, _| stated_or(scaler, "/spec/minReplicas", "<unset>")),
            column("MaxPods", "string", 0, |scaler, _| json!(number(scaler, "/spec/maxReplicas"))),
            column("Replicas", "string", 0, |scaler, _| json!(number(scaler, "/status/currentReplicas"))),
            age(),
        ],
        "leases.coordination.k8s.io" => {
            vec![column("Holder", "string", 0, |object, _| json!(object::text(object, "/spec/holderIdentity"))), age()]
        }
        _ => vec![age()],
    }
}

fn age(object: &Value, now: jiff::Timestamp) -> Value {
    json!(since(object::text(object, "/metadata/creationTimestamp"), now))
}

/// A count or a percentage.
fn stated(object: &Value, pointer: &str) -> Value {
    stated_or(object, pointer, "N/A")
}

fn stated_or(object: &Value, pointer: &str, otherwise: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::String(text)) => json!(text),
        Some(number) if number.is_number() => json!(number.to_string()),
        _ => json!(otherwise),
    }
}

fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

fn or_unknown(text: &str) -> Value {
    json!(if text.is_empty() { "<unknown>" } else { text })
}

pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

pub(super) fn first<'a>(object: &'a Value, pointers: &[&str]) -> &'a str {
    pointers.iter().map(|pointer| object::text(object, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
}

pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn entries(object: &Value, field: &str) -> usize {
    object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

fn job_status(job: &Value) -> &'static str {
    let is = |kind: &str| {
        items(job, "/status/conditions").any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let states = [("Complete", "Complete"), ("Failed", "Failed")];
    let over = states.into_iter().find(|(kind, _)| is(kind)).map(|(_, state)| state);
    let going = if object::is_deleting(job) { Some("Terminating") } else { None };
    let suspended = is("Suspended").then_some("Suspended");
    let ending =
        is("FailureTarget").then_some("FailureTarget").or(is("SuccessCriteriaMet").then_some("SuccessCriteriaMet"));
    over.or(going).or(suspended).or(ending).unwrap_or("Running")
}

fn job_completions(job: &Value) -> String {
    let succeeded = number(job, "/status/succeeded");
    match job.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if number(job, "/spec/parallelism") > 1 => {
            format!("{succeeded}/1 of {}", number(job, "/spec/parallelism"))
        }
        None => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: jiff::Timestamp) -> String {
    let start = object::text(job, "/status/startTime");
    if start.is_empty() {
        return String::new();
    }
    since(start, object::text(job, "/status/completionTime").parse().unwrap_or(now))
}

fn node_status(node: &Value) -> String {
    let ready = items(node, "/status/conditions").find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|ready| object::text(ready, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let roles: Vec<&str> = labels.filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/")).collect();
    roles.join(",")
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    items(node, "/status/addresses")
        .find(|address| address["type"] == kind)
        .map(|address| object::text(address, "/address"))
        .unwrap_or_default()
}

fn service_ports(service: &Value) -> String {
    let ports: Vec<String> = items(service, "/spec/ports")
        .map(|port| format!("{}/{}", number(port, "/port"), object::text(port, "/protocol")))
        .collect();
    ports.join(",")
}

fn containers(workload: &Value, field: &str) -> String {
    let names: Vec<&str> = items(workload, "/spec/template/spec/containers")
        .filter_map(|container| container.get(field)?.as_str())
        .collect();
    names.join(",")
}

fn selector(workload: &Value) -> String {
    workload
        .pointer("/spec/selector")
        .and_then(|selector| LabelSelector::from_json(selector).ok())
        .map(|selector| selector.to_string())
        .unwrap_or_default()
}

fn pairs(labels: Option<&Value>) -> String {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.join(",")
}

fn last_seen(event: &Value, now: jiff::Timestamp) -> String {
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"];
    since(first(event, &times), now)
}

fn first_seen(event: &Value, now: jiff::Timestamp) -> String {
    since(first(event, &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]), now)
}

/// Who told it, and on which machine.
fn source(event: &Value) -> String {
    let component = first(event, &["/source/component", "/reportingComponent", "/reportingController"]);
    let host = first(event, &["/source/host", "/reportingInstance"]);
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

/// How often it was seen; one that has no count was seen once.
fn times(event: &Value) -> i64 {
    number(event, "/series/count").max(number(event, "/count")).max(number(event, "/deprecatedCount")).max(1)
}

fn event_object(event: &Value) -> String {
    let kind = first(event, &["/involvedObject/kind", "/regarding/kind"]).to_lowercase();
    format!("{kind}/{}", first(event, &["/involvedObject/name", "/regarding/name"]))
}
