//! The engines of a service that requests dual pods.

use api::dual_pods::{DUAL, LAST_AWAKE, NODE_NAME, SLEEPING, is_provider};
use serde_json::Value;

use super::fields::text;
use crate::report::names::format_count;
use crate::report::tree::TreeNode;

/// Maximum number of lines of the list of engines.
const MAX_LINES: usize = 6;

/// Returns what the engine of each provider does; `None` without providers.
pub(super) fn engine_branch(pods: &[&Value]) -> Option<TreeNode> {
    let mut lines: Vec<String> = pods.iter().filter(|pod| is_provider(pod)).map(|pod| line(pod)).collect();
    if lines.is_empty() {
        return None;
    }
    let title = format!("{} in dual pods, deleted with the service", format_count(lines.len(), "engine"));
    let omitted = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    lines.extend((omitted > 0).then(|| format!("… {omitted} more")));
    TreeNode::branch(title, lines.into_iter().map(TreeNode::leaf).collect())
}

fn line(provider: &Value) -> String {
    let name = text(provider, "/metadata/name");
    let annotation = |key: &str| provider["metadata"]["annotations"][key].as_str();
    let node = annotation(NODE_NAME).unwrap_or("an unknown node");
    let labels = &provider["metadata"]["labels"];
    match (labels[SLEEPING] == "true", labels[DUAL].as_str(), annotation(LAST_AWAKE)) {
        (true, None, Some(time)) => format!("Pod {name} on {node}: asleep since {time}"),
        (true, Some(requester), _) => format!("Pod {name} on {node}: waking up for Pod {requester}"),
        (false, Some(requester), Some(_)) => format!("Pod {name} on {node}: awake for Pod {requester}"),
        (false, Some(requester), None) => format!("Pod {name} on {node}: starting for Pod {requester}"),
        _ => format!("Pod {name} on {node}: not bound to a requester"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::asleep(json!({SLEEPING: "true"}), Some("T"), "asleep since T")]
    #[case::waking(json!({SLEEPING: "true", DUAL: "r"}), Some("T"), "waking up for Pod r")]
    #[case::awake(json!({SLEEPING: "false", DUAL: "r"}), Some("T"), "awake for Pod r")]
    #[case::loading(json!({SLEEPING: "false", DUAL: "r"}), None, "starting for Pod r")]
    fn engines_have_a_state(#[case] labels: Value, #[case] last_awake: Option<&str>, #[case] expected: &str) {
        let annotations = json!({api::dual_pods::NOMINAL: "i", NODE_NAME: "n", LAST_AWAKE: last_awake});
        let pod = json!({"metadata": {"name": "p", "labels": labels, "annotations": annotations}});
        assert_eq!(line(&pod), format!("Pod p on n: {expected}"));
        assert!(engine_branch(&[&pod]).is_some());
        assert!(engine_branch(&[&json!({"metadata": {"name": "r"}})]).is_none());
    }
}
