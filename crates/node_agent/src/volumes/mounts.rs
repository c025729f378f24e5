//! The mounts of a container.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

use apimachinery::{expand_variables, object};
use serde_json::Value;

use super::error::VolumeError;
use super::spec::{pod_volumes, volume_path};
use crate::runtime::Mount;

/// Returns the mounts of a container, for a Pod whose claims [`resolve_claims`](super::resolve_claims) has resolved. A
/// missing `subPath` of an `emptyDir` or `hostPath` is created.
pub(crate) fn mounts(
    container: &Value,
    pod: &Value,
    pod_dir: &Path,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, VolumeError> {
    let mut mounts = Vec::new();
    for mount in object::items(container.get("volumeMounts")) {
        let name = object::text(mount, "/name");
        let Some(volume) = pod_volumes(pod).find(|volume| object::text(volume, "/name") == name) else { continue };
        let sub_path = match object::text(mount, "/subPathExpr") {
            "" => object::text(mount, "/subPath").to_owned(),
            expression => expand_variables(expression, variables),
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
