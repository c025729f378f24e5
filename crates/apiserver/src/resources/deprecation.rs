//! Deprecation warnings of custom resource versions.

use apimachinery::object;
use serde_json::Value;

use super::definition::versions;
use super::version_priority::version_priority;

/// Returns the warning for a deprecated version: its `deprecationWarning`, or the default text of kube-apiserver.
pub(super) fn warning(definition: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(custom) = version.get("deprecationWarning").and_then(Value::as_str) {
        return Some(custom.to_owned());
    }
    let (group, kind) = (object::text(definition, "/spec/group"), object::text(definition, "/spec/names/kind"));
    let deprecated_name = object::text(version, "/name");
    let recommended = versions(definition)
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| object::text(other, "/name"))
        .filter(|name| version_priority(name) > version_priority(deprecated_name))
        .max_by_key(|name| version_priority(name));
    let suffix = recommended.map(|recommended| format!("; use {group}/{recommended} {kind}")).unwrap_or_default();
    Some(format!("{group}/{deprecated_name} {kind} is deprecated{suffix}"))
}
