//! Table columns of PersistentVolumes, PersistentVolumeClaims and StorageClasses.

use apimachinery::object;
use serde_json::{Value, json};

use super::cell::{age, column, items, value_or};
use super::column::Column;

pub(super) fn claims() -> Vec<Column> {
    vec![
        column("Status", "string", 0, |claim, _| json!(phase(claim))),
        column("Volume", "string", 0, |claim, _| json!(object::text(claim, "/spec/volumeName"))),
        column("Capacity", "string", 0, |claim, _| json!(bound_field(claim, "/status/capacity/storage"))),
        column("Access Modes", "string", 0, |claim, _| json!(bound_access_modes(claim))),
        column("StorageClass", "string", 0, |claim, _| json!(class(claim))),
        column("VolumeAttributesClass", "string", 0, |claim, _| {
            value_or(claim, "/spec/volumeAttributesClassName", "<unset>")
        }),
        age(),
        column("VolumeMode", "string", 1, |claim, _| value_or(claim, "/spec/volumeMode", "<unset>")),
    ]
}

pub(super) fn volumes() -> Vec<Column> {
    vec![
        column("Capacity", "string", 0, |volume, _| json!(object::text(volume, "/spec/capacity/storage"))),
        column("Access Modes", "string", 0, |volume, _| json!(access_modes(volume, "/spec/accessModes"))),
        column("Reclaim Policy", "string", 0, |volume, _| {
            json!(object::text(volume, "/spec/persistentVolumeReclaimPolicy"))
        }),
        column("Status", "string", 0, |volume, _| json!(phase(volume))),
        column("Claim", "string", 0, |volume, _| json!(claim(volume))),
        column("StorageClass", "string", 0, |volume, _| json!(class(volume))),
        column("VolumeAttributesClass", "string", 0, |volume, _| {
            value_or(volume, "/spec/volumeAttributesClassName", "<unset>")
        }),
        column("Reason", "string", 0, |volume, _| json!(object::text(volume, "/status/reason"))),
        age(),
        column("VolumeMode", "string", 1, |volume, _| value_or(volume, "/spec/volumeMode", "<unset>")),
    ]
}

pub(super) fn classes() -> Vec<Column> {
    vec![
        column("Provisioner", "string", 0, |class, _| json!(object::text(class, "/provisioner"))),
        column("ReclaimPolicy", "string", 0, |class, _| value_or(class, "/reclaimPolicy", "Delete")),
        column("VolumeBindingMode", "string", 0, |class, _| value_or(class, "/volumeBindingMode", "Immediate")),
        column("AllowVolumeExpansion", "string", 0, |class, _| json!(class["allowVolumeExpansion"] == true)),
        age(),
    ]
}

/// Returns `status.phase`, or `Terminating` during deletion.
fn phase(object: &Value) -> &str {
    if object::is_deleting(object) { "Terminating" } else { object::text(object, "/status/phase") }
}

/// Returns the storage class of a claim or volume, from the field or the beta annotation.
fn class(object: &Value) -> &str {
    let annotation = object::text(object, "/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    if annotation.is_empty() { object::text(object, "/spec/storageClassName") } else { annotation }
}

/// Returns the claim bound to a volume as `NAMESPACE/NAME`.
fn claim(volume: &Value) -> String {
    let text = |field| object::text(volume, field);
    match volume.pointer("/spec/claimRef") {
        Some(_) => format!("{}/{}", text("/spec/claimRef/namespace"), text("/spec/claimRef/name")),
        None => String::new(),
    }
}

/// Returns a status field of a claim, or `""` before it is bound.
fn bound_field<'a>(claim: &'a Value, pointer: &str) -> &'a str {
    if object::text(claim, "/spec/volumeName").is_empty() { "" } else { object::text(claim, pointer) }
}

/// Returns the access modes of a bound claim.
fn bound_access_modes(claim: &Value) -> String {
    if object::text(claim, "/spec/volumeName").is_empty() {
        String::new()
    } else {
        access_modes(claim, "/status/accessModes")
    }
}

/// Formats access modes with their short names, without duplicates, in a fixed order.
fn access_modes(object: &Value, pointer: &str) -> String {
    const SHORT_NAMES: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| items(object, pointer).any(|value| value == mode);
    let short_names: Vec<&str> =
        SHORT_NAMES.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect();
    short_names.join(",")
}
