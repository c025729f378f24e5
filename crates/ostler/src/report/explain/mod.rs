//! Why an object is as it is: a headline, a tree from the object down to what is missing, and what would help.
//!
//! Pure: from objects as they are read to text. No sentence stands twice.

pub(crate) mod class;
mod placement;
pub(crate) mod runtime;
pub(crate) mod service;
pub(crate) mod witness;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::tree::{self, Branch};

/// What is known of one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    pub kind: String,
    /// Empty for an object of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    pub ready: bool,
    pub message: String,
    /// Since when it is so, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The recorded decision; only services have one, and of those not the role-based ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Value>,
    pub conditions: Vec<Value>,
    /// From the object down to the reason.
    pub tree: Vec<Branch>,
    /// Pods that are not ready, each with the reason.
    pub pods: Vec<PodProblem>,
    /// Computed by deciding, or placing, again with one constraint lifted.
    pub remedies: Vec<String>,
    /// The headline without the name: `default/chat is not ready`.
    #[serde(skip)]
    pub subject: String,
    #[serde(skip)]
    pub age: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PodProblem {
    pub name: String,
    pub reason: String,
    pub message: String,
}

impl Explanation {
    /// Kind, name, conditions and time of `object`; the rest is for the caller to say.
    fn of(object: &Value, now: Timestamp) -> Self {
        let text = |pointer: &str| text(object, pointer).to_owned();
        let conditions = &object["status"]["conditions"];
        let ready = cluster::conditions::find(conditions, "Ready");
        let since = ready.and_then(|ready| ready["lastTransitionTime"].as_str()).map(str::to_owned);
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        Self {
            kind: text("/kind"),
            subject: if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") },
            namespace,
            name,
            ready: ready.is_some_and(|condition| condition["status"] == "True"),
            message: ready.map_or("not seen by the operator yet".into(), |ready| text_of(&ready["message"])),
            age: since.as_deref().and_then(|since| age(since.parse().ok()?, now)),
            since,
            decision: None,
            conditions: conditions.as_array().cloned().unwrap_or_default(),
            tree: Vec::new(),
            pods: Vec::new(),
            remedies: Vec::new(),
        }
    }
}

/// The whole answer.
pub(crate) fn render(explanation: &Explanation) -> String {
    let Explanation { subject, message, age, remedies, .. } = explanation;
    let age = age.as_ref().map(|age| format!(" ({age})")).unwrap_or_default();
    let mut lines = vec![format!("{subject}: {message}{age}")];
    lines.extend(tree::render(&explanation.tree));
    if !remedies.is_empty() {
        lines.push("What would help".to_owned());
        lines.extend(remedies.iter().map(|remedy| format!("  · {remedy}")));
    }
    lines.join("\n")
}

/// `12 minutes`, in the largest unit that is there twice; nothing for a clock that goes wrong.
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

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
