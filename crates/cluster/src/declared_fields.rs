//! Fields that the installed definition of a kind declares. The definition may be older than this program.

use kube::Client;
use serde_json::Value;

use crate::Kind;

/// Reads the schema of `kind` from the OpenAPI document of the API server. `None`: the document does not contain it.
///
/// # Errors
/// The request failed.
pub(crate) async fn read_schema(client: &Client, kind: Kind) -> Result<Option<Value>, kube::Error> {
    let path = format!("/openapi/v3/apis/{}", kind.api_version());
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let document: Value = client.request(request).await?;
    let is_of_kind = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds
            .into_iter()
            .flatten()
            .any(|gvk| gvk["group"] == kind.group && gvk["version"] == kind.version && gvk["kind"] == kind.kind)
    };
    Ok(document["components"]["schemas"].as_object().and_then(|schemas| schemas.values().find(is_of_kind)).cloned())
}

/// Removes the fields of `value` that `schema` does not declare, and returns their paths, which start with `path`.
pub(crate) fn remove_undeclared(value: &mut Value, schema: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Array(items) => {
            let items = items.iter_mut().enumerate();
            items
                .flat_map(|(index, item)| remove_undeclared(item, &schema["items"], &format!("{path}[{index}]")))
                .collect()
        }
        Value::Object(fields) => {
            let (properties, additional) = (&schema["properties"], &schema["additionalProperties"]);
            let declares_fields = properties.is_object() || additional.is_object();
            if !declares_fields || schema["x-kubernetes-preserve-unknown-fields"] == true {
                return Vec::new();
            }
            let mut removed = Vec::new();
            fields.retain(|name, field| {
                let path = format!("{path}.{name}");
                let declaration = properties.get(name).or_else(|| Some(additional).filter(|schema| schema.is_object()));
                match declaration {
                    Some(schema) => removed.extend(remove_undeclared(field, schema, &path)),
                    None => removed.push(path),
                }
                declaration.is_some()
            });
            removed
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::declared(json!({"url": "x"}), json!({"url": "x"}), &[])]
    #[case::undeclared(json!({"url": "x", "new": {"a": 1}}), json!({"url": "x"}), &["status.new"])]
    #[case::in_a_map(json!({"components": {"engine": {"nodes": 2, "replicas": 1}}}),
        json!({"components": {"engine": {"replicas": 1}}}), &["status.components.engine.nodes"])]
    #[case::in_a_list(json!({"conditions": [{"type": "Ready"}, {"type": "Active", "new": 1}]}),
        json!({"conditions": [{"type": "Ready"}, {"type": "Active"}]}), &["status.conditions[1].new"])]
    #[case::free_form(json!({"decision": {"any": {"thing": 1}}}), json!({"decision": {"any": {"thing": 1}}}), &[])]
    #[case::object_without_fields(json!({"labels": {"a": 1}}), json!({"labels": {"a": 1}}), &[])]
    fn removes_undeclared_fields(#[case] mut status: Value, #[case] declared: Value, #[case] removed: &[&str]) {
        let schema = json!({"type": "object", "properties": {
            "url": {"type": "string"},
            "labels": {"type": "object"},
            "decision": {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": true},
            "components": {"type": "object", "additionalProperties":
                {"type": "object", "properties": {"replicas": {"type": "integer"}}}},
            "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}},
        }});
        assert_eq!(remove_undeclared(&mut status, &schema, "status"), removed);
        assert_eq!(status, declared);
    }
}
