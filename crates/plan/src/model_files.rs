//! Where an engine finds its model: BaseModel storage becomes a volume, a mount and `MODEL_PATH`.

use api::ome::ModelStorage;
use serde_json::{Value, json};

use crate::names;

/// Where a claim's files are mounted.
const CLAIM_MOUNT: &str = "/mnt/models";

/// How one model reaches a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFiles {
    /// Directory, or a name that engines resolve themselves (`org/name` of Hugging Face).
    pub path: String,
    /// Volume source and mount path; None where the engine fetches the model.
    pub volume: Option<(Value, String)>,
}

/// Reads a model's storage. A `path` is a directory on the node that a model agent or a person filled: where it is not,
/// nothing is made, so that a wrong path is told as `FailedMount` rather than found by an engine as an empty folder.
pub fn of(storage: Option<&ModelStorage>) -> Option<ModelFiles> {
    let storage = storage?;
    let uri = storage.storage_uri.as_deref().unwrap_or_default();
    if let Some(rest) = uri.strip_prefix("pvc://") {
        return Some(claim(rest));
    }
    let on_node =
        storage.path.as_deref().or_else(|| uri.strip_prefix("file://").or_else(|| uri.strip_prefix("local://")));
    if let Some(path) = on_node {
        let source = json!({"hostPath": {"path": path, "type": "Directory"}});
        return Some(ModelFiles { path: path.to_owned(), volume: Some((source, path.to_owned())) });
    }
    uri.strip_prefix("hf://").map(|name| ModelFiles { path: name.to_owned(), volume: None })
}

/// `CLAIM/SUB/PATH`
fn claim(rest: &str) -> ModelFiles {
    let (claim, below) = rest.split_once('/').unwrap_or((rest, ""));
    let source = json!({"persistentVolumeClaim": {"claimName": claim, "readOnly": true}});
    let path = if below.is_empty() { CLAIM_MOUNT.to_owned() } else { format!("{CLAIM_MOUNT}/{below}") };
    ModelFiles { path, volume: Some((source, CLAIM_MOUNT.to_owned())) }
}

/// What a model agent says of a node that holds the files of a model.
pub(crate) const READY: &str = "Ready";

/// The node label of a model agent for one model; None for a name too long to stand in it as it is.
pub(crate) fn agent_label(namespace: Option<&str>, model: &str) -> Option<String> {
    let name = match namespace {
        Some(namespace) => format!("{namespace}.basemodel.{model}"),
        None => format!("clusterbasemodel.{model}"),
    };
    (name.len() <= names::LABEL_LENGTH).then(|| format!("models.ome.io/{name}"))
}

/// Name of the volume of a model: a DNS label made of the model's name.
pub fn volume_name(model: &str) -> String {
    names::fit(&model.to_ascii_lowercase().replace(['.', '_', '/'], "-"), names::LABEL_LENGTH)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::fetched("hf://meta-llama/Llama-3.2-3B", None, "meta-llama/Llama-3.2-3B", false)]
    #[case::downloaded("hf://meta-llama/Llama-3.2-3B", Some("/models/llama"), "/models/llama", true)]
    #[case::claim("pvc://weights/llama/3b", None, "/mnt/models/llama/3b", true)]
    #[case::node("file:///data/llama", None, "/data/llama", true)]
    fn storages(#[case] uri: &str, #[case] path: Option<&str>, #[case] expect: &str, #[case] volume: bool) {
        let storage = ModelStorage {
            storage_uri: Some(uri.to_owned()),
            path: path.map(str::to_owned),
            ..ModelStorage::default()
        };
        let files = of(Some(&storage)).unwrap();
        assert_eq!((files.path.as_str(), files.volume.is_some()), (expect, volume));
    }

    #[test]
    fn a_folder_of_the_node_has_to_be_there() {
        let storage = ModelStorage { path: Some("/models/llama".to_owned()), ..ModelStorage::default() };
        let (source, mount) = of(Some(&storage)).unwrap().volume.unwrap();
        assert_eq!(source, json!({"hostPath": {"path": "/models/llama", "type": "Directory"}}));
        assert_eq!(mount, "/models/llama");
    }
}
