//! Binding and provisioning of PersistentVolumeClaims.
//!
//! As in kube-controller-manager, a claim is bound to the smallest matching volume; if there is none, the provisioner
//! of its StorageClass creates one. The only provisioner is `kubernetes.io/host-path`, which kube-controller-manager
//! also has for single-node clusters. It creates each volume as a subdirectory of one directory on the host. Claims
//! whose class has another provisioner remain pending until a matching volume exists.

mod claim;
mod volume;

use std::sync::Arc;

use apimachinery::{LabelSelector, Quantity, object, persistent_volume};
use serde_json::{Value, json};

pub(crate) use claim::plan as plan_claim;
pub(crate) use volume::plan as plan_volume;

const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// The binding state of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BindingState<'a> {
    /// `status.phase` is `Bound`.
    Bound { volume: &'a str },
    /// The claim is bound as soon as a volume is available.
    Immediate,
    /// The claim is bound once a Pod that uses it is assigned to a node.
    WaitForFirstConsumer {
        /// Whether the class can provision a volume.
        has_provisioner: bool,
    },
}

/// The desired state of a finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FinalizerState {
    Present,
    Absent,
}

/// Returns the names of the claims that the volumes of a Pod refer to.
pub(crate) fn claim_names(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    volumes.into_iter().flatten().filter_map(|volume| volume.pointer("/persistentVolumeClaim/claimName")?.as_str())
}

/// Returns the binding state of a claim.
pub(crate) fn binding_state<'a>(claim: &'a Value, classes: &[Arc<Value>]) -> BindingState<'a> {
    if claim.pointer("/status/phase").and_then(Value::as_str) == Some("Bound") {
        return BindingState::Bound { volume: object::text(claim, "/spec/volumeName") };
    }
    match storage_class(claim, classes) {
        Some(class) if object::text(class, "/volumeBindingMode") == "WaitForFirstConsumer" => {
            BindingState::WaitForFirstConsumer { has_provisioner: has_host_path_provisioner(class) }
        }
        _ => BindingState::Immediate,
    }
}

/// Whether the claim can be bound to this volume.
pub(crate) fn matches(claim: &Value, volume: &Value) -> bool {
    let text = |object: &Value, pointer: &str, default: &'static str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or(default).to_owned()
    };
    let is_equal = |field: &str, default| text(claim, field, default) == text(volume, field, default);
    let modes = object::strings(volume.pointer("/spec/accessModes"));
    let labels = claim.pointer("/spec/selector").filter(|selector| !selector.is_null()).map(LabelSelector::from_json);
    let volume_name = object::text(claim, "/spec/volumeName");
    let claim_ref = volume.pointer("/spec/claimRef").filter(|claim| !claim.is_null());
    !object::is_deleting(volume)
        && (volume_name.is_empty() || volume_name == object::name(volume))
        && claim_ref.is_none_or(|reference| refers_to(reference, claim))
        && object::text(volume, "/status/phase") != "Released"
        && is_equal("/spec/storageClassName", "")
        && is_equal("/spec/volumeMode", "Filesystem")
        && object::strings(claim.pointer("/spec/accessModes")).iter().all(|mode| modes.contains(mode))
        && storage_size(volume, "/spec/capacity/storage") >= storage_size(claim, "/spec/resources/requests/storage")
        && labels.is_none_or(|selector| selector.is_ok_and(|selector| selector.matches_object(volume)))
}

/// Returns the class with the default annotation.
pub(crate) fn default_class(classes: &[Arc<Value>]) -> Option<&Value> {
    let is_default = |class: &&Arc<Value>| {
        let annotations = class.pointer("/metadata/annotations");
        annotations.and_then(|all| all.get(IS_DEFAULT_CLASS)?.as_str()) == Some("true")
    };
    classes.iter().find(is_default).map(Arc::as_ref)
}

/// Returns the default class of a new cluster, which provisions `hostPath` volumes.
#[must_use]
pub fn standard_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {IS_DEFAULT_CLASS: "true"}},
        "provisioner": persistent_volume::PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    })
}

/// Returns the class of a claim, or the default class if the claim does not name one.
fn storage_class<'a>(claim: &Value, classes: &'a [Arc<Value>]) -> Option<&'a Value> {
    match claim.pointer("/spec/storageClassName").and_then(Value::as_str) {
        Some(name) => classes.iter().find(|class| object::name(class) == name).map(Arc::as_ref),
        None => default_class(classes),
    }
}

/// Whether this cluster runs the provisioner of the class.
fn has_host_path_provisioner(class: &Value) -> bool {
    object::text(class, "/provisioner") == persistent_volume::PROVISIONER
}

/// Whether a `claimRef` refers to this claim. A reference that was set before the claim existed has no UID and matches
/// by name.
fn refers_to(reference: &Value, claim: &Value) -> bool {
    let text = |field| object::text(reference, field);
    text("/namespace") == object::namespace(claim)
        && text("/name") == object::name(claim)
        && (text("/uid").is_empty() || text("/uid") == object::uid(claim))
}

/// Returns a storage quantity, 0 if absent or invalid.
fn storage_size(object: &Value, pointer: &str) -> Quantity {
    let quantity = object.pointer(pointer).and_then(|value| serde_json::from_value(value.clone()).ok());
    quantity.unwrap_or(Quantity::ZERO)
}

/// Returns the object with the finalizer added or removed, `None` when nothing changes.
fn with_finalizer(object: &Value, finalizer: &str, state: FinalizerState) -> Option<Value> {
    let mut finalizers: Vec<&str> = object::strings(object.pointer("/metadata/finalizers"));
    match (state, finalizers.contains(&finalizer)) {
        (FinalizerState::Present, false) => finalizers.push(finalizer),
        (FinalizerState::Absent, true) => finalizers.retain(|other| *other != finalizer),
        _ => return None,
    }
    let mut changed = object.clone();
    object::set_metadata_field(&mut changed, "finalizers", Some(json!(finalizers)).filter(|_| !finalizers.is_empty()));
    Some(changed)
}

#[cfg(test)]
mod tests;
