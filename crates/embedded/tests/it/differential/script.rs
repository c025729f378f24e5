//! Scripts of requests: one YAML file per topic under `tests/differential/scripts`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// Request or watch. Exactly one method is set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// Purpose of the step; unique in its script.
    #[serde(rename = "does")]
    pub(super) description: String,
    #[serde(rename = "GET")]
    pub(super) get: Option<String>,
    #[serde(rename = "POST")]
    pub(super) post: Option<String>,
    #[serde(rename = "PUT")]
    pub(super) put: Option<String>,
    #[serde(rename = "PATCH")]
    pub(super) patch: Option<String>,
    #[serde(rename = "DELETE")]
    pub(super) delete: Option<String>,
    /// Request body. `{name}` in strings is replaced by a value saved by an earlier step, `{ns}` by the namespace.
    pub(super) body: Option<Value>,
    /// Verbatim body, for documents that a JSON value cannot represent, such as duplicate keys.
    pub(super) text: Option<String>,
    #[serde(default, rename = "as")]
    pub(super) kind: BodyKind,
    #[serde(default)]
    pub(super) accept: Accept,
    /// Number of events to wait for. If absent, a watch is read to its end.
    pub(super) events: Option<usize>,
    /// Name of the object whose event ends a watch.
    pub(super) last: Option<String>,
    /// The request is retried until this condition holds, because a real cluster reacts asynchronously.
    pub(super) until: Option<Until>,
    /// Values to save: name and JSON pointer into the response.
    #[serde(default)]
    pub(super) save: BTreeMap<String, String>,
    /// JSON pointers where responses may differ, with reasons that docs/embedded.md documents.
    #[serde(default)]
    pub(super) except: BTreeMap<String, String>,
}

/// Content type of a request, named after the kind of patch.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BodyKind {
    #[default]
    Object,
    Json,
    Merge,
    Strategic,
    Apply,
    Yaml,
    Text,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Accept {
    #[default]
    Object,
    Table,
    Metadata,
    MetadataList,
    Discovery,
    Protobuf,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Until {
    Code(u16),
    Absent(String),
    Present(String),
    /// The value at the JSON pointer equals the given one.
    Is(String, Value),
}

pub(super) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential")
}

/// Reads the steps of a topic.
pub(super) fn read(topic: &str) -> Vec<Step> {
    let path = directory().join("scripts").join(format!("{topic}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

// === impl Step ===

impl Step {
    pub(super) fn request(&self) -> (http::Method, &str) {
        let methods = [
            (http::Method::GET, &self.get),
            (http::Method::POST, &self.post),
            (http::Method::PUT, &self.put),
            (http::Method::PATCH, &self.patch),
            (http::Method::DELETE, &self.delete),
        ];
        let mut requests = methods.into_iter().filter_map(|(method, path)| Some((method, path.as_deref()?)));
        requests.next().unwrap_or_else(|| panic!("{}: no method", self.description))
    }

    pub(super) fn is_watch(&self) -> bool {
        self.get.as_ref().is_some_and(|path| path.contains("watch=true") || path.contains("watch=1"))
    }
}

// === impl BodyKind ===

impl BodyKind {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Object => "application/json",
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
            Self::Yaml => "application/yaml",
            Self::Text => "text/csv",
        }
    }
}

// === impl Accept ===

impl Accept {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Object => "application/json",
            Self::Table => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
            Self::MetadataList => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
            Self::Discovery => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            Self::Protobuf => "text/csv",
        }
    }
}

// === impl Until ===

impl Until {
    pub(super) fn is_satisfied(&self, code: u16, body: &Value) -> bool {
        match self {
            Self::Code(expected) => code == *expected,
            Self::Absent(pointer) => body.pointer(pointer).is_none(),
            Self::Present(pointer) => body.pointer(pointer).is_some(),
            Self::Is(pointer, value) => body.pointer(pointer) == Some(value),
        }
    }
}
