//! Fields of objects whose changes matter; changes of other fields, such as node heartbeats, have no effect.

use decide::is_pod_terminal;
use serde_json::Value;

/// Returns whether the facts of the old and the new object differ.
pub(crate) fn differ<T: PartialEq>(old: Option<&Value>, new: Option<&Value>, facts: impl Fn(&Value) -> T) -> bool {
    old.map(&facts) != new.map(&facts)
}

/// Returns the fields that users write: the spec, and the metadata without server-managed fields such as
/// `resourceVersion`.
pub(crate) fn user_fields(object: &Value) -> [Value; 5] {
    let metadata = &object["metadata"];
    ["uid", "labels", "annotations", "deletionTimestamp"]
        .map(|name| metadata[name].clone())
        .into_iter()
        .chain([object["spec"].clone()])
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_default()
}

/// Returns the node that the Pod occupies until it terminates.
pub(crate) fn occupied_node(pod: &Value) -> Option<String> {
    pod["spec"]["nodeName"].as_str().filter(|_| !is_pod_terminal(pod)).map(str::to_owned)
}
