//! What is written into an object that is to go: the time it has, and what it waits for.

use serde_json::{Value, json};

use super::owners::{FOREGROUND, ORPHAN};
use super::{DeleteOptions, Propagation};
use crate::resources::Resource;
use crate::{crd, object};

/// Writes into the object that it is going, and what for.
pub(super) fn mark(resource: &Resource, object: &mut Value, options: &DeleteOptions, now: jiff::Timestamp) {
    note_propagation(resource, object, options.propagation);
    let grace = grace(resource, object, options);
    if !object::is_deleting(object) {
        let at = now + jiff::SignedDuration::from_secs(grace);
        object::set_metadata(object, "deletionTimestamp", Some(json!(object::time(at))));
        // A namespace takes the time it needs.
        if resource.storage != "namespaces" {
            object::set_metadata(object, "deletionGracePeriodSeconds", Some(json!(grace)));
        }
        if resource.generation {
            let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
            object::set_metadata(object, "generation", Some(json!(generation + 1)));
        }
    } else if object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64) > Some(grace) {
        // A second deletion may only hurry.
        let at = now + jiff::SignedDuration::from_secs(grace);
        object::set_metadata(object, "deletionTimestamp", Some(json!(object::time(at))));
        object::set_metadata(object, "deletionGracePeriodSeconds", Some(json!(grace)));
    }
    if resource.storage == "namespaces" {
        object::members(object).insert("status".to_owned(), json!({"phase": "Terminating"}));
    }
}

/// What becomes of the dependents is a finalizer.
fn note_propagation(resource: &Resource, object: &mut Value, propagation: Propagation) {
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    finalizers.retain(|name| name != FOREGROUND && name != ORPHAN);
    let propagation = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    finalizers.extend(propagation.map(str::to_owned));
    if resource.storage == crd::STORAGE && !finalizers.iter().any(|name| name == crd::CLEANUP) {
        finalizers.push(crd::CLEANUP.to_owned());
    }
    object::set_metadata(object, "finalizers", (!finalizers.is_empty()).then(|| json!(finalizers)));
}

/// Pods that run somewhere get time; all else goes at once.
fn grace(resource: &Resource, object: &Value, options: &DeleteOptions) -> i64 {
    let over = matches!(object::text(object, "/status/phase"), "Succeeded" | "Failed");
    if resource.storage != "pods" || object::text(object, "/spec/nodeName").is_empty() || over {
        return 0;
    }
    let default = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    options.grace.unwrap_or(default).max(0)
}
