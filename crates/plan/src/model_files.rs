//! Model files: converts the storage of a BaseModel into a volume, a mount and `MODEL_PATH`.

use api::ome::ModelStorage;
use serde_json::{Value, json};

use crate::names;

/// Mount path of a PersistentVolumeClaim.
const CLAIM_MOUNT: &str = "/mnt/models";

/// Location of a model in a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelFiles {
    /// Directory, or the Hugging Face name (`org/name`) of a model that the engine downloads.
    pub path: String,
    /// Volume source and mount path; `None` if the engine downloads the model.
    pub volume: Option<(Value, String)>,
}

/// Reads the storage of a model. A `path` is an existing directory on the Node, populated by a model agent or manually. A
/// missing directory is not created, so that a wrong path fails with `FailedMount` instead of an empty directory.
pub(crate) fn from_storage(storage: Option<&ModelStorage>) -> Option<ModelFiles> {
    let storage = storage?;
    let uri = storage.storage_uri.as_deref().unwrap_or_default();
    if let Some(rest) = uri.strip_prefix("pvc://") {
        return Some(from_claim(rest));
    }
    let node_path =
        storage.path.as_deref().or_else(|| uri.strip_prefix("file://").or_else(|| uri.strip_prefix("local://")));
    if let Some(path) = node_path {
        let source = json!({"hostPath": {"path": path, "type": "Directory"}});
        return Some(ModelFiles { path: path.to_owned(), volume: Some((source, path.to_owned())) });
    }
    uri.strip_prefix("hf://").map(|name| ModelFiles { path: name.to_owned(), volume: None })
}

/// Parses `CLAIM/SUB/PATH` of a `pvc://` URI.
fn from_claim(rest: &str) -> ModelFiles {
    let (claim, subpath) = rest.split_once('/').unwrap_or((rest, ""));
    let source = json!({"persistentVolumeClaim": {"claimName": claim, "readOnly": true}});
    let path = if subpath.is_empty() { CLAIM_MOUNT.to_owned() } else { format!("{CLAIM_MOUNT}/{subpath}") };
    ModelFiles { path, volume: Some((source, CLAIM_MOUNT.to_owned())) }
}

/// Value of the Node label of a model agent for a downloaded model.
pub(crate) const READY: &str = "Ready";

/// Returns the Node label key of a model agent for one model; `None` if the name is too long for a label key.
pub(crate) fn model_node_label(namespace: Option<&str>, model: &str) -> Option<String> {
    let name = match namespace {
        Some(namespace) => format!("{namespace}.basemodel.{model}"),
        None => format!("clusterbasemodel.{model}"),
    };
    (name.len() <= names::LABEL_LENGTH).then(|| format!("models.ome.io/{name}"))
}

/// Returns the volume name of a model: its name as a DNS label.
pub(crate) fn volume_name(model: &str) -> String {
    names::truncate(&model.to_ascii_lowercase().replace(['.', '_', '/'], "-"), names::LABEL_LENGTH)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::hugging_face_name("hf://meta-llama/Llama-3.2-3B", None, "meta-llama/Llama-3.2-3B", false)]
    #[case::downloaded("hf://meta-llama/Llama-3.2-3B", Some("/models/llama"), "/models/llama", true)]
    #[case::claim("pvc://weights/llama/3b", None, "/mnt/models/llama/3b", true)]
    #[case::node("file:///data/llama", None, "/data/llama", true)]
    fn reads_storage(#[case] uri: &str, #[case] path: Option<&str>, #[case] expect: &str, #[case] volume: bool) {
        let storage = ModelStorage {
            storage_uri: Some(uri.to_owned()),
            path: path.map(str::to_owned),
            ..ModelStorage::default()
        };
        let files = from_storage(Some(&storage)).unwrap();
        assert_eq!((files.path.as_str(), files.volume.is_some()), (expect, volume));
    }

    #[test]
    fn node_directory_must_exist() {
        let storage = ModelStorage { path: Some("/models/llama".to_owned()), ..ModelStorage::default() };
        let (source, mount) = from_storage(Some(&storage)).unwrap().volume.unwrap();
        assert_eq!(source, json!({"hostPath": {"path": "/models/llama", "type": "Directory"}}));
        assert_eq!(mount, "/models/llama");
    }
}
