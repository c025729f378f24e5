//! The live table of `ostler up`: one line per service.

use std::sync::Arc;

use cluster::conditions;
use serde_json::Value;

use crate::fleet::{CARRIES, spoken};

/// One service, as its status tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Group, namespace and name: what no other service shares.
    pub key: String,
    pub name: String,
    pub model: String,
    pub runtime: String,
    pub accelerator: String,
    pub ready: bool,
    /// Replicas that are ready, of those wanted; `–` until something was made.
    pub replicas: String,
    /// Reason code of the `Ready` condition.
    pub reason: String,
    /// Message of the `Ready` condition while it is not true.
    pub why_not: String,
}

/// Reads an InferenceService of either group.
pub(crate) fn row(service: &Value) -> Row {
    let text = |pointer: &str| service.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let ready = conditions::find(&service["status"]["conditions"], "Ready");
    let is_ready = ready.is_some_and(|condition| condition["status"] == "True");
    let decision = &service["status"]["decision"];
    let key = ["/apiVersion", "/metadata/namespace", "/metadata/name"].map(|part| text(part).unwrap_or_default());
    Row {
        key: key.join("/"),
        name: text("/metadata/name").unwrap_or_default(),
        model: text("/spec/model/name").unwrap_or_else(|| "(roles)".to_owned()),
        runtime: decision["runtime"]["name"].as_str().map_or_else(|| roles(service), str::to_owned),
        accelerator: decision["components"]["engine"]["acceleratorClass"].as_str().unwrap_or("–").to_owned(),
        ready: is_ready,
        replicas: replicas(&service["status"]["components"]),
        reason: ready.and_then(|ready| ready["reason"].as_str()).unwrap_or_default().to_owned(),
        why_not: match ready {
            Some(condition) if !is_ready => condition["message"].as_str().unwrap_or_default().to_owned(),
            Some(_) => String::new(),
            None => "not seen by the operator yet".to_owned(),
        },
    }
}

/// `1/1`: over all components, or roles, which name the number wanted differently.
fn replicas(components: &Value) -> String {
    let components = components.as_object().into_iter().flatten().map(|(_, component)| component);
    let (mut ready, mut wanted) = (0, 0);
    for component in components {
        ready += component["readyReplicas"].as_i64().unwrap_or(0);
        wanted += component["replicas"].as_i64().or_else(|| component["desiredReplicas"].as_i64()).unwrap_or(0);
    }
    if wanted == 0 { "–".to_owned() } else { format!("{ready}/{wanted}") }
}

/// `prefill×2 decode×1` of a role-based service.
fn roles(service: &Value) -> String {
    let roles = service["spec"]["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
    let role =
        |role: &Value| format!("{}×{}", role["name"].as_str().unwrap_or("?"), role["replicas"].as_u64().unwrap_or(1));
    roles.iter().map(role).collect::<Vec<_>>().join(" ")
}

/// `vm 2 CPUs 24Gi (this machine)   big-0 8×H100-80G   mid-0 8×A100-40G   (simulated)`.
pub(crate) fn nodes(nodes: &[Arc<Value>]) -> String {
    let is = |node: &Arc<Value>, what: &str| node["metadata"]["annotations"][what] == "true";
    let (simulated, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| is(node, "ostler.dev/simulated"));
    let machine = |node: &&Arc<Value>| {
        let name = accelerators(node);
        if is(node, "ostler.dev/this-machine") { format!("{name} {} (this machine)", size(node)) } else { name }
    };
    let mut words: Vec<String> = others.iter().map(machine).collect();
    words.extend(simulated.iter().map(|node| accelerators(node)));
    words.extend(simulated.first().map(|_| "(simulated)".to_owned()));
    words.join("   ")
}

fn size(node: &Value) -> String {
    let capacity = &node["status"]["capacity"];
    let kib = capacity["memory"].as_str().and_then(|text| text.strip_suffix("Ki")?.parse::<f64>().ok());
    let memory = kib.map_or_else(String::new, |kib| format!(" {:.0}Gi", kib / f64::from(1 << 20)));
    format!("{} CPUs{memory}", capacity["cpu"].as_str().unwrap_or("?"))
}

fn accelerators(node: &Value) -> String {
    let label = |name: &str| node["metadata"]["labels"][name].as_str();
    let name = node["metadata"]["name"].as_str().unwrap_or("?");
    match label("nvidia.com/gpu.product") {
        Some(product) => format!("{name} {}×{}", label("nvidia.com/gpu.count").unwrap_or("?"), spoken(product)),
        None => match node["metadata"]["annotations"][CARRIES].as_str() {
            Some(accelerators) => format!("{name} {accelerators}"),
            None => name.to_owned(),
        },
    }
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
            vec![
                row.name.clone(),
                row.model.clone(),
                row.runtime.clone(),
                row.accelerator.clone(),
                row.replicas.clone(),
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
                "components": {"engine": {"replicas": 2, "readyReplicas": 2}},
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
        chat  llama-3-2-3b  srt-llama           nvidia-l40s  2/2
        pd    (roles)       prefill×2 decode×1  –            –      0 of 3 pods are ready
        ");
    }
}
