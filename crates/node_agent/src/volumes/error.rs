//! Errors of volumes.

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
