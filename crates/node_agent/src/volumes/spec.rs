//! `spec.volumes` of a Pod.

use std::path::{Path, PathBuf};

use apimachinery::object;
use serde_json::Value;

/// Returns the volumes of a Pod.
pub(super) fn pod_volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    object::items(pod.pointer("/spec/volumes"))
}

/// Whether the content of any volume of the Pod can change when an API object changes.
pub(crate) fn has_updatable_volumes(pod: &Value) -> bool {
    let source_fields = ["configMap", "secret", "downwardAPI", "projected"];
    pod_volumes(pod).any(|volume| source_fields.iter().any(|kind| volume.get(kind).is_some()))
}

/// Returns the path of a volume: `volumes/kubernetes.io~configmap/NAME` as in the kubelet, or the path on the host for
/// a `hostPath`.
pub(super) fn volume_path(volume: &Value, pod_dir: &Path) -> PathBuf {
    if let Some(path) = volume.pointer("/hostPath/path").and_then(Value::as_str) {
        return PathBuf::from(path);
    }
    let plugins =
        [("configMap", "configmap"), ("secret", "secret"), ("downwardAPI", "downward-api"), ("projected", "projected")];
    let plugin =
        plugins.iter().find(|(field, _)| volume.get(field).is_some()).map_or("empty-dir", |(_, plugin)| plugin);
    pod_dir.join("volumes").join(format!("kubernetes.io~{plugin}")).join(object::text(volume, "/name"))
}
