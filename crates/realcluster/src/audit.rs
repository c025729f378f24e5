//! What an account has asked for, from the API server's audit log.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

/// One kind of request, as rules of access see it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    pub verb: String,
    pub group: String,
    /// With its subresource: `inferenceservices/status`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// HTTP status of the answer; a patch that made its object answers 201.
    pub code: u64,
}

/// Every kind of request of `user` for a resource, from a log in JSON lines. Tolerates a last line that is cut off.
///
/// # Errors
/// The file cannot be read.
pub fn accesses(log: &Path, user: &str) -> Result<BTreeSet<Access>> {
    let text = std::fs::read_to_string(log)?;
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(events.filter(|event| event["user"]["username"] == user).filter_map(|event| access(&event)).collect())
}

fn access(event: &Value) -> Option<Access> {
    let about = event["objectRef"].as_object()?;
    let text = |field: &str| about.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = match about.get("subresource").and_then(Value::as_str) {
        Some(sub) => format!("{}/{sub}", text("resource")),
        None => text("resource"),
    };
    Some(Access {
        verb: event["verb"].as_str()?.to_owned(),
        group: text("apiGroup"),
        resource,
        namespace: text("namespace"),
        name: text("name"),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
    })
}
