//! The base set: accelerator classes defined in a ConfigMap (seed 000).

use api::{Document, ManifestError, parse_each_document};
use serde_json::{Value, json};

use super::{Provenance, set_provenance};

/// Key of the ConfigMap with the documents.
const DATA_KEY: &str = "accelerator-classes.yaml";
/// Metadata fields set by the API server, which are removed from documents.
const SERVER_FIELDS: [&str; 5] = ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];

/// The classes of a base set, and its invalid documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BaseSet {
    /// Valid classes with their provenance, in the order of the documents.
    pub classes: Vec<Value>,
    /// One error per invalid document, or the error of a missing key.
    pub errors: Vec<BaseSetError>,
}

/// Why a base set, or a part of it, cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BaseSetError {
    /// The ConfigMap lacks the key of the documents. Contains the keys that it has.
    #[error("key `{DATA_KEY}` is missing; the ConfigMap has {}", describe_keys(.0))]
    MissingKey(Vec<String>),
    /// A document is invalid.
    #[error(transparent)]
    Document(#[from] ManifestError),
}

// === impl BaseSet ===

impl BaseSet {
    /// Reads the documents of `config_map`. Ignores documents that are empty or contain only comments; a missing key is an
    /// error, since it may be misspelled.
    #[must_use]
    pub fn from_config_map(config_map: &Value) -> Self {
        let mut set = Self::default();
        let provenance = config_map_provenance(config_map);
        let Some(text) = config_map["data"][DATA_KEY].as_str() else {
            set.errors.push(missing_key(config_map));
            return set;
        };
        for documents in parse_each_document(DATA_KEY, text) {
            let classes = documents.and_then(|documents| {
                documents.into_iter().map(|document| parse_class(document, &provenance)).collect()
            });
            match classes {
                Ok(classes) => set.classes.extend::<Vec<Value>>(classes),
                Err(error) => set.errors.push(error.into()),
            }
        }
        set
    }
}

// === impl BaseSetError ===

impl BaseSetError {
    /// Returns how to fix the error, if known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::MissingKey(_) => {
                Some(format!("rename the key to `{DATA_KEY}`, or delete the ConfigMap to remove its classes"))
            }
            Self::Document(error) => error.hint.clone(),
        }
    }
}

fn describe_keys(keys: &[String]) -> String {
    let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    if quoted.is_empty() { "no keys".to_owned() } else { quoted.join(", ") }
}

/// Returns the provenance of classes from this ConfigMap.
fn config_map_provenance(config_map: &Value) -> Provenance {
    let text = |field: &str| config_map["metadata"][field].as_str().unwrap_or_default().to_owned();
    Provenance::ConfigMap(format!("{}/{}", text("namespace"), text("name")))
}

/// Returns the error of a ConfigMap without [`DATA_KEY`].
fn missing_key(config_map: &Value) -> BaseSetError {
    let keys = |field: &str| config_map[field].as_object().into_iter().flatten().map(|(key, _)| key.clone());
    BaseSetError::MissingKey(keys("data").chain(keys("binaryData")).collect())
}

/// Validates a document and returns the class with its provenance.
fn parse_class(document: Document, provenance: &Provenance) -> Result<Value, ManifestError> {
    let document_error = |path: Option<String>, cause: String, hint: Option<&str>| ManifestError {
        path,
        cause,
        hint: hint.map(str::to_owned),
        ..document.manifest_error()
    };
    if !document.is_kind(api::ome::API_VERSION, "AcceleratorClass") {
        let cause = format!("not an AcceleratorClass of {}", api::ome::API_VERSION);
        return Err(document_error(None, cause, Some("apply objects of other kinds separately")));
    }
    if document.name().is_empty() {
        return Err(document_error(Some("metadata.name".to_owned()), "required".to_owned(), None));
    }
    let class: api::ome::AcceleratorClass = document.parse()?;
    crate::Class::from_api(&class, None).map_err(|error| document_error(Some(error.path), error.cause, None))?;
    let mut class = document.value;
    if let Some(object) = class.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = class["metadata"].as_object_mut() {
        metadata.retain(|field, _| !SERVER_FIELDS.contains(&field.as_str()));
    }
    if !class["spec"].is_object() {
        class["spec"] = json!({});
    }
    set_provenance(&mut class, provenance);
    Ok(class)
}

#[cfg(test)]
#[path = "base_set_tests.rs"]
mod tests;
