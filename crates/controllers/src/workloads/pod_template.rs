//! Pods of a Pod template.

use serde_json::{Value, json};

/// Returns a Pod with the metadata and spec of a Pod template.
pub(crate) fn new_pod(template: &Value, namespace: &str, name: &str, owner: Value) -> Value {
    let mut metadata = json!({"name": name, "namespace": namespace, "ownerReferences": [owner]});
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.pointer(&format!("/metadata/{field}")) {
            metadata[field] = value.clone();
        }
    }
    let spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}
