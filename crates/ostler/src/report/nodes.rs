//! The summary of the nodes of `ostler up`.

use std::sync::Arc;

use serde_json::Value;

use crate::host_node::HOST_ANNOTATION;
use crate::node_groups::{ACCELERATORS_ANNOTATION, SIMULATED_ANNOTATION, product_name};

/// Summarizes nodes: `vm 2 CPUs 24Gi (this host)   big-0 8×H100-80G   mid-0 8×A100-40G   (simulated)`.
pub(crate) fn summary(nodes: &[Arc<Value>]) -> String {
    let has_annotation = |node: &Arc<Value>, key: &str| node["metadata"]["annotations"][key] == "true";
    let (simulated, real): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| has_annotation(node, SIMULATED_ANNOTATION));
    let summary = |node: &&Arc<Value>| {
        let name = name_and_accelerators(node);
        if has_annotation(node, HOST_ANNOTATION) { format!("{name} {} (this host)", size(node)) } else { name }
    };
    let mut summaries: Vec<String> = real.iter().map(summary).collect();
    summaries.extend(simulated.iter().map(|node| name_and_accelerators(node)));
    summaries.extend(simulated.first().map(|_| "(simulated)".to_owned()));
    summaries.join("   ")
}

fn size(node: &Value) -> String {
    let capacity = &node["status"]["capacity"];
    let kib = capacity["memory"].as_str().and_then(|text| text.strip_suffix("Ki")?.parse::<f64>().ok());
    let memory = kib.map_or_else(String::new, |kib| format!(" {:.0}Gi", kib / f64::from(1 << 20)));
    format!("{} CPUs{memory}", capacity["cpu"].as_str().unwrap_or("?"))
}

fn name_and_accelerators(node: &Value) -> String {
    let label = |name: &str| node["metadata"]["labels"][name].as_str();
    let name = node["metadata"]["name"].as_str().unwrap_or("?");
    match label("nvidia.com/gpu.product") {
        Some(product) => format!("{name} {}×{}", label("nvidia.com/gpu.count").unwrap_or("?"), product_name(product)),
        None => match node["metadata"]["annotations"][ACCELERATORS_ANNOTATION].as_str() {
            Some(accelerators) => format!("{name} {accelerators}"),
            None => name.to_owned(),
        },
    }
}
