//! Server-side apply and the bookkeeping of who owns which field.

use serde_json::Value;

use crate::status::Status;
use crate::structure::Structure;

/// Who applies, and how.
#[derive(Clone, Debug)]
pub struct ApplyOptions {
    pub manager: String,
    /// Take fields from other managers instead of answering 409.
    pub force: bool,
    pub api_version: String,
    pub subresource: Option<String>,
    /// RFC 3339, whole seconds, UTC.
    pub now: String,
}

/// Who writes.
#[derive(Clone, Debug)]
pub struct UpdateOptions {
    pub manager: String,
    pub api_version: String,
    pub subresource: Option<String>,
    /// RFC 3339, whole seconds, UTC.
    pub now: String,
}

/// The object after `applied` is applied over `live`, with its managedFields.
///
/// # Errors
/// 409 naming managers and fields.
pub fn apply(_s: &Structure, live: Option<&Value>, applied: &Value, _options: &ApplyOptions) -> Result<Value, Status> {
    Ok(live.map_or_else(|| applied.clone(), |live| crate::patch::merge::apply(live, applied)))
}

/// Writes into `after` who owns what, once `before` was replaced by it with POST, PUT or PATCH.
pub fn track_update(_s: &Structure, _before: Option<&Value>, _after: &mut Value, _options: &UpdateOptions) {}
