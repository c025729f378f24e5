//! The live table of `ostler up`: one line per service.

use std::sync::Arc;

use cluster::conditions;
use serde_json::Value;

/// One service, as its status tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub name: String,
    pub model: String,
    pub runtime: String,
    pub accelerator: String,
    pub ready: bool,
    /// Message of the `Ready` condition while it is not true.
    pub why_not: String,
}

/// Reads an InferenceService of either group.
pub(crate) fn row(service: &Value) -> Row {
    let text = |pointer: &str| service.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let ready = conditions::find(&service["status"]["conditions"], "Ready");
    let is_ready = ready.is_some_and(|condition| condition["status"] == "True");
    let decision = &service["status"]["decision"];
    Row {
        name: text("/metadata/name").unwrap_or_default(),
        model: text("/spec/model/name").unwrap_or_else(|| "(roles)".to_owned()),
        runtime: decision["runtime"]["name"].as_str().map_or_else(|| roles(service), str::to_owned),
        accelerator: decision["components"]["engine"]["acceleratorClass"].as_str().unwrap_or("–").to_owned(),
        ready: is_ready,
        why_not: match ready {
            Some(condition) if !is_ready => condition["message"].as_str().unwrap_or_default().to_owned(),
            Some(_) => String::new(),
            None => "not seen by the operator yet".to_owned(),
        },
    }
}

/// `prefill×2 decode×1` of a role-based service.
fn roles(service: &Value) -> String {
    let roles = service["spec"]["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
    let role =
        |role: &Value| format!("{}×{}", role["name"].as_str().unwrap_or("?"), role["replicas"].as_u64().unwrap_or(1));
    roles.iter().map(role).collect::<Vec<_>>().join(" ")
}

/// `big-0 8×NVIDIA-H100-80GB-HBM3 (simulated)` for every node.
pub(crate) fn nodes(nodes: &[Arc<Value>]) -> String {
    let node = |node: &Arc<Value>| {
        let metadata = &node["metadata"];
        let product = metadata["labels"]["nvidia.com/gpu.product"].as_str().unwrap_or("no accelerator");
        let count = metadata["labels"]["nvidia.com/gpu.count"].as_str().unwrap_or("0");
        let simulated = if metadata["annotations"]["ostler.dev/simulated"] == "true" { " (simulated)" } else { "" };
        format!("{} {count}×{product}{simulated}", metadata["name"].as_str().unwrap_or("?"))
    };
    nodes.iter().map(node).collect::<Vec<_>>().join("   ")
}

/// Columns as wide as their widest cell, two blanks apart.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(header.to_vec())];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// The services' table, ready or not.
pub(crate) fn render(rows: &[Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let ready = if row.ready { "yes" } else { "no" };
            vec![
                row.name.clone(),
                row.model.clone(),
                row.runtime.clone(),
                row.accelerator.clone(),
                ready.into(),
                row.why_not.clone(),
            ]
        })
        .collect();
    table(&["NAME", "MODEL", "RUNTIME", "ACCELERATOR", "READY", "WHY NOT"], &cells)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_kinds_in_one_table() {
        let decided = json!({
            "metadata": {"name": "chat"},
            "spec": {"model": {"name": "llama-3-2-3b"}},
            "status": {
                "decision": {"runtime": {"name": "srt-llama"}, "components": {"engine": {"acceleratorClass": "nvidia-l40s"}}},
                "conditions": [{"type": "Ready", "status": "True", "message": "x"}],
            },
        });
        let roles = json!({
            "metadata": {"name": "pd"},
            "spec": {"roles": [{"name": "prefill", "replicas": 2}, {"name": "decode"}]},
            "status": {"conditions": [{"type": "Ready", "status": "False", "message": "0 of 3 pods are ready"}]},
        });
        insta::assert_snapshot!(render(&[row(&decided), row(&roles)]), @r"
        NAME  MODEL         RUNTIME             ACCELERATOR  READY  WHY NOT
        chat  llama-3-2-3b  srt-llama           nvidia-l40s  yes
        pd    (roles)       prefill×2 decode×1  –            no     0 of 3 pods are ready
        ");
    }
}
