//! Cells of claims and volumes.

use serde_json::Value;

use super::builtin::items;
use crate::object;

/// `status.phase`, unless it is being deleted.
pub(super) fn phase(object: &Value) -> &str {
    if object::is_deleting(object) { "Terminating" } else { object::text(object, "/status/phase") }
}

/// The class that a claim or a volume names, by the field or by the older annotation.
pub(super) fn class(object: &Value) -> &str {
    let annotation = object::text(object, "/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    if annotation.is_empty() { object::text(object, "/spec/storageClassName") } else { annotation }
}

/// The claim that has a volume.
pub(super) fn claim(volume: &Value) -> String {
    let text = |field| object::text(volume, field);
    match volume.pointer("/spec/claimRef") {
        Some(_) => format!("{}/{}", text("/spec/claimRef/namespace"), text("/spec/claimRef/name")),
        None => String::new(),
    }
}

/// What a claim was given; nothing before it has a volume.
pub(super) fn given<'a>(claim: &'a Value, pointer: &str) -> &'a str {
    if object::text(claim, "/spec/volumeName").is_empty() { "" } else { object::text(claim, pointer) }
}

/// The access that a claim was given.
pub(super) fn given_modes(claim: &Value) -> String {
    if object::text(claim, "/spec/volumeName").is_empty() { String::new() } else { modes(claim, "/status/accessModes") }
}

/// Access modes by their short names, each once, in an order of their own.
pub(super) fn modes(object: &Value, pointer: &str) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| items(object, pointer).any(|stated| stated == mode);
    let named: Vec<&str> = SHORT.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect();
    named.join(",")
}
