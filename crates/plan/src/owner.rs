//! The service that owns the rendered objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::labels;

/// The service that owns the rendered objects.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Owner {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// `None` in offline plans, before the service exists in a cluster.
    pub uid: Option<String>,
    /// Set on objects but never in Pod templates, where it would restart Pods on every edit.
    pub generation: Option<i64>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Owner {
    /// Reads apiVersion, kind and metadata of a service object; the default namespace is `default`.
    pub(crate) fn from_object(service: &Value) -> Self {
        let text = |pointer: &str| service.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            api_version: text("/apiVersion").unwrap_or_default(),
            kind: text("/kind").unwrap_or_default(),
            namespace: text("/metadata/namespace").filter(|n| !n.is_empty()).unwrap_or_else(|| "default".to_owned()),
            name: text("/metadata/name").unwrap_or_default(),
            uid: text("/metadata/uid").filter(|uid| !uid.is_empty()),
            generation: service.pointer("/metadata/generation").and_then(Value::as_i64),
            labels: string_map(service.pointer("/metadata/labels")),
            annotations: string_map(service.pointer("/metadata/annotations")),
        }
    }

    /// Returns the metadata of an object owned by this service.
    pub(crate) fn metadata(&self, name: &str, labels: &BTreeMap<String, String>) -> Value {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), json!(name));
        metadata.insert("namespace".to_owned(), json!(self.namespace));
        metadata.insert("labels".to_owned(), json!(labels));
        if let Some(uid) = &self.uid {
            let reference = json!({
                "apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            });
            metadata.insert("ownerReferences".to_owned(), json!([reference]));
        }
        Value::Object(metadata)
    }

    /// Returns a reference to the service, once it exists in a cluster.
    pub(crate) fn reference(&self) -> Option<Value> {
        let uid = self.uid.as_ref()?;
        Some(json!({"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": uid}))
    }

    /// Returns the Kueue queue label, which the workloads of the service inherit.
    pub(crate) fn queue_label(&self) -> Option<(String, String)> {
        let queue = self.labels.get(labels::KUEUE_QUEUE)?;
        Some((labels::KUEUE_QUEUE.to_owned(), queue.clone()))
    }
}

/// Returns the string values of a JSON map.
pub(crate) fn string_map(map: Option<&Value>) -> BTreeMap<String, String> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
