//! The node selector and the required node affinity of a Pod: the `NodeAffinity` plugin.

use apimachinery::{node_selector_terms_match, object};
use serde_json::Value;

use super::reason::UnschedulableReason;

/// Returns [`UnschedulableReason::NodeAffinity`] when the node does not match `nodeSelector` or the required node
/// affinity.
pub(super) fn filter(pod: &Value, node: &Value) -> Option<UnschedulableReason> {
    let labels = object::string_map(node.pointer("/metadata/labels"));
    let selector = object::string_map(pod.pointer("/spec/nodeSelector"));
    let matches_selector = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let matches_affinity = pod.pointer(required).is_none_or(|terms| node_selector_terms_match(terms, node));
    (!matches_selector || !matches_affinity).then_some(UnschedulableReason::NodeAffinity)
}
