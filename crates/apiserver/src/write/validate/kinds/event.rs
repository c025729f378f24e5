//! Validation of Events, whose namespace must be that of the involved object.

use apimachinery::{StatusCause, object};
use serde_json::{Value, json};

pub(super) fn causes(event: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let involved_namespace = object::text(event, "/involvedObject/namespace");
    let event_namespace = object::namespace(event);
    // Events about cluster-scoped objects belong to the namespace `default`.
    let is_valid =
        involved_namespace == event_namespace || involved_namespace.is_empty() && event_namespace == "default";
    if !is_valid && !involved_namespace.is_empty() {
        causes.push(StatusCause::invalid(
            "involvedObject.namespace",
            &json!(involved_namespace),
            "does not match event.namespace",
        ));
    }
    causes
}
