//! Writes what of an object belongs to the server, and takes back what of that a client wrote.

mod job;
mod metadata;
mod pod;

use serde_json::{Value, json};

use super::default;
use crate::binding::{GATED, is_gated};
use crate::object;
use crate::resources::Resource;
use crate::workloads::condition;
use crate::workloads::pod::quality;
pub(super) use metadata::{address, birth, count_generation, generate_name, keep};
pub(super) use pod::addresses;

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
            let class = quality(object);
            status(object, json!({"phase": "Pending", "qosClass": class}));
            if is_gated(object) {
                let now = object::text(object, "/metadata/creationTimestamp").to_owned();
                condition::set(&mut object["status"], GATED, &now);
            }
        }
        "namespaces" => {
            default::namespace(object);
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
        "jobs.batch" => job::select_own(object),
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
