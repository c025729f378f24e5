//! The volumes of a Pod as folders of this machine.
//!
//! There is no mount namespace: a volume lies in the Pod's folder (a `hostPath` where it is), and the mount paths that
//! stand in a container's command, arguments and variables are rewritten to it ([`paths`]). What a volume holds is a
//! pure function of the Pod and the objects it refers to ([`content`]); [`payload`] writes it as a kubelet does, so that
//! a reader sees an update whole or not at all.

mod claimed;
mod content;
mod host_path;
pub(crate) mod paths;
mod payload;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::environment::{Sources, expand};
use crate::object;
use crate::ports::Mount;
pub(crate) use claimed::resolved;
use content::Content;

/// Why a volume is not there yet, in a kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {why}")]
    SetUp { volume: String, why: String },
    /// Waiting does not help.
    #[error(
        "volume \"{volume}\": {what} is not available here; use emptyDir, hostPath, configMap, secret, downwardAPI, projected or a claim of a hostPath or local volume"
    )]
    Unsupported { volume: String, what: String },
}

/// Looks whether everything the Pod's volumes refer to is there, without writing anything.
pub(crate) fn check(pod: &Value, sources: &dyn Sources) -> Result<(), VolumeError> {
    for volume in volumes(pod).filter(|volume| volume.get("persistentVolumeClaim").is_none()) {
        match content::of(volume, pod, sources) {
            // A claim or a driver of a simulated node is as simulated as its containers.
            Ok(_) | Err(VolumeError::Unsupported { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes, or brings up to date, every volume of the Pod below its folder.
pub(crate) fn lay_out(pod: &Value, sources: &dyn Sources, folder: &Path) -> Result<(), VolumeError> {
    let pod = &*resolved(pod, sources)?;
    for volume in volumes(pod) {
        let name = object::text(volume, "/name");
        let failed = |why: String| VolumeError::SetUp { volume: name.to_owned(), why };
        let place = place(volume, folder);
        match content::of(volume, pod, sources)? {
            Content::Files(files) => payload::write(&place, &files).map_err(|error| failed(error.to_string()))?,
            Content::Empty => private(&place).map_err(|error| failed(error.to_string()))?,
            Content::Host { path, kind } => host_path::check(Path::new(&path), &kind).map_err(failed)?,
        }
    }
    Ok(())
}

/// Whether an update of some object can change what a volume holds.
pub(crate) fn follow_objects(pod: &Value) -> bool {
    let kinds = ["configMap", "secret", "downwardAPI", "projected"];
    volumes(pod).any(|volume| kinds.iter().any(|kind| volume.get(kind).is_some()))
}

/// Where a container's mounts lie, for a Pod whose claims are [`resolved`]. `subPath` of a volume that is only a folder is made.
pub(crate) fn mounts(
    container: &Value,
    pod: &Value,
    folder: &Path,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, VolumeError> {
    let mut mounts = Vec::new();
    for mount in container.get("volumeMounts").and_then(Value::as_array).into_iter().flatten() {
        let name = object::text(mount, "/name");
        let Some(volume) = volumes(pod).find(|volume| object::text(volume, "/name") == name) else { continue };
        let sub = match object::text(mount, "/subPathExpr") {
            "" => object::text(mount, "/subPath").to_owned(),
            expression => expand(expression, variables),
        };
        let failed = |why: String| VolumeError::SetUp { volume: name.to_owned(), why };
        if !Path::new(&sub).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(failed(format!("subPath {sub:?} leads out of the volume")));
        }
        let lies = if sub.is_empty() { place(volume, folder) } else { place(volume, folder).join(&sub) };
        let is_folder = volume.get("emptyDir").is_some() || volume.get("hostPath").is_some();
        if is_folder && !lies.exists() {
            fs::create_dir_all(&lies).map_err(|error| failed(format!("{}: {error}", lies.display())))?;
        }
        let path = object::text(mount, "/mountPath").trim_end_matches('/').to_owned();
        mounts.push(Mount { path, lies });
    }
    mounts.sort_by(|a, b| b.path.len().cmp(&a.path.len()).then_with(|| a.path.cmp(&b.path)));
    Ok(mounts)
}

/// A folder that only its owner can read, with those above it.
pub(crate) fn private(folder: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Removes a Pod's folder with everything in it.
pub(crate) fn remove(folder: &Path) {
    if !folder.exists() {
        return;
    }
    // A folder without write permission, which some programs make, keeps what is in it.
    let removed = fs::remove_dir_all(folder).or_else(|_| {
        open_up(folder);
        fs::remove_dir_all(folder)
    });
    if let Err(error) = removed {
        tracing::warn!(folder = %folder.display(), %error, "the folder of a Pod that is gone stays");
    }
}

fn open_up(folder: &Path) {
    // What cannot be opened is told by the removal that follows.
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten()
}

/// `volumes/kubernetes.io~configmap/NAME`, as below a kubelet's root; a `hostPath` lies where it says.
fn place(volume: &Value, folder: &Path) -> PathBuf {
    if let Some(path) = volume.pointer("/hostPath/path").and_then(Value::as_str) {
        return PathBuf::from(path);
    }
    let plugins =
        [("configMap", "configmap"), ("secret", "secret"), ("downwardAPI", "downward-api"), ("projected", "projected")];
    let plugin = plugins.iter().find(|(kind, _)| volume.get(kind).is_some()).map_or("empty-dir", |(_, plugin)| plugin);
    folder.join("volumes").join(format!("kubernetes.io~{plugin}")).join(object::text(volume, "/name"))
}
