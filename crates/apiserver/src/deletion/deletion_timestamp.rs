//! Marks objects for deletion by setting the deletion timestamp, grace period and finalizers.

use apimachinery::object::FOREGROUND_FINALIZER;
use apimachinery::{object, pod, time};
use serde_json::{Value, json};

use super::options::{DeleteOptions, ORPHAN, PropagationPolicy};
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
    if !object::is_deleting(object) {
        let grace = effective_grace_period(resource, object, options);
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
    } else if let Some(grace) = options.grace_period_seconds {
        shorten_grace_period(object, if grace < 0 { 1 } else { grace }, now);
    }
    if resource.storage == "namespaces" {
        object::members(object).insert("status".to_owned(), json!({"phase": "Terminating"}));
    }
}

/// Moves the deletion timestamp of a terminating object: a repeated request can only shorten the grace period, which
/// began with the first request.
fn shorten_grace_period(object: &mut Value, grace: i64, now: jiff::Timestamp) {
    let previous_grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let timestamp: Option<jiff::Timestamp> = object::text(object, "/metadata/deletionTimestamp").parse().ok();
    let (Some(previous_grace), Some(timestamp)) = (previous_grace, timestamp) else { return };
    if previous_grace > grace {
        // The end of an extreme grace period is not representable, so its start is unknown.
        let is_exact = time::add_seconds(now, previous_grace) < jiff::Timestamp::MAX;
        let timestamp = match is_exact {
            true => time::add_seconds(timestamp, grace.saturating_sub(previous_grace)),
            false => time::add_seconds(now, grace),
        };
        object::set_metadata_field(object, "deletionTimestamp", Some(json!(object::format_time(timestamp))));
        object::set_metadata_field(object, "deletionGracePeriodSeconds", Some(json!(grace)));
    }
}

/// Sets the finalizer that the propagation policy requires, and the cleanup finalizer of custom resource definitions.
fn set_propagation_finalizer(resource: &Resource, object: &mut Value, propagation: PropagationPolicy) {
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    finalizers.retain(|name| name != FOREGROUND_FINALIZER && name != ORPHAN);
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::resources::Registry;

    /// Recorded on kube-apiserver 1.37: the first request is at 00:00:00 with a grace period of 100 s.
    #[rstest]
    #[case::default(None, "2026-01-01T00:01:40Z", 100)]
    #[case::longer(Some(160), "2026-01-01T00:01:40Z", 100)]
    #[case::shorter(Some(40), "2026-01-01T00:00:40Z", 40)]
    #[case::immediate(Some(0), "2026-01-01T00:00:00Z", 0)]
    #[case::negative(Some(-1), "2026-01-01T00:00:01Z", 1)]
    fn repeated_deletion_moves_the_first_deadline(
        #[case] grace_period_seconds: Option<i64>,
        #[case] expected_timestamp: &str,
        #[case] expected_grace: i64,
    ) {
        let resource = Registry::builtin().by_name("pods").unwrap();
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}});
        for (time, grace_period_seconds) in
            [("2026-01-01T00:00:00Z", Some(100)), ("2026-01-01T00:00:10Z", grace_period_seconds)]
        {
            let options = DeleteOptions { grace_period_seconds, ..DeleteOptions::default() };
            mark_for_deletion(&resource, &mut pod, &options, time.parse().unwrap());
        }
        let metadata = &pod["metadata"];
        assert_eq!(metadata["deletionTimestamp"], expected_timestamp);
        assert_eq!(metadata["deletionGracePeriodSeconds"], expected_grace);
    }
}
