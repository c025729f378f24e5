//! Scripts of requests: one YAML file per topic under `tests/differential/scripts`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// One request, or one watch. Exactly one of the methods is given.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// What the step shows; unique in its script.
    pub(super) does: String,
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
    /// `{name}` in strings stands for what an earlier step saved; `{ns}` for the script's namespace.
    pub(super) body: Option<Value>,
    /// The body as it is sent, where JSON cannot say it (duplicate keys).
    pub(super) text: Option<String>,
    #[serde(default, rename = "as")]
    pub(super) kind: Kind,
    #[serde(default)]
    pub(super) accept: Accept,
    /// A watch: how many events to wait for. Without it a watch is read to its end.
    pub(super) events: Option<usize>,
    /// A watch: the name of the object whose event is the last to be read.
    pub(super) last: Option<String>,
    /// Ask again until this holds: what a real cluster does a moment later.
    pub(super) until: Option<Until>,
    /// Name → JSON pointer into the answer.
    #[serde(default)]
    pub(super) save: BTreeMap<String, String>,
    /// JSON pointer → why the answers may differ there. Each reason stands in docs/embedded.md.
    #[serde(default)]
    pub(super) except: BTreeMap<String, String>,
}

/// Content types by the names of their patches.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
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
    /// What a JSON pointer shows, and the value it has then.
    Is(String, Value),
}

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential")
}

/// The steps of one topic.
pub(super) fn read(topic: &str) -> Vec<Step> {
    let path = folder().join("scripts").join(format!("{topic}.yaml"));
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
        let mut given = methods.into_iter().filter_map(|(method, path)| Some((method, path.as_deref()?)));
        given.next().unwrap_or_else(|| panic!("{}: no method", self.does))
    }

    pub(super) fn is_watch(&self) -> bool {
        self.get.as_ref().is_some_and(|path| path.contains("watch=true") || path.contains("watch=1"))
    }
}

// === impl Kind ===

impl Kind {
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
    pub(super) fn holds(&self, code: u16, body: &Value) -> bool {
        match self {
            Self::Code(wanted) => code == *wanted,
            Self::Absent(pointer) => body.pointer(pointer).is_none(),
            Self::Present(pointer) => body.pointer(pointer).is_some(),
            Self::Is(pointer, value) => body.pointer(pointer) == Some(value),
        }
    }
}
