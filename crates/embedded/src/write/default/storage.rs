//! The defaults of volumes, of claims to them, and of their classes.

use serde_json::{Map, Value, json};

use super::{pod, set};
use crate::object;

pub(super) fn claim(spec: &mut Map<String, Value>) {
    set(spec, "volumeMode", json!("Filesystem"));
    if let Some(resources) = spec.get_mut("resources") {
        pod::resources(object::members(resources));
    }
}

pub(super) fn volume(spec: &mut Map<String, Value>) {
    set(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
    set(spec, "volumeMode", json!("Filesystem"));
    if let Some(source) = spec.get_mut("hostPath") {
        set(object::members(source), "type", json!(""));
    }
}

pub(super) fn class(members: &mut Map<String, Value>) {
    set(members, "reclaimPolicy", json!("Delete"));
    set(members, "volumeBindingMode", json!("Immediate"));
}
