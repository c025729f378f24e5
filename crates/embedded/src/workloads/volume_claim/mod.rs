//! PersistentVolumeClaims: which volume a claim gets, and when.
//!
//! As kube-controller-manager binds them: a claim takes the smallest volume that fits; where there is none, the
//! provisioner of its StorageClass makes one. The one provisioner here is `kubernetes.io/host-path`, which that program
//! has for clusters of one machine too: a folder below a fixed one. What is asked of others is waited for.

mod claim;
mod volume;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use apimachinery::quantity::Quantity;
use apimachinery::selector::LabelSelector;
use serde_json::{Value, json};

use crate::object;

pub(crate) use claim::plan as plan_claim;
pub(crate) use volume::plan as plan_volume;

pub(crate) const CLAIMS: &str = "persistentvolumeclaims";
pub(crate) const VOLUMES: &str = "persistentvolumes";
pub(crate) const CLASSES: &str = "storageclasses.storage.k8s.io";

const PROVISIONER: &str = "kubernetes.io/host-path";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// How far a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding<'a> {
    Bound {
        volume: &'a str,
    },
    /// It gets its volume as soon as there is one.
    AtOnce,
    /// It gets one when a Pod that uses it has a node (`WaitForFirstConsumer`).
    AtFirstPod {
        /// The class makes one where none fits.
        is_provisioned: bool,
    },
}

/// The claims that the volumes of a Pod name.
pub(crate) fn used_by(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    volumes.into_iter().flatten().filter_map(|volume| volume.pointer("/persistentVolumeClaim/claimName")?.as_str())
}

pub(crate) fn binding<'a>(claim: &'a Value, classes: &[Arc<Value>]) -> Binding<'a> {
    if claim.pointer("/status/phase").and_then(Value::as_str) == Some("Bound") {
        return Binding::Bound { volume: object::text(claim, "/spec/volumeName") };
    }
    match class_of(claim, classes) {
        Some(class) if object::text(class, "/volumeBindingMode") == "WaitForFirstConsumer" => {
            Binding::AtFirstPod { is_provisioned: makes_volumes(class) }
        }
        _ => Binding::AtOnce,
    }
}

/// Whether the claim may have this volume.
pub(crate) fn fits(claim: &Value, volume: &Value) -> bool {
    let text = |object: &Value, pointer: &str, default: &'static str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or(default).to_owned()
    };
    let same = |field: &str, default| text(claim, field, default) == text(volume, field, default);
    let modes = object::strings(volume.pointer("/spec/accessModes"));
    let labels = claim.pointer("/spec/selector").filter(|selector| !selector.is_null()).map(LabelSelector::from_json);
    let named = object::text(claim, "/spec/volumeName");
    let claimed = volume.pointer("/spec/claimRef").filter(|claim| !claim.is_null());
    !object::is_deleting(volume)
        && (named.is_empty() || named == object::name(volume))
        && claimed.is_none_or(|reference| refers_to(reference, claim))
        && object::text(volume, "/status/phase") != "Released"
        && same("/spec/storageClassName", "")
        && same("/spec/volumeMode", "Filesystem")
        && object::strings(claim.pointer("/spec/accessModes")).iter().all(|mode| modes.contains(mode))
        && size(volume, "/spec/capacity/storage") >= size(claim, "/spec/resources/requests/storage")
        && labels.is_none_or(|selector| selector.is_ok_and(|selector| selector.matches_object(volume)))
}

/// The class that says it is the default.
pub(crate) fn default_class(classes: &[Arc<Value>]) -> Option<&Value> {
    let says_so = |class: &&Arc<Value>| {
        let annotations = class.pointer("/metadata/annotations");
        annotations.and_then(|all| all.get(IS_DEFAULT)?.as_str()) == Some("true")
    };
    classes.iter().find(says_so).map(Arc::as_ref)
}

/// The class of a new cluster, whose volumes are folders of this machine.
pub(crate) fn standard_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {IS_DEFAULT: "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    })
}

/// The folder of a volume that was made below `folder` and goes with it.
pub(crate) fn folder_of(volume: &Value, folder: &Path) -> Option<PathBuf> {
    let annotations = volume.pointer("/metadata/annotations")?;
    let path = Path::new(volume.pointer("/spec/hostPath/path")?.as_str()?);
    let is_ours = annotations.get(PROVISIONED_BY)? == PROVISIONER && path.parent() == Some(folder);
    let goes = object::text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete";
    (is_ours && goes).then(|| path.to_owned())
}

fn class_of<'a>(claim: &Value, classes: &'a [Arc<Value>]) -> Option<&'a Value> {
    match claim.pointer("/spec/storageClassName").and_then(Value::as_str) {
        Some(name) => classes.iter().find(|class| object::name(class) == name).map(Arc::as_ref),
        None => default_class(classes),
    }
}

fn makes_volumes(class: &Value) -> bool {
    object::text(class, "/provisioner") == PROVISIONER
}

/// Whether a `claimRef` is about this claim. One that somebody wrote beforehand has no uid.
fn refers_to(reference: &Value, claim: &Value) -> bool {
    let text = |field| object::text(reference, field);
    text("/namespace") == object::namespace(claim)
        && text("/name") == object::name(claim)
        && (text("/uid").is_empty() || text("/uid") == object::uid(claim))
}

fn size(object: &Value, pointer: &str) -> Quantity {
    let stated = object.pointer(pointer).and_then(|value| serde_json::from_value(value.clone()).ok());
    stated.unwrap_or(Quantity::ZERO)
}

/// Adds or removes a finalizer; `None` where nothing is to do.
fn with_finalizer(object: &Value, finalizer: &str, wanted: Wanted) -> Option<Value> {
    let mut all: Vec<&str> = object::strings(object.pointer("/metadata/finalizers"));
    match (wanted, all.contains(&finalizer)) {
        (Wanted::Present, false) => all.push(finalizer),
        (Wanted::Absent, true) => all.retain(|other| *other != finalizer),
        _ => return None,
    }
    let mut changed = object.clone();
    object::set_metadata(&mut changed, "finalizers", Some(json!(all)).filter(|_| !all.is_empty()));
    Some(changed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Present,
    Absent,
}

#[cfg(test)]
mod tests;
