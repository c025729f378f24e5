//! The explanation of an object: a headline, a tree of reasons, and changes that would help.

use jiff::{SignedDuration, Timestamp};
use picker::PoolDetails;
use serde::Serialize;
use serde_json::Value;

use super::fields::text;
use crate::report::ready_message::ready_message;
use crate::report::tree::{self, TreeNode};

/// The explanation of an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    pub kind: String,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    pub ready: bool,
    pub message: String,
    /// Last transition of the condition `Ready`, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The recorded decision of an `ome.io` service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Value>,
    pub conditions: Vec<Value>,
    /// Reasons, from the conditions of the object down to the cause.
    pub tree: Vec<TreeNode>,
    /// What the gateway knows about the pools of a BackendPool or use cases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolDetails>,
    /// Where the explanation of a BackendPool or use cases comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Pods with problems.
    pub pods: Vec<PodProblem>,
    /// Changes that would help, found by repeating selection or scheduling with one constraint lifted.
    pub remedies: Vec<String>,
    /// Start of the headline, before the message: `default/chat is not ready`.
    #[serde(skip)]
    pub subject: String,
    /// Time since the last transition, such as `2 minutes`.
    #[serde(skip)]
    pub age: Option<String>,
}

/// A problem of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PodProblem {
    pub name: String,
    pub reason: String,
    pub message: String,
}

// === impl Explanation ===

impl Explanation {
    /// Returns an explanation with kind, name, conditions and age of `object`. The caller adds the reasons.
    pub(super) fn new(object: &Value, now: Timestamp) -> Self {
        let text = |pointer: &str| text(object, pointer).to_owned();
        let conditions = &object["status"]["conditions"];
        let ready = cluster::find_condition(conditions, "Ready");
        let since = ready.and_then(|ready| ready["lastTransitionTime"].as_str()).map(str::to_owned);
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        Self {
            kind: text("/kind"),
            subject: if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") },
            namespace,
            name,
            ready: ready.is_some_and(|condition| condition["status"] == "True"),
            message: ready.map_or("Waiting for the operator to observe the object".into(), |ready| {
                ready_message(&object["status"]["components"], ready)
            }),
            age: since.as_deref().and_then(|since| age(since.parse().ok()?, now)),
            since,
            decision: None,
            conditions: conditions.as_array().cloned().unwrap_or_default(),
            tree: Vec::new(),
            pools: Vec::new(),
            source: None,
            pods: Vec::new(),
            remedies: Vec::new(),
        }
    }
}

/// Renders an explanation as text.
pub(crate) fn render(explanation: &Explanation) -> String {
    let Explanation { subject, message, age, remedies, .. } = explanation;
    let age = age.as_ref().map(|age| format!(" ({age})")).unwrap_or_default();
    let mut lines = vec![format!("{subject}: {message}{age}")];
    lines.extend(tree::render(&explanation.tree));
    if !remedies.is_empty() {
        lines.push("What would help".to_owned());
        lines.extend(remedies.iter().map(|remedy| format!("  · {remedy}")));
    }
    lines.extend(explanation.source.iter().map(|source| format!("({source})")));
    lines.join("\n")
}

/// Formats a duration such as `12 minutes`, in the largest unit with a count of at least 2.
fn age(since: Timestamp, now: Timestamp) -> Option<String> {
    let seconds = now.duration_since(since).max(SignedDuration::ZERO).as_secs();
    let (count, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7200 => (seconds / 60, "minute"),
        7200..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    Some(format!("{count} {unit}{}", if count == 1 { "" } else { "s" }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(1, "1 second")]
    #[case(119, "119 seconds")]
    #[case(120, "2 minutes")]
    #[case(7200, "2 hours")]
    #[case(200_000, "2 days")]
    #[case(-5, "0 seconds")]
    fn formats_age(#[case] seconds: i64, #[case] text: &str) {
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert_eq!(age(now - SignedDuration::from_secs(seconds), now).as_deref(), Some(text));
    }
}
