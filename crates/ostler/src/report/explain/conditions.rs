//! The conditions of a service that report a problem.

use serde_json::Value;

use super::explanation::Explanation;
use super::fields::text;
use crate::report::tree::TreeNode;

/// Conditions that report a problem with status `True`.
const NEGATIVE_CONDITIONS: [&str; 5] =
    ["Failed", "DecisionStale", "NoSurgeCapacity", picker::MODEL_NAME_SHARED, picker::TARGET_NOT_SERVED];
/// Reasons of conditions that only follow from an earlier condition.
const DEPENDENT_REASONS: [&str; 2] = ["NotPlanned", "RuntimeNotResolved"];

/// Returns the conditions that are not met. `children` explain the first condition; further conditions are omitted if
/// they repeat a message that is shown.
pub(super) fn unmet_conditions(explanation: &Explanation, mut children: Vec<TreeNode>) -> Vec<TreeNode> {
    let is_unmet = |condition: &&Value| {
        let kind = text(condition, "/type");
        kind != "Ready"
            && !NEGATIVE_CONDITIONS.contains(&kind)
            && condition["status"] != "True"
            && !DEPENDENT_REASONS.contains(&text(condition, "/reason"))
    };
    let mut shown_messages = vec![explanation.message.clone()];
    shown_messages.extend(children.iter().flat_map(TreeNode::messages));
    let mut tree = Vec::new();
    for condition in explanation.conditions.iter().filter(is_unmet) {
        let message = text(condition, "/message");
        // Messages are compared, since conditions with the same reason may concern different objects. A condition may
        // embed the message of a Pod, so that a shown message is repeated as a part of it.
        let is_repeated = shown_messages.iter().any(|shown| !shown.is_empty() && message.contains(shown.as_str()));
        if is_repeated && !tree.is_empty() {
            continue;
        }
        let is_explained = is_repeated || !children.is_empty();
        let message = if is_explained { String::new() } else { format!(": {message}") };
        let line = format!(
            "{}={}  {}{message}",
            text(condition, "/type"),
            text(condition, "/status"),
            text(condition, "/reason")
        );
        tree.push(TreeNode::new(line, std::mem::take(&mut children)));
        shown_messages.push(text(condition, "/message").to_owned());
    }
    // A service may have Pods before it has conditions.
    tree.extend(children);
    tree
}

/// Returns the negative conditions with status `True`.
pub(super) fn negative_conditions(explanation: &Explanation, headline: &str) -> Vec<TreeNode> {
    let is_negative =
        |condition: &&Value| NEGATIVE_CONDITIONS.contains(&text(condition, "/type")) && condition["status"] == "True";
    let line = |condition: &Value| {
        // Messages are compared, since the headline has no reason: it may come from a decision or from Pods.
        let message = Some(text(condition, "/message")).filter(|message| !message.contains(headline));
        let message = message.map(|message| format!(": {message}")).unwrap_or_default();
        TreeNode::leaf(format!("{}=True  {}{message}", text(condition, "/type"), text(condition, "/reason")))
    };
    explanation.conditions.iter().filter(is_negative).map(line).collect()
}
