//! Table columns of Deployments, ReplicaSets and StatefulSets.

use serde_json::json;

use super::cell::{age, column, container_values, number, selector};
use super::column::Column;

pub(super) fn deployments() -> Vec<Column> {
    vec![
        column("Ready", "string", 0, |object, _| {
            json!(format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")))
        }),
        column("Up-to-date", "string", 0, |object, _| json!(number(object, "/status/updatedReplicas"))),
        column("Available", "string", 0, |object, _| json!(number(object, "/status/availableReplicas"))),
        age(),
        column("Containers", "string", 1, |object, _| json!(container_values(object, "name"))),
        column("Images", "string", 1, |object, _| json!(container_values(object, "image"))),
        column("Selector", "string", 1, |object, _| json!(selector(object))),
    ]
}

pub(super) fn replica_sets() -> Vec<Column> {
    vec![
        column("Desired", "integer", 0, |object, _| json!(number(object, "/spec/replicas"))),
        column("Current", "integer", 0, |object, _| json!(number(object, "/status/replicas"))),
        column("Ready", "integer", 0, |object, _| json!(number(object, "/status/readyReplicas"))),
        age(),
        column("Containers", "string", 1, |object, _| json!(container_values(object, "name"))),
        column("Images", "string", 1, |object, _| json!(container_values(object, "image"))),
        column("Selector", "string", 1, |object, _| json!(selector(object))),
    ]
}

pub(super) fn stateful_sets() -> Vec<Column> {
    vec![
        column("Ready", "string", 0, |object, _| {
            json!(format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")))
        }),
        age(),
        column("Containers", "string", 1, |object, _| json!(container_values(object, "name"))),
        column("Images", "string", 1, |object, _| json!(container_values(object, "image"))),
    ]
}
