//! Sets the fields owned by the server and reverts changes that clients make to them.

mod job_selector;
mod metadata;
mod pod_ips;
mod stored_versions;

use apimachinery::{condition, object, pod};
use serde_json::{Value, json};

use super::default::namespace_defaults;
use crate::resources::Resource;
pub(super) use metadata::{
    generate_name, initialize_metadata, retain_server_fields, set_type_and_namespace, update_generation,
};
pub(super) use pod_ips::default_pod_ips;
pub(super) use stored_versions::record_storage_version;

/// Removes the status of a new object, except for Nodes, because the kubelet sets their status at registration.
pub(super) fn drop_status(resource: &Resource, object: &mut Value) {
    if resource.has_status && resource.storage != "nodes" {
        object::members(object).remove("status");
    }
}

/// Sets the initial status, finalizers and selectors of a new object, which already has a UID.
pub(super) fn prepare_for_create(resource: &Resource, object: &mut Value) {
    match resource.storage.as_str() {
        "pods" => {
            let qos_class = pod::qos_class(object);
            set_status(object, json!({"phase": "Pending", "qosClass": qos_class}));
            if pod::is_gated(object) {
                let now = object::text(object, "/metadata/creationTimestamp").to_owned();
                condition::set(&mut object["status"], pod::SCHEDULING_GATED, &now);
            }
        }
        "namespaces" => {
            namespace_defaults(object);
            set_status(object, json!({"phase": "Active"}));
        }
        "persistentvolumeclaims" => {
            set_status(object, json!({"phase": "Pending"}));
            object::set_metadata_field(object, "finalizers", Some(json!(["kubernetes.io/pvc-protection"])));
        }
        "persistentvolumes" => {
            let now = object::text(object, "/metadata/creationTimestamp").to_owned();
            set_status(object, json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
            object::set_metadata_field(object, "finalizers", Some(json!(["kubernetes.io/pv-protection"])));
        }
        "jobs.batch" => job_selector::set_job_selector(object),
        _ => {}
    }
}

/// Sets `lastPhaseTransitionTime` of a PersistentVolume when its phase changes.
pub(super) fn prepare_for_update(resource: &Resource, current: &Value, object: &mut Value, now: jiff::Timestamp) {
    let is_unchanged = |pointer: &str| current.pointer(pointer) == object.pointer(pointer);
    if resource.storage == "persistentvolumes"
        && !is_unchanged("/status/phase")
        && is_unchanged("/status/lastPhaseTransitionTime")
    {
        object["status"]["lastPhaseTransitionTime"] = json!(object::format_time(now));
    }
}

fn set_status(object: &mut Value, status: Value) {
    object::members(object).insert("status".to_owned(), status);
}
