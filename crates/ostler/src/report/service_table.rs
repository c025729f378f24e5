//! The table of services of `ostler up`.

use cluster::find_condition;
use serde_json::Value;

use super::table::table;

/// A row of the table, from the status of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// API version, namespace and name, which identify the service.
    pub key: String,
    pub name: String,
    pub model: String,
    pub runtime: String,
    pub accelerator: String,
    pub ready: bool,
    /// Ready and desired replicas; `–` until the operator has created workloads.
    pub replicas: String,
    /// Reason of the `Ready` condition.
    pub reason: String,
    /// Message of the `Ready` condition if its status is not `True`.
    pub message: String,
}

/// Returns the row of an InferenceService of either group.
pub(crate) fn row(service: &Value) -> Row {
    let text = |pointer: &str| service.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let ready = find_condition(&service["status"]["conditions"], "Ready");
    let is_ready = ready.is_some_and(|condition| condition["status"] == "True");
    let key = ["/apiVersion", "/metadata/namespace", "/metadata/name"].map(|pointer| text(pointer).unwrap_or_default());
    Row {
        key: key.join("/"),
        name: text("/metadata/name").unwrap_or_default(),
        model: text("/spec/model/name").unwrap_or_else(|| "(roles)".to_owned()),
        runtime: text("/status/decision/runtime/name").unwrap_or_else(|| roles(service)),
        accelerator: text("/status/components/engine/selectedAccelerator/acceleratorClass")
            .unwrap_or_else(|| "–".to_owned()),
        ready: is_ready,
        replicas: replicas(&service["status"]["components"]),
        reason: ready.and_then(|ready| ready["reason"].as_str()).unwrap_or_default().to_owned(),
        message: match ready {
            Some(condition) if !is_ready => condition["message"].as_str().unwrap_or_default().to_owned(),
            Some(_) => String::new(),
            None => "Waiting for the operator to observe the service".to_owned(),
        },
    }
}

/// Formats ready and desired replicas of all components or roles: `1/1`. Roles report the desired number in
/// `desiredReplicas`.
fn replicas(components: &Value) -> String {
    let components = components.as_object().into_iter().flatten().map(|(_, component)| component);
    let (mut ready, mut desired) = (0_i64, 0_i64);
    for component in components {
        let component_desired = component["replicas"].as_i64().or_else(|| component["desiredReplicas"].as_i64());
        ready = ready.saturating_add(component["readyReplicas"].as_i64().unwrap_or(0));
        desired = desired.saturating_add(component_desired.unwrap_or(0));
    }
    if desired == 0 { "–".to_owned() } else { format!("{ready}/{desired}") }
}

/// Formats the roles of a role-based service: `prefill×2 decode×1`.
fn roles(service: &Value) -> String {
    let roles = service["spec"]["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
    let role =
        |role: &Value| format!("{}×{}", role["name"].as_str().unwrap_or("?"), role["replicas"].as_u64().unwrap_or(1));
    roles.iter().map(role).collect::<Vec<_>>().join(" ")
}

/// Renders the table of services.
pub(crate) fn render(rows: &[Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.name.clone(),
                row.model.clone(),
                row.runtime.clone(),
                row.accelerator.clone(),
                row.replicas.clone(),
                row.message.clone(),
            ]
        })
        .collect();
    table(&["NAME", "MODEL", "RUNTIME", "ACCELERATOR", "READY", "MESSAGE"], &cells)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn renders_both_kinds() {
        let ome_service = json!({
            "metadata": {"name": "chat"},
            "spec": {"model": {"name": "llama-3-2-3b"}},
            "status": {
                "decision": {"runtime": {"name": "srt-llama"}},
                "components": {"engine": {"replicas": 2, "readyReplicas": 2, "selectedAccelerator": {"acceleratorClass": "nvidia-l40s"}}},
                "conditions": [{"type": "Ready", "status": "True", "message": "x"}],
            },
        });
        let role_based_service = json!({
            "metadata": {"name": "pd"},
            "spec": {"roles": [{"name": "prefill", "replicas": 2}, {"name": "decode"}]},
            "status": {"conditions": [{"type": "Ready", "status": "False", "message": "0 of 3 pods are ready"}]},
        });
        insta::assert_snapshot!(render(&[row(&ome_service), row(&role_based_service)]), @r"
        NAME  MODEL         RUNTIME             ACCELERATOR  READY  MESSAGE
        chat  llama-3-2-3b  srt-llama           nvidia-l40s  2/2
        pd    (roles)       prefill×2 decode×1  –            –      0 of 3 pods are ready
        ");
    }

    /// Anyone who may update a status chooses these numbers.
    #[test]
    fn extreme_numbers_of_replicas_are_limited() {
        let ome_component = json!({"replicas": i64::MAX, "readyReplicas": i64::MAX});
        let role = json!({"desiredReplicas": i64::MAX, "readyReplicas": i64::MAX});
        let service = json!({"status": {"components": {"engine": ome_component, "decode": role}}});
        assert_eq!(row(&service).replicas, "9223372036854775807/9223372036854775807");
    }
}
