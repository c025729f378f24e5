//! Pod volumes as directories on the host.
//!
//! There is no mount namespace: a volume is a directory below that of the Pod (a `hostPath` is used in place), and
//! mount paths in the command, arguments and variables of a container are replaced by the host paths ([`paths`]). The
//! content of a volume is a pure function of the Pod and the objects it refers to ([`content`]); [`atomic_writer`]
//! writes it as the kubelet does, so that readers see an update completely or not at all.

mod atomic_writer;
mod claims;
mod content;
mod host_path;
pub(crate) mod paths;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use apimachinery::object;
use serde_json::Value;

use super::environment::{ObjectSource, expand};
use crate::runtime::Mount;
pub(crate) use claims::resolve_claims;
use content::VolumeContent;

/// An error that prevents setting up a volume, with the kubelet's message format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VolumeError {
    /// Setting up the volume failed; the Pod worker retries it.
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {message}")]
    SetUp { volume: String, message: String },
    /// The volume source is not supported.
    #[error(
        "volume \"{volume}\": volume source {volume_source} is not supported; use emptyDir, hostPath, configMap, secret, downwardAPI, projected or a claim of a hostPath or local volume"
    )]
    Unsupported { volume: String, volume_source: String },
}

/// Checks whether all objects exist that the volumes of the Pod refer to, without writing files.
pub(crate) fn check(pod: &Value, sources: &dyn ObjectSource) -> Result<(), VolumeError> {
    for volume in volumes(pod).filter(|volume| volume.get("persistentVolumeClaim").is_none()) {
        match content::volume_content(volume, pod, sources) {
            // On a simulated node, PersistentVolumeClaims and unsupported volume sources are simulated and always
            // succeed.
            Ok(_) | Err(VolumeError::Unsupported { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates or updates all volumes of the Pod below its directory.
pub(crate) fn set_up(pod: &Value, sources: &dyn ObjectSource, pod_dir: &Path) -> Result<(), VolumeError> {
    let pod = &*resolve_claims(pod, sources)?;
    for volume in volumes(pod) {
        let name = object::text(volume, "/name");
        let set_up_error = |message: String| VolumeError::SetUp { volume: name.to_owned(), message };
        let path = volume_path(volume, pod_dir);
        match content::volume_content(volume, pod, sources)? {
            VolumeContent::Files(files) => {
                atomic_writer::write(&path, &files).map_err(|error| set_up_error(error.to_string()))?;
            }
            VolumeContent::Empty => create_private_dir(&path).map_err(|error| set_up_error(error.to_string()))?,
            VolumeContent::Host { path: host_path, kind } => {
                host_path::check(Path::new(&host_path), &kind).map_err(set_up_error)?;
            }
        }
    }
    Ok(())
}

/// Whether the content of any volume of the Pod can change when an API object changes.
pub(crate) fn has_updatable_volumes(pod: &Value) -> bool {
    let source_fields = ["configMap", "secret", "downwardAPI", "projected"];
    volumes(pod).any(|volume| source_fields.iter().any(|kind| volume.get(kind).is_some()))
}

/// Returns the mounts of a container, for a Pod whose claims are resolved by [`resolve_claims`]. A missing `subPath`
/// of an `emptyDir` or `hostPath` is created.
pub(crate) fn mounts(
    container: &Value,
    pod: &Value,
    pod_dir: &Path,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, VolumeError> {
    let mut mounts = Vec::new();
    for mount in container.get("volumeMounts").and_then(Value::as_array).into_iter().flatten() {
        let name = object::text(mount, "/name");
        let Some(volume) = volumes(pod).find(|volume| object::text(volume, "/name") == name) else { continue };
        let sub_path = match object::text(mount, "/subPathExpr") {
            "" => object::text(mount, "/subPath").to_owned(),
            expression => expand(expression, variables),
        };
        let set_up_error = |message: String| VolumeError::SetUp { volume: name.to_owned(), message };
        if !Path::new(&sub_path)
            .components()
            .all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
        {
            return Err(set_up_error(format!("subPath {sub_path:?} is outside of the volume")));
        }
        let host_path = if sub_path.is_empty() {
            volume_path(volume, pod_dir)
        } else {
            volume_path(volume, pod_dir).join(&sub_path)
        };
        let is_plain_directory = volume.get("emptyDir").is_some() || volume.get("hostPath").is_some();
        if is_plain_directory && !host_path.exists() {
            fs::create_dir_all(&host_path)
                .map_err(|error| set_up_error(format!("{}: {error}", host_path.display())))?;
        }
        let container_path = object::text(mount, "/mountPath").trim_end_matches('/').to_owned();
        mounts.push(Mount { container_path, host_path });
    }
    mounts.sort_by(|a, b| {
        b.container_path.len().cmp(&a.container_path.len()).then_with(|| a.container_path.cmp(&b.container_path))
    });
    Ok(mounts)
}

/// Creates a directory and its parents, accessible only by the owner.
pub(crate) fn create_private_dir(dir: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Removes a directory with all its contents.
pub(crate) fn remove_dir(dir: &Path) {
    if !dir.exists() {
        return;
    }
    // If this fails, makes all directories writable and retries, because some programs create directories without write
    // permission.
    let removed = fs::remove_dir_all(dir).or_else(|_| {
        make_writable(dir);
        fs::remove_dir_all(dir)
    });
    if let Err(error) = removed {
        tracing::warn!(dir = %dir.display(), %error, "failed to remove a directory");
    }
}

fn make_writable(dir: &Path) {
    // If this fails, the removal that follows reports an error.
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the path of a volume: `volumes/kubernetes.io~configmap/NAME` as in the kubelet, or the path on the host for
/// a `hostPath`.
fn volume_path(volume: &Value, pod_dir: &Path) -> PathBuf {
    if let Some(path) = volume.pointer("/hostPath/path").and_then(Value::as_str) {
        return PathBuf::from(path);
    }
    let plugins =
        [("configMap", "configmap"), ("secret", "secret"), ("downwardAPI", "downward-api"), ("projected", "projected")];
    let plugin =
        plugins.iter().find(|(field, _)| volume.get(field).is_some()).map_or("empty-dir", |(_, plugin)| plugin);
    pod_dir.join("volumes").join(format!("kubernetes.io~{plugin}")).join(object::text(volume, "/name"))
}
