use std::sync::Arc;

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::kinds::{DEPLOYMENT, LEADER_WORKER_SET, POD_GROUP};

fn object_change(kind: Kind, old: Value, new: Value) -> Change {
    let object = |value: Value| (!value.is_null()).then(|| Arc::new(value));
    let key = NamespacedName::from_object(if new.is_null() { &old } else { &new });
    Change::Object { kind, key, old: object(old), new: object(new) }
}

/// Renders effects on one line: the outdated part and the watch effect if any, then the work.
fn summary(change: &Change) -> String {
    let effects = effects(change);
    let work = |work: &Work| match work {
        Work::Item(WorkItem::Service(kind, key)) => format!("{}/{key}", kind.group),
        Work::LateStatus(item) => format!("late:{item:?}"),
        Work::Item(item) => format!("{item:?}"),
        Work::OtherWaitingServices(key) => format!("OtherWaitingServices({key})"),
        Work::BlockedServices(namespace) => format!("BlockedServices({namespace})"),
        sets => format!("{sets:?}"),
    };
    let outdated = (effects.outdated != Outdated::Nothing).then(|| format!("outdated:{:?}", effects.outdated));
    let watches = (effects.watches != WatchEffect::None).then(|| format!("watches:{:?}", effects.watches));
    outdated.into_iter().chain(watches).chain(effects.work.iter().map(work)).collect::<Vec<_>>().join(" ")
}

#[rstest]
#[case::definitions(CUSTOM_RESOURCE_DEFINITION, "outdated:Snapshot watches:LogMissingApis")]
#[case::nodes(NODE, "outdated:Snapshot AllClasses ClassDiscovery ResourceFlavors BaseSet AllServices")]
#[case::classes(ACCELERATOR_CLASS, "outdated:Snapshot AllClasses ClassDiscovery ResourceFlavors BaseSet AllServices")]
#[case::base_set(BASE_SET_CONFIG_MAP, "outdated:Snapshot BaseSet")]
#[case::flavors(RESOURCE_FLAVORS[1], "outdated:Snapshot ResourceFlavors LinkedClasses")]
#[case::runtimes(SERVING_RUNTIME, "outdated:Snapshot AllServices")]
#[case::owned_objects(LEADER_WORKER_SET, "outdated:Snapshot AllServices")]
#[case::services(OME_SERVICE, "outdated:Snapshot")]
fn effects_of_a_completed_list(#[case] kind: Kind, #[case] expect: &str) {
    assert_eq!(summary(&Change::Synced(kind)), expect);
}

fn node(label: &str, heartbeat: &str) -> Value {
    json!({"metadata": {"name": "x", "labels": {"gpu": label}, "resourceVersion": heartbeat},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]}})
}

#[rstest]
#[case::heartbeat(node("a", "1"), node("a", "2"), "")]
#[case::label(
    node("a", "1"),
    node("b", "2"),
    "outdated:Inventory ClassDiscovery ResourceFlavors AffectedClasses WaitingServices ReadyServices"
)]
#[case::deleted(
    node("a", "1"),
    Value::Null,
    "outdated:Inventory ClassDiscovery ResourceFlavors AffectedClasses WaitingServices ReadyServices"
)]
fn effects_of_a_node(#[case] old: Value, #[case] new: Value, #[case] expect: &str) {
    assert_eq!(summary(&object_change(NODE, old, new)), expect);
}

fn pod(node: Value, phase: &str, service: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": "p", "labels": {"ome.io/inferenceservice": service}},
        "spec": {"nodeName": node}, "status": {"phase": phase}})
}

#[rstest]
#[case::started(pod(json!("x"), "Pending", "s"), pod(json!("x"), "Running", "s"), "AffectedClasses ome.io/n/s")]
#[case::bound(pod(Value::Null, "Pending", "s"), pod(json!("x"), "Pending", "s"), "outdated:Inventory AffectedClasses ome.io/n/s")]
#[case::terminated(pod(json!("x"), "Running", "s"), pod(json!("x"), "Failed", "s"), "outdated:Inventory AffectedClasses ome.io/n/s")]
#[case::relabeled(pod(json!("x"), "Running", "a"), pod(json!("x"), "Running", "b"), "AffectedClasses ome.io/n/b")]
#[case::of_no_service(Value::Null, json!({"metadata": {"namespace": "n", "name": "p"}}), "outdated:Inventory AffectedClasses")]
fn effects_of_a_pod(#[case] old: Value, #[case] new: Value, #[case] expect: &str) {
    assert_eq!(summary(&object_change(POD, old, new)), expect);
}

fn class(free: i64, vendor: &str) -> Value {
    json!({"metadata": {"name": "h100"}, "spec": {"vendor": vendor}, "status": {"availableAccelerators": free}})
}

#[rstest]
#[case::more_capacity(class(1, "a"), class(2, "a"), "late:Class(\"h100\") WaitingServices")]
#[case::less_capacity(class(2, "a"), class(1, "a"), "late:Class(\"h100\")")]
#[case::edited(
    class(1, "a"),
    class(1, "b"),
    "outdated:Snapshot ClassDiscovery ResourceFlavors BaseSet AffectedClasses InvalidObjects WaitingServices ReadyServices"
)]
fn effects_of_a_class(#[case] old: Value, #[case] new: Value, #[case] expect: &str) {
    assert_eq!(summary(&object_change(ACCELERATOR_CLASS, old, new)), expect);
}

fn supply(version: &str, image: &str) -> Value {
    json!({"metadata": {"name": "r", "resourceVersion": version}, "spec": {"image": image}})
}

#[rstest]
#[case::created(Value::Null, supply("1", "a"), "outdated:Snapshot InvalidObjects WaitingServices ReadyServices")]
#[case::edited(supply("1", "a"), supply("2", "b"), "outdated:Snapshot InvalidObjects WaitingServices ReadyServices")]
#[case::unchanged(supply("1", "a"), supply("2", "a"), "")]
fn effects_of_a_runtime_or_model(
    #[case] old: Value,
    #[case] new: Value,
    #[case] expect: &str,
    #[values(SERVING_RUNTIME, CLUSTER_SERVING_RUNTIME, BASE_MODEL, CLUSTER_BASE_MODEL)] kind: Kind,
) {
    assert_eq!(summary(&object_change(kind, old, new)), expect);
}

/// Returns a service with a spec and with the class of its decision, if it is decided.
fn service(image: &str, class: Option<&str>) -> Value {
    let status = class.map(|class| {
        json!({"decision": {"reason": "Selected", "message": ""},
        "components": {"engine": {"selectedAccelerator": {"acceleratorClass": class}}}})
    });
    json!({"metadata": {"namespace": "n", "name": "s"}, "spec": {"image": image}, "status": status})
}

#[rstest]
#[case::created(Value::Null, service("a", None), "ome.io/n/s")]
#[case::edited(service("a", Some("x")), service("b", Some("x")), "ome.io/n/s")]
#[case::other_status(service("a", None), service("a", Some("x")), "LATE")]
#[case::own_status_write(service("a", Some("x")), service("a", Some("x")), "")]
#[case::changed_selection(service("a", Some("x")), service("a", Some("y")), "OtherWaitingServices(n/s) LATE")]
#[case::deleted(service("a", Some("x")), Value::Null, "WaitingServices")]
fn effects_of_a_service(#[case] old: Value, #[case] new: Value, #[case] expect: &str) {
    let late = format!("late:{:?}", WorkItem::Service(OME_SERVICE, NamespacedName::new("n", "s")));
    assert_eq!(summary(&object_change(OME_SERVICE, old, new)).replace(&late, "LATE"), expect);
}

fn owned(kind: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": "d", "ownerReferences":
        [{"controller": true, "apiVersion": "fusioninfer.io/v1alpha1", "kind": kind, "name": "r"}]}})
}

#[rstest]
#[case::owned(DEPLOYMENT, Value::Null, owned("InferenceService"), "fusioninfer.io/n/r")]
#[case::deleted(DEPLOYMENT, owned("InferenceService"), Value::Null, "fusioninfer.io/n/r BlockedServices(n)")]
#[case::of_another_controller(DEPLOYMENT, Value::Null, owned("Job"), "")]
#[case::unblocks(POD_GROUP, owned("Job"), Value::Null, "BlockedServices(n)")]
#[case::base_set(BASE_SET_CONFIG_MAP, Value::Null, json!({"metadata": {"namespace": "n", "name": "c"}}), "BaseSet")]
#[case::flavor(RESOURCE_FLAVORS[0], Value::Null, json!({"metadata": {"name": "f"}}), "ResourceFlavors LinkedClasses")]
fn effects_of_other_objects(#[case] kind: Kind, #[case] old: Value, #[case] new: Value, #[case] expect: &str) {
    assert_eq!(summary(&object_change(kind, old, new)), expect);
}

fn definition(name: &str, field: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"versions": [{"name": "v1beta1",
        "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": {field: {}}}}}}}]}})
}

#[rstest]
#[case::any("x.y", "subGroupPolicy", "watches:Update")]
#[case::pod_groups("podgroups.scheduling.volcano.sh", "subGroupPolicy", "outdated:Snapshot watches:Update AllServices")]
#[case::same_fields("podgroups.scheduling.volcano.sh", "minTaskMember", "watches:Update")]
fn effects_of_a_definition(#[case] name: &str, #[case] new_field: &str, #[case] expect: &str) {
    let change =
        object_change(CUSTOM_RESOURCE_DEFINITION, definition(name, "minTaskMember"), definition(name, new_field));
    assert_eq!(summary(&change), expect);
}

#[rstest]
#[case::owned(LEADER_WORKER_SET, &[Work::AllServices])]
#[case::selected(SERVING_RUNTIME, &[])]
fn removed_api_affects_the_services_that_own_its_objects(#[case] kind: Kind, #[case] expect: &[Work]) {
    let effects = removal_effects(kind);
    assert_eq!((effects.outdated, effects.work.as_slice()), (Outdated::Snapshot, expect));
}
