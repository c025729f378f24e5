//! Cells of volumes, of claims to them, and of their classes.

use serde_json::{Value, json};

use super::Column;
use super::cell::{age, column, items, stated_or};
use crate::object;

pub(super) fn claims() -> Vec<Column> {
    vec![
        column("Status", "string", 0, |claim, _| json!(phase(claim))),
        column("Volume", "string", 0, |claim, _| json!(object::text(claim, "/spec/volumeName"))),
        column("Capacity", "string", 0, |claim, _| json!(given(claim, "/status/capacity/storage"))),
        column("Access Modes", "string", 0, |claim, _| json!(given_modes(claim))),
        column("StorageClass", "string", 0, |claim, _| json!(class(claim))),
        column("VolumeAttributesClass", "string", 0, |claim, _| {
            stated_or(claim, "/spec/volumeAttributesClassName", "<unset>")
        }),
        age(),
        column("VolumeMode", "string", 1, |claim, _| stated_or(claim, "/spec/volumeMode", "<unset>")),
    ]
}

pub(super) fn volumes() -> Vec<Column> {
    vec![
        column("Capacity", "string", 0, |volume, _| json!(object::text(volume, "/spec/capacity/storage"))),
        column("Access Modes", "string", 0, |volume, _| json!(modes(volume, "/spec/accessModes"))),
        column("Reclaim Policy", "string", 0, |volume, _| {
            json!(object::text(volume, "/spec/persistentVolumeReclaimPolicy"))
        }),
        column("Status", "string", 0, |volume, _| json!(phase(volume))),
        column("Claim", "string", 0, |volume, _| json!(claim(volume))),
        column("StorageClass", "string", 0, |volume, _| json!(class(volume))),
        column("VolumeAttributesClass", "string", 0, |volume, _| {
            stated_or(volume, "/spec/volumeAttributesClassName", "<unset>")
        }),
        column("Reason", "string", 0, |volume, _| json!(object::text(volume, "/status/reason"))),
        age(),
        column("VolumeMode", "string", 1, |volume, _| stated_or(volume, "/spec/volumeMode", "<unset>")),
    ]
}

pub(super) fn classes() -> Vec<Column> {
    vec![
        column("Provisioner", "string", 0, |class, _| json!(object::text(class, "/provisioner"))),
        column("ReclaimPolicy", "string", 0, |class, _| stated_or(class, "/reclaimPolicy", "Delete")),
        column("VolumeBindingMode", "string", 0, |class, _| stated_or(class, "/volumeBindingMode", "Immediate")),
        column("AllowVolumeExpansion", "string", 0, |class, _| json!(class["allowVolumeExpansion"] == true)),
        age(),
    ]
}

/// `status.phase`, unless it is being deleted.
fn phase(object: &Value) -> &str {
    if object::is_deleting(object) { "Terminating" } else { object::text(object, "/status/phase") }
}

/// The class that a claim or a volume names, by the field or by the older annotation.
fn class(object: &Value) -> &str {
    let annotation = object::text(object, "/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    if annotation.is_empty() { object::text(object, "/spec/storageClassName") } else { annotation }
}

/// The claim that has a volume.
fn claim(volume: &Value) -> String {
    let text = |field| object::text(volume, field);
    match volume.pointer("/spec/claimRef") {
        Some(_) => format!("{}/{}", text("/spec/claimRef/namespace"), text("/spec/claimRef/name")),
        None => String::new(),
    }
}

/// What a claim was given; nothing before it has a volume.
fn given<'a>(claim: &'a Value, pointer: &str) -> &'a str {
    if object::text(claim, "/spec/volumeName").is_empty() { "" } else { object::text(claim, pointer) }
}

/// The access that a claim was given.
fn given_modes(claim: &Value) -> String {
    if object::text(claim, "/spec/volumeName").is_empty() { String::new() } else { modes(claim, "/status/accessModes") }
}

/// Access modes by their short names, each once, in an order of their own.
fn modes(object: &Value, pointer: &str) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| items(object, pointer).any(|stated| stated == mode);
    let named: Vec<&str> = SHORT.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect();
    named.join(",")
}
