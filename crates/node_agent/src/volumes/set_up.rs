//! Creates and updates the volumes of a Pod.

use std::path::Path;

use apimachinery::object;
use serde_json::Value;

use super::atomic_writer;
use super::claims::resolve_claims;
use super::content::{self, VolumeContent};
use super::error::VolumeError;
use super::host_path;
use super::spec::{pod_volumes, volume_path};
use crate::environment::ObjectSource;
use crate::private_directory::create_private_dir;

/// Checks whether all objects exist that the volumes of the Pod refer to, without writing files.
pub(crate) fn check(pod: &Value, sources: &dyn ObjectSource) -> Result<(), VolumeError> {
    for volume in pod_volumes(pod).filter(|volume| volume.get("persistentVolumeClaim").is_none()) {
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
    for volume in pod_volumes(pod) {
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
