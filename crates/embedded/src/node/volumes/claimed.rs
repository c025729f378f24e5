//! Volumes of a Pod that are claims, as what their PersistentVolumes are.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::VolumeError;
use crate::node::environment::Sources;
use crate::object;

/// The Pod with a `hostPath` in the place of every claim.
///
/// # Errors
/// The claim has no volume yet, or one that is no folder of this machine.
pub(crate) fn resolved<'a>(pod: &'a Value, sources: &dyn Sources) -> Result<Cow<'a, Value>, VolumeError> {
    if super::volumes(pod).all(|volume| volume.get("persistentVolumeClaim").is_none()) {
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

fn host_path(claim: &str, volume: &Value, sources: &dyn Sources) -> Result<Value, VolumeError> {
    let name = object::text(volume, "/name");
    let Some(persistent) = sources.volume(claim) else {
        let why = format!("persistentvolumeclaim \"{claim}\" is not bound to a volume");
        return Err(VolumeError::SetUp { volume: name.to_owned(), why });
    };
    let spec = &persistent["spec"];
    if let Some(host) = spec.get("hostPath") {
        return Ok(host.clone());
    }
    if let Some(path) = spec.pointer("/local/path") {
        return Ok(json!({"path": path, "type": "Directory"}));
    }
    let general = ["accessModes", "capacity", "claimRef", "volumeMode", "nodeAffinity"];
    let mut sources = spec.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
    let what = sources.find(|field| spec[field].is_object() && !general.contains(field)).unwrap_or("no source");
    let what = format!("{what} of PersistentVolume {}", object::name(&persistent));
    Err(VolumeError::Unsupported { volume: name.to_owned(), what })
}
