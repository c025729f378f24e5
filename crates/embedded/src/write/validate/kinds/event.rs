//! Events: they stand in the namespace of what they are about.

use apimachinery::status::Cause;
use serde_json::{Value, json};

use crate::object;

pub(super) fn causes(event: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let about = object::text(event, "/involvedObject/namespace");
    let own = object::namespace(event);
    // What has no namespace is reported in `default`.
    let fits = about == own || about.is_empty() && own == "default";
    if !fits && !about.is_empty() {
        causes.push(Cause::invalid("involvedObject.namespace", &json!(about), "does not match event.namespace"));
    }
    causes
}
