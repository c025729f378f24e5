//! Marks objects for deletion by setting the deletion timestamp, grace period and finalizers.

use apimachinery::{object, pod, time};
use serde_json::{Value, json};

use super::options::{DeleteOptions, FOREGROUND, ORPHAN, PropagationPolicy};
use crate::resources::Resource;
use crate::resources::definition::{self, CLEANUP_FINALIZER};

/// Sets the deletion timestamp and the finalizer that the propagation policy requires.
pub(super) fn mark_for_deletion(
    resource: &Resource,
    object: &mut Value,
    options: &DeleteOptions,
    now: jiff::Timestamp,
) {
    set_propagation_finalizer(resource, object, options.propagation);
    let grace = effective_grace_period(resource, object, options);
    if !object::is_deleting(object) {
        let timestamp = time::add_seconds(now, grace);
        object::set_metadata_field(object, "deletionTimestamp", Some(json!(object::format_time(timestamp))));
        // Namespaces have no grace period.
        if resource.storage != "namespaces" {
            object::set_metadata_field(object, "deletionGracePeriodSeconds", Some(json!(grace)));
        }
        if resource.has_generation {
            let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
            object::set_metadata_field(object, "generation", Some(json!(generation.saturating_add(1))));
        }
    } else if object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64) > Some(grace) {
        // A repeated deletion request can only shorten the grace period.
        let timestamp = time::add_seconds(now, grace);
        object::set_metadata_field(object, "deletionTimestamp", Some(json!(object::format_time(timestamp))));
        object::set_metadata_field(object, "deletionGracePeriodSeconds", Some(json!(grace)));
    }
    if resource.storage == "namespaces" {
        object::members(object).insert("status".to_owned(), json!({"phase": "Terminating"}));
    }
}

/// Sets the finalizer that the propagation policy requires, and the cleanup finalizer of custom resource definitions.
fn set_propagation_finalizer(resource: &Resource, object: &mut Value, propagation: PropagationPolicy) {
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    finalizers.retain(|name| name != FOREGROUND && name != ORPHAN);
    finalizers.extend(propagation.finalizer().map(str::to_owned));
    if resource.storage == definition::STORAGE && !finalizers.iter().any(|name| name == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.to_owned());
    }
    object::set_metadata_field(object, "finalizers", (!finalizers.is_empty()).then(|| json!(finalizers)));
}

/// Returns the grace period in seconds. It is 0 for all objects except Pods that are bound to a node and have not
/// finished. A negative one counts as one second.
fn effective_grace_period(resource: &Resource, object: &Value, options: &DeleteOptions) -> i64 {
    if resource.storage != "pods" || object::text(object, "/spec/nodeName").is_empty() || pod::is_finished(object) {
        return 0;
    }
    let default = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    let grace = options.grace_period_seconds.unwrap_or(default);
    if grace < 0 { 1 } else { grace }
}
