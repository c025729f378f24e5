//! What is said to everybody who uses a version that is no longer recommended.

use serde_json::Value;

use super::versions;
use crate::object;
use crate::resources::version_rank;

/// `None` for a version in good standing. A definition may say it in its own words.
pub(super) fn warning(definition: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version.get("deprecationWarning").and_then(Value::as_str) {
        return Some(own.to_owned());
    }
    let (group, kind) = (object::text(definition, "/spec/group"), object::text(definition, "/spec/names/kind"));
    let old = object::text(version, "/name");
    let better = versions(definition)
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| object::text(other, "/name"))
        .filter(|name| version_rank(name) > version_rank(old))
        .max_by_key(|name| version_rank(name));
    let instead = better.map(|better| format!("; use {group}/{better} {kind}")).unwrap_or_default();
    Some(format!("{group}/{old} {kind} is deprecated{instead}"))
}
