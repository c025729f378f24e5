//! The base set: classes that a platform team writes as documents of one ConfigMap (seed 000).

use api::{Document, ManifestError, parse_each_document};
use serde_json::{Value, json};

use super::{Provenance, set_provenance};

/// Key of the ConfigMap that holds the documents.
const KEY: &str = "accelerator-classes.yaml";
/// What `kubectl apply` and a first write leave behind means nothing in a template.
const NOT_WRITTEN: [&str; 5] = ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];

/// The classes of a base set, and the documents that are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BaseSet {
    /// Marked with their maker, in the order of the documents.
    pub classes: Vec<Value>,
    pub errors: Vec<ManifestError>,
}

// === impl BaseSet ===

impl BaseSet {
    /// Reads the documents of `config_map`. Empty and comment-only ones are none.
    #[must_use]
    pub fn from_config_map(config_map: &Value) -> Self {
        let mut set = Self::default();
        let maker = maker_of(config_map);
        for read in parse_each_document(KEY, config_map["data"][KEY].as_str().unwrap_or_default()) {
            let classes = read.and_then(|documents| documents.into_iter().map(|one| class(one, &maker)).collect());
            match classes {
                Ok(classes) => set.classes.extend::<Vec<Value>>(classes),
                Err(fault) => set.errors.push(fault),
            }
        }
        set
    }
}

/// Who the classes of this ConfigMap are made from.
fn maker_of(config_map: &Value) -> Provenance {
    let text = |field: &str| config_map["metadata"][field].as_str().unwrap_or_default().to_owned();
    Provenance::ConfigMap(format!("{}/{}", text("namespace"), text("name")))
}

fn class(document: Document, maker: &Provenance) -> Result<Value, ManifestError> {
    let fault = |path: Option<String>, cause: String, hint: Option<&str>| ManifestError {
        path,
        cause,
        hint: hint.map(str::to_owned),
        ..document.manifest_error()
    };
    if !document.is_kind(api::ome::API_VERSION, "AcceleratorClass") {
        let cause = format!("not an AcceleratorClass of {}", api::ome::API_VERSION);
        return Err(fault(None, cause, Some("apply objects of other kinds by themselves")));
    }
    if document.name().is_empty() {
        return Err(fault(Some("metadata.name".to_owned()), "required".to_owned(), None));
    }
    let typed: api::ome::AcceleratorClass = document.parse()?;
    crate::Class::from_api(&typed, None).map_err(|error| fault(Some(error.path), error.cause, None))?;
    let mut class = document.value;
    if let Some(object) = class.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = class["metadata"].as_object_mut() {
        metadata.retain(|field, _| !NOT_WRITTEN.contains(&field.as_str()));
    }
    if !class["spec"].is_object() {
        class["spec"] = json!({});
    }
    set_provenance(&mut class, maker);
    Ok(class)
}

#[cfg(test)]
#[path = "base_set_tests.rs"]
mod tests;
