//! Reads the requests of a user from the API server's audit log.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

/// A request with the attributes that RBAC rules match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditedRequest {
    /// RBAC verb.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource with its subresource: `inferenceservices/status`.
    pub resource: String,
    /// Namespace; empty for requests at cluster scope.
    pub namespace: String,
    /// Object name; empty for requests on a collection.
    pub name: String,
    /// HTTP status code of the response; 201 for a patch that created its object.
    pub code: u64,
}

/// Returns the distinct resource requests that `user` sent from `since` on, in an audit log of JSON lines. Ignores an
/// incomplete last line.
///
/// # Errors
/// The file cannot be read.
pub fn audited_requests(log: &Path, user: &str, since: Timestamp) -> Result<BTreeSet<AuditedRequest>> {
    let text = std::fs::read_to_string(log)?;
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_selected = |event: &Value| {
        let received = event["requestReceivedTimestamp"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        event["user"]["username"] == user && received.is_some_and(|time| time >= since)
    };
    Ok(events.filter(is_selected).filter_map(|event| parse_event(&event)).collect())
}

fn parse_event(event: &Value) -> Option<AuditedRequest> {
    let object_ref = event["objectRef"].as_object()?;
    let text = |field: &str| object_ref.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = match object_ref.get("subresource").and_then(Value::as_str) {
        Some(subresource) => format!("{}/{subresource}", text("resource")),
        None => text("resource"),
    };
    Some(AuditedRequest {
        verb: event["verb"].as_str()?.to_owned(),
        group: text("apiGroup"),
        resource,
        namespace: text("namespace"),
        name: text("name"),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
    })
}
