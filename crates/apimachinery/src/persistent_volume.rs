//! PersistentVolumes: storage names, and volumes that the provisioner of host directories created.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::object;

/// Storage name of PersistentVolumeClaims.
pub const CLAIMS: &str = "persistentvolumeclaims";
/// Storage name of PersistentVolumes.
pub const VOLUMES: &str = "persistentvolumes";
/// Storage name of StorageClasses.
pub const CLASSES: &str = "storageclasses.storage.k8s.io";

/// The provisioner of the default StorageClass: directories of the host.
pub const PROVISIONER: &str = "kubernetes.io/host-path";
/// Annotation of a PersistentVolume that names its provisioner.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Returns the directory of a volume that was provisioned below `volumes_dir` and whose reclaim policy is `Delete`.
pub fn provisioned_directory(volume: &Value, volumes_dir: &Path) -> Option<PathBuf> {
    let annotations = volume.pointer("/metadata/annotations")?;
    let path = Path::new(volume.pointer("/spec/hostPath/path")?.as_str()?);
    let is_provisioned_here = annotations.get(PROVISIONED_BY)? == PROVISIONER && path.parent() == Some(volumes_dir);
    let is_reclaimed = object::text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete";
    (is_provisioned_here && is_reclaimed).then(|| path.to_owned())
}
