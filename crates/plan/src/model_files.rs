//! Model files: converts the storage of a BaseModel into a volume, a mount and `MODEL_PATH`.

use api::ome::ModelStorage;
use serde_json::{Value, json};

use crate::names;

/// Mount path of the PersistentVolumeClaim of a model.
pub(crate) const CLAIM_MOUNT: &str = "/mnt/models";

/// Location of a model in a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelFiles {
    /// Directory, or the Hugging Face name (`org/name`) of a model that the engine downloads.
    pub path: String,
    /// Branch, tag or commit of a model that the engine downloads; `None` for the default branch.
    pub revision: Option<String>,
    /// Volume source and mount path; `None` if the engine downloads the model.
    pub volume: Option<(Value, String)>,
}

/// Why the files of a model have no location in a Pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StorageError {
    /// No storage is stated.
    #[error("the model states no storage")]
    Unset,
    /// Neither the engines nor ostler download from this storage.
    #[error("ostler does not download from {0}")]
    UnsupportedScheme(String),
    /// The claim is in another namespace, and Pods can mount only claims of their own.
    #[error("Pods in namespace {namespace} cannot mount the claim of {uri}")]
    OtherNamespace { uri: String, namespace: String },
    /// The URI has no name of a claim, model or directory.
    #[error("{0} is incomplete")]
    Incomplete(String),
}

/// Reads the storage of a model for Pods in `namespace`. A `path` is an existing directory on the Node, populated by a model
/// agent or manually. A missing directory is not created, so that a wrong path fails with `FailedMount` instead of an empty
/// directory. A claim is mounted at `claim_mount`.
///
/// # Errors
/// The files have no location in a Pod.
pub(crate) fn from_storage(
    storage: Option<&ModelStorage>,
    namespace: &str,
    claim_mount: &str,
) -> Result<ModelFiles, StorageError> {
    let is_set = |text: &&str| !text.is_empty();
    let uri = storage.and_then(|storage| storage.storage_uri.as_deref()).filter(is_set);
    let scheme_and_rest = uri.map(|uri| uri.split_once("://").unwrap_or(("", uri)));
    if let (Some(uri), Some(("pvc", rest))) = (uri, scheme_and_rest) {
        return from_claim(uri, rest, namespace, claim_mount);
    }
    let directory = match scheme_and_rest {
        Some(("file" | "local", path)) => Some(path),
        _ => None,
    };
    if let Some(path) = storage.and_then(|storage| storage.path.as_deref()).or(directory).filter(is_set) {
        let source = json!({"hostPath": {"path": path, "type": "Directory"}});
        return Ok(ModelFiles { path: path.to_owned(), revision: None, volume: Some((source, path.to_owned())) });
    }
    let uri = uri.ok_or(StorageError::Unset)?;
    match scheme_and_rest {
        Some(("hf", name)) if !name.trim_matches('/').is_empty() && !name.starts_with('@') => {
            Ok(from_hugging_face(name))
        }
        Some(("hf" | "file" | "local", _)) => Err(StorageError::Incomplete(uri.to_owned())),
        _ => Err(StorageError::UnsupportedScheme(uri.to_owned())),
    }
}

/// Parses `ORG/NAME[@REVISION]` of an `hf://` URI, the format of upstream OME.
fn from_hugging_face(name: &str) -> ModelFiles {
    let (path, revision) = match name.split_once('@') {
        Some((path, revision)) => (path, Some(revision.to_owned()).filter(|revision| !revision.is_empty())),
        None => (name, None),
    };
    ModelFiles { path: path.trim_end_matches('/').to_owned(), revision, volume: None }
}

/// Parses `[NAMESPACE:]CLAIM[/SUB/PATH]` of a `pvc://` URI, the format of upstream OME.
fn from_claim(uri: &str, rest: &str, namespace: &str, mount: &str) -> Result<ModelFiles, StorageError> {
    let (claim, subpath) = rest.split_once('/').unwrap_or((rest, ""));
    let (claim_namespace, claim) = claim.split_once(':').unwrap_or((namespace, claim));
    if claim.is_empty() {
        return Err(StorageError::Incomplete(uri.to_owned()));
    }
    if claim_namespace != namespace {
        return Err(StorageError::OtherNamespace { uri: uri.to_owned(), namespace: namespace.to_owned() });
    }
    let source = json!({"persistentVolumeClaim": {"claimName": claim, "readOnly": true}});
    let path = if subpath.is_empty() { mount.to_owned() } else { format!("{mount}/{subpath}") };
    Ok(ModelFiles { path, revision: None, volume: Some((source, mount.to_owned())) })
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

    fn storage(uri: &str, path: Option<&str>) -> ModelStorage {
        ModelStorage { storage_uri: Some(uri.to_owned()), path: path.map(str::to_owned), ..ModelStorage::default() }
    }

    #[rstest]
    #[case::hugging_face_name("hf://meta-llama/Llama-3.2-3B", None, "meta-llama/Llama-3.2-3B", false)]
    #[case::downloaded("hf://meta-llama/Llama-3.2-3B", Some("/models/llama"), "/models/llama", true)]
    #[case::claim("pvc://weights/llama/3b", None, "/mnt/models/llama/3b", true)]
    #[case::claim_in_the_same_namespace("pvc://team-a:weights/llama", None, "/mnt/models/llama", true)]
    #[case::node("file:///data/llama", None, "/data/llama", true)]
    #[case::downloaded_from_a_bucket("s3://bucket/llama", Some("/models/llama"), "/models/llama", true)]
    fn reads_storage(#[case] uri: &str, #[case] path: Option<&str>, #[case] expect: &str, #[case] volume: bool) {
        let files = from_storage(Some(&storage(uri, path)), "team-a", CLAIM_MOUNT).unwrap();
        assert_eq!((files.path.as_str(), files.volume.is_some()), (expect, volume));
    }

    #[test]
    fn reads_the_revision_of_a_hugging_face_model() {
        let files =
            from_storage(Some(&storage("hf://meta-llama/Llama-3.2-3B@v2", None)), "team-a", CLAIM_MOUNT).unwrap();
        assert_eq!((files.path.as_str(), files.revision.as_deref()), ("meta-llama/Llama-3.2-3B", Some("v2")));
    }

    #[rstest]
    #[case::bucket("s3://bucket/llama", "ostler does not download from s3://bucket/llama")]
    #[case::oci("oci://n/ns/b/bucket/o/llama", "ostler does not download from oci://n/ns/b/bucket/o/llama")]
    #[case::no_scheme("meta-llama/Llama-3.2-3B", "ostler does not download from meta-llama/Llama-3.2-3B")]
    #[case::other_namespace(
        "pvc://other:weights/x",
        "Pods in namespace team-a cannot mount the claim of pvc://other:weights/x"
    )]
    #[case::no_claim("pvc:///x", "pvc:///x is incomplete")]
    #[case::no_name("hf://", "hf:// is incomplete")]
    #[case::empty("", "the model states no storage")]
    fn rejects_storage(#[case] uri: &str, #[case] message: &str) {
        assert_eq!(from_storage(Some(&storage(uri, None)), "team-a", CLAIM_MOUNT).unwrap_err().to_string(), message);
    }

    #[test]
    fn node_directory_must_exist() {
        let storage = ModelStorage { path: Some("/models/llama".to_owned()), ..ModelStorage::default() };
        let (source, mount) = from_storage(Some(&storage), "team-a", CLAIM_MOUNT).unwrap().volume.unwrap();
        assert_eq!(source, json!({"hostPath": {"path": "/models/llama", "type": "Directory"}}));
        assert_eq!(mount, "/models/llama");
    }
}
