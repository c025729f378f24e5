//! Defaults of PersistentVolumes, PersistentVolumeClaims and StorageClasses.

use serde_json::{Map, Value, json};

use super::pod;
use apimachinery::object::{self, set_default};

pub(super) fn volume_claim_defaults(spec: &mut Map<String, Value>) {
    set_default(spec, "volumeMode", json!("Filesystem"));
    if let Some(resources) = spec.get_mut("resources") {
        pod::canonicalize_resources(object::members(resources));
    }
}

pub(super) fn volume_defaults(spec: &mut Map<String, Value>) {
    set_default(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
    set_default(spec, "volumeMode", json!("Filesystem"));
    if let Some(source) = spec.get_mut("hostPath") {
        set_default(object::members(source), "type", json!(""));
    }
}

pub(super) fn storage_class_defaults(members: &mut Map<String, Value>) {
    set_default(members, "reclaimPolicy", json!("Delete"));
    set_default(members, "volumeBindingMode", json!("Immediate"));
}
