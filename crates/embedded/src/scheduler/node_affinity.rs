//! The nodes that a Pod asks for (`NodeAffinity`).

use apimachinery::selector::node_matches;
use serde_json::Value;

use super::reason::Reason;
use crate::workloads::ownership::string_map;

/// `nodeSelector` and the required node affinity.
pub(super) fn not_selected(pod: &Value, node: &Value) -> Option<Reason> {
    let labels = string_map(node.pointer("/metadata/labels"));
    let selector = string_map(pod.pointer("/spec/nodeSelector"));
    let selected = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let affine = pod.pointer(required).is_none_or(|terms| node_matches(terms, node));
    (!selected || !affine).then_some(Reason::NotSelected)
}
