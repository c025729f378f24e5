//! Pods of a Pod template.

use serde_json::{Value, json};

/// Returns a Pod with the metadata and spec of a Pod template. The templates of custom resources may contain anything; what is
/// not an object, but should be one, is omitted.
pub(crate) fn new_pod(template: &Value, namespace: &str, name: &str, owner: Value) -> Value {
    let mut metadata = json!({"name": name, "namespace": namespace, "ownerReferences": [owner]});
    let is_valid =
        |field: &str, value: &Value| if field == "finalizers" { value.is_array() } else { value.is_object() };
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.pointer(&format!("/metadata/{field}")).filter(|value| is_valid(field, value)) {
            metadata[field] = value.clone();
        }
    }
    let spec = template.get("spec").filter(|spec| spec.is_object()).cloned().unwrap_or_else(|| json!({}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_and_spec_are_objects() {
        let template = json!({"metadata": {"labels": [1], "annotations": "x", "finalizers": "y"}, "spec": "z"});
        assert_eq!(
            new_pod(&template, "n", "p", json!({})),
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {},
                "metadata": {"name": "p", "namespace": "n", "ownerReferences": [{}]}})
        );
    }
}
