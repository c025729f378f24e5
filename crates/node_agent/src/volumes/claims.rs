//! Resolves the claims of a Pod to their PersistentVolumes.

use std::borrow::Cow;

use apimachinery::object;
use serde_json::{Value, json};

use super::error::VolumeError;
use super::spec::pod_volumes;
use crate::environment::ObjectSource;

/// Returns the Pod with every claim replaced by the `hostPath` of its PersistentVolume.
///
/// # Errors
/// When a claim is not bound, or its PersistentVolume is not a directory on the host.
pub(crate) fn resolve_claims<'a>(pod: &'a Value, sources: &dyn ObjectSource) -> Result<Cow<'a, Value>, VolumeError> {
    if pod_volumes(pod).all(|volume| volume.get("persistentVolumeClaim").is_none()) {
        return Ok(Cow::Borrowed(pod));
    }
    let mut pod = pod.clone();
    let volumes = pod.pointer_mut("/spec/volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        if let Some(claim) = volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str) {
            *volume = json!({"name": volume["name"], "hostPath": host_path(claim, volume, sources)?});
        }
    }
    Ok(Cow::Owned(pod))
}

/// Returns the `hostPath` of the volume of a claim.
fn host_path(claim: &str, volume: &Value, sources: &dyn ObjectSource) -> Result<Value, VolumeError> {
    let name = object::text(volume, "/name");
    let Some(persistent_volume) = sources.volume(claim) else {
        let message = format!("persistentvolumeclaim \"{claim}\" is not bound to a volume");
        return Err(VolumeError::SetUp { volume: name.to_owned(), message });
    };
    let spec = &persistent_volume["spec"];
    if let Some(host_path_source) = spec.get("hostPath") {
        return Ok(host_path_source.clone());
    }
    if let Some(path) = spec.pointer("/local/path") {
        return Ok(json!({"path": path, "type": "Directory"}));
    }
    let common_fields = ["accessModes", "capacity", "claimRef", "volumeMode", "nodeAffinity"];
    let mut source_fields = spec.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
    let source =
        source_fields.find(|field| spec[field].is_object() && !common_fields.contains(field)).unwrap_or("no source");
    let source = format!("{source} of PersistentVolume {}", object::name(&persistent_volume));
    Err(VolumeError::Unsupported { volume: name.to_owned(), volume_source: source })
}
