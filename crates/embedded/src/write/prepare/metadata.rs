//! The metadata that belongs to the server: where an object stands, its uid, times, generation and owners.

use apimachinery::status::Status;
use serde_json::{Map, Value, json};

use crate::object;
use crate::ports::Random;
use crate::resources::Resource;
use crate::write::Face;

/// Longest generated name (`maxNameLength`), less the suffix.
const GENERATED_PREFIX: usize = 63 - 5;

/// Fields that only the server writes.
const SERVER_OWNED: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

/// Puts the object where the request went, in the storage version.
pub(in crate::write) fn address(resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), Status> {
    let members = object::members(object);
    members.insert("apiVersion".to_owned(), json!(resource.storage_api_version));
    members.insert("kind".to_owned(), json!(resource.kind));
    drop_nulls(object::metadata(object));
    if !resource.namespaced {
        object::set_metadata(object, "namespace", None);
        return Ok(());
    }
    let written = object::namespace(object);
    if !written.is_empty() && written != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object::set_metadata(object, "namespace", Some(json!(namespace)));
    Ok(())
}

/// `generateName` and five characters, when there is no name.
pub(in crate::write) fn generate_name(object: &mut Value, random: &dyn Random) {
    if !object::name(object).is_empty() {
        return;
    }
    let prefix = object::text(object, "/metadata/generateName");
    if !prefix.is_empty() {
        let prefix: String = prefix.chars().take(GENERATED_PREFIX).collect();
        let name = format!("{prefix}{}", random.suffix(5));
        object::set_metadata(object, "name", Some(json!(name)));
    }
}

/// A new object's uid, time and generation.
pub(in crate::write) fn birth(resource: &Resource, object: &mut Value, uid: &str, now: jiff::Timestamp) {
    for field in SERVER_OWNED.into_iter().filter(|field| resource.generation || *field != "generation") {
        object::set_metadata(object, field, None);
    }
    object::set_metadata(object, "resourceVersion", None);
    object::set_metadata(object, "uid", Some(json!(uid)));
    object::set_metadata(object, "creationTimestamp", Some(json!(object::time(now))));
    if resource.generation {
        object::set_metadata(object, "generation", Some(json!(1)));
    }
}

/// Takes from the current object what this write may not change.
pub(in crate::write) fn keep(face: Face, resource: &Resource, current: &Value, object: &mut Value) {
    let managed = object.pointer("/metadata/managedFields").cloned();
    match face {
        Face::Main => {
            for field in SERVER_OWNED {
                object::copy_metadata(object, field, current);
            }
            object::copy_metadata(object, "name", current);
            if resource.status {
                copy_member(object, "status", current);
            }
        }
        Face::Status => {
            let status = object.get("status").cloned();
            *object = current.clone();
            set_member(object, "status", status);
        }
    }
    object::copy_metadata(object, "resourceVersion", current);
    // No owners mentioned means no change of owners; an empty list resets them (kubectl's migration uses both).
    match managed {
        Some(managed) => object::set_metadata(object, "managedFields", Some(managed)),
        None => object::copy_metadata(object, "managedFields", current),
    }
}

/// A change of anything but metadata and status is a new generation.
pub(in crate::write) fn count_generation(resource: &Resource, current: &Value, object: &mut Value) {
    if !resource.generation {
        return;
    }
    let specification = |object: &Value| {
        let mut object = object.clone();
        let members = object::members(&mut object);
        members.remove("metadata");
        if resource.status {
            members.remove("status");
        }
        object
    };
    let differs = |field: &str| current["metadata"].get(field) != object["metadata"].get(field);
    let described = match resource.storage.as_str() {
        // Deployments hand their annotations on to their ReplicaSets.
        "deployments.apps" => differs("annotations"),
        // The labels of an EndpointSlice say whose it is.
        "endpointslices.discovery.k8s.io" => differs("labels"),
        _ => false,
    };
    if described || specification(current) != specification(object) {
        let generation = current.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        object::set_metadata(object, "generation", Some(json!(generation + 1)));
    }
}

fn drop_nulls(metadata: &mut Map<String, Value>) {
    metadata.retain(|_, value| !value.is_null());
}

fn copy_member(object: &mut Value, name: &str, from: &Value) {
    set_member(object, name, from.get(name).cloned());
}

fn set_member(object: &mut Value, name: &str, value: Option<Value>) {
    let members = object::members(object);
    match value {
        Some(value) => {
            members.insert(name.to_owned(), value);
        }
        None => {
            members.remove(name);
        }
    }
}
