//! Translates UUIDs of GPUs to the indexes in `CUDA_VISIBLE_DEVICES`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tokio::sync::Mutex;

use crate::accelerators::list_accelerators;

use super::error::LauncherError;

/// Maximum size of a file with indexes in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Where the launcher finds the GPUs of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuSource {
    /// `nvidia-smi`, which lists all GPUs of the node if the container sees all.
    NvidiaSmi,
    /// These UUIDs, whose position is the index. For tests.
    Mock(Vec<String>),
    /// A JSON object from UUID to index, such as the entry of the node in a mounted ConfigMap `gpu-map`.
    File(PathBuf),
}

/// The GPUs of the node.
#[derive(Debug)]
pub(super) struct Gpus {
    source: GpuSource,
    /// Indexes by UUID. They are read again for a UUID that is missing.
    indexes: Mutex<BTreeMap<String, u32>>,
}

// === impl Gpus ===

impl Gpus {
    pub(super) fn new(source: GpuSource) -> Gpus {
        Gpus { source, indexes: Mutex::default() }
    }

    /// Returns the indexes of the GPUs, in the order of `uuids`.
    ///
    /// # Errors
    /// `UnknownGpu` if the node does not have one of them, `GpusUnavailable` if the GPUs cannot be listed.
    pub(super) async fn indexes(&self, uuids: &[String]) -> Result<Vec<u32>, LauncherError> {
        let mut known = self.indexes.lock().await;
        if uuids.iter().any(|uuid| !known.contains_key(uuid)) {
            *known = self.read().await.map_err(LauncherError::GpusUnavailable)?;
        }
        uuids.iter().map(|uuid| known.get(uuid).copied().ok_or_else(|| unknown_gpu(uuid, &known))).collect()
    }

    async fn read(&self) -> Result<BTreeMap<String, u32>, String> {
        match &self.source {
            GpuSource::Mock(uuids) => Ok(uuids.iter().cloned().zip(0..).collect()),
            GpuSource::File(path) => {
                let read = async {
                    let size = tokio::fs::metadata(path).await.map_err(|error| error.to_string())?.len();
                    if size > MAX_FILE_BYTES {
                        return Err(format!("larger than {MAX_FILE_BYTES} bytes"));
                    }
                    let text = tokio::fs::read(path).await.map_err(|error| error.to_string())?;
                    serde_json::from_slice(&text)
                        .map_err(|error| format!("not an object from UUIDs to indexes: {error}"))
                };
                read.await.map_err(|error| format!("{}: {error}", path.display()))
            }
            GpuSource::NvidiaSmi => {
                let listed = list_accelerators().await?.into_iter();
                let indexes: BTreeMap<String, u32> = listed.filter_map(|gpu| Some((gpu.uuid, gpu.index?))).collect();
                match indexes.is_empty() {
                    true => Err("nvidia-smi is required for their indexes".to_owned()),
                    false => Ok(indexes),
                }
            }
        }
    }
}

fn unknown_gpu(uuid: &str, known: &BTreeMap<String, u32>) -> LauncherError {
    let list: Vec<&str> = known.keys().map(String::as_str).collect();
    let known = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    LauncherError::UnknownGpu { uuid: uuid.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuids(list: &[&str]) -> Vec<String> {
        list.iter().map(|uuid| (*uuid).to_owned()).collect()
    }

    #[tokio::test]
    async fn unknown_gpus_are_named() {
        let gpus = Gpus::new(GpuSource::Mock(uuids(&["GPU-a", "GPU-b"])));
        assert_eq!(gpus.indexes(&uuids(&["GPU-b", "GPU-a"])).await, Ok(vec![1, 0]));
        let error = gpus.indexes(&uuids(&["GPU-c"])).await.unwrap_err();
        assert_eq!(error.to_string(), "gpu_uuids: this node has no GPU GPU-c; it has GPU-a, GPU-b");
    }

    #[tokio::test]
    async fn file_is_read_again_for_a_new_gpu() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node");
        let gpus = Gpus::new(GpuSource::File(path.clone()));
        let error = gpus.indexes(&uuids(&["GPU-a"])).await.unwrap_err();
        assert!(matches!(&error, LauncherError::GpusUnavailable(cause) if cause.starts_with(path.to_str().unwrap())));
        std::fs::write(&path, r#"{"GPU-a": 3}"#).unwrap();
        assert_eq!(gpus.indexes(&uuids(&["GPU-a"])).await, Ok(vec![3]));
        std::fs::write(&path, r#"{"GPU-a": 3, "GPU-b": 5}"#).unwrap();
        assert_eq!(gpus.indexes(&uuids(&["GPU-b"])).await, Ok(vec![5]));
        assert_eq!(gpus.indexes(&[]).await, Ok(vec![]));
    }
}
