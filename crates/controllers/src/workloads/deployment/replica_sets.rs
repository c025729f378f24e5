//! The ReplicaSets of a Deployment: creates, annotates, scales and deletes them.

use std::sync::Arc;

use apimachinery::object;
use serde_json::{Value, json};

use crate::workloads::action::{Action, Plan};
use crate::workloads::replica_set::{self, replicas};
use crate::workloads::{hash, ownership, rolling_update};

/// The ReplicaSets of a Deployment.
pub(super) struct ReplicaSets {
    /// The ReplicaSet of the current template.
    pub(super) new: Option<Value>,
    /// The other ReplicaSets, oldest first.
    pub(super) old: Vec<Value>,
}

const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
const TEMPLATE_HASH: &str = "pod-template-hash";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Creates the ReplicaSet of the current template.
pub(super) fn create_replica_set(plan: &mut Plan, deployment: &Value, replica_sets: &ReplicaSets) {
    let template = deployment.pointer("/spec/template").unwrap_or(&Value::Null);
    let collision_count = deployment.pointer("/status/collisionCount").and_then(Value::as_i64).unwrap_or(0);
    let hash = hash::template_hash(template, collision_count);
    let name = format!("{}-{hash}", object::name(deployment));
    let strategy = rolling_update::RollingUpdateStrategy::new(deployment);
    let old_counts: Vec<_> = replica_sets.old.iter().map(rolling_update::ReplicaCounts::new).collect();
    let count = if is_recreate(deployment) {
        strategy.desired
    } else {
        rolling_update::initial_replicas(&strategy, &old_counts)
    };

    let mut template = template.clone();
    add_hash_label(&mut template, &hash);
    let mut selector = deployment.pointer("/spec/selector").cloned().unwrap_or_else(|| json!({}));
    selector["matchLabels"][TEMPLATE_HASH] = json!(hash);
    let mut annotations = replica_set_annotations(deployment, None, replica_sets.next_revision());
    set_replicas_annotations(&mut annotations, deployment);
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": object::namespace(deployment),
            "labels": template.pointer("/metadata/labels").cloned().unwrap_or_default(),
            "annotations": annotations,
            "ownerReferences": [ownership::controller_reference(deployment)],
        },
        "spec": {"replicas": count, "selector": selector, "template": template},
    });
    if let Some(seconds) = deployment.pointer("/spec/minReadySeconds") {
        set["spec"]["minReadySeconds"] = seconds.clone();
    }
    plan.push(Action::Create { resource: replica_set::RESOURCE, object: set });
    if count > 0 {
        plan.normal_event(deployment, "ScalingReplicaSet", format!("Scaled up replica set {name} from 0 to {count}"));
    }
}

/// Adds the label `pod-template-hash` to a template.
fn add_hash_label(template: &mut Value, hash: &str) {
    let metadata = object::metadata(template);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    object::members(labels).insert(TEMPLATE_HASH.to_owned(), json!(hash));
}

/// Returns the annotations of the new ReplicaSet: those of the Deployment and its revision.
fn replica_set_annotations(deployment: &Value, set: Option<&Value>, revision: i64) -> Value {
    let mut annotations =
        set.and_then(|set| set.pointer("/metadata/annotations")).cloned().unwrap_or_else(|| json!({}));
    for (key, value) in object::string_map(deployment.pointer("/metadata/annotations")) {
        if ![LAST_APPLIED, REVISION, DESIRED_REPLICAS, MAX_REPLICAS].contains(&key.as_str()) {
            annotations[key] = json!(value);
        }
    }
    annotations[REVISION] = json!(revision.to_string());
    annotations
}

/// Returns the new ReplicaSet with its expected annotations and the `minReadySeconds` of the Deployment, `None` when they are
/// up to date.
pub(super) fn with_updated_settings(deployment: &Value, new: &Value, next_revision: i64) -> Option<Value> {
    let revision = revision(new).max(next_revision);
    let expected = replica_set_annotations(deployment, Some(new), revision);
    let min_ready = |object: &Value| object.pointer("/spec/minReadySeconds").and_then(Value::as_i64).unwrap_or(0);
    let mut updated = new.clone();
    object::set_metadata_field(&mut updated, "annotations", Some(expected));
    if min_ready(new) != min_ready(deployment) {
        updated["spec"]["minReadySeconds"] = json!(min_ready(deployment));
    }
    (updated != *new).then_some(updated)
}

/// Returns the Deployment with the revision of its new ReplicaSet, or `None` if it is up to date.
pub(super) fn with_updated_revision(deployment: &Value, new: &Value) -> Option<Value> {
    let revision = revision(new).to_string();
    if deployment.pointer("/metadata/annotations").is_some_and(|a| a[REVISION] == revision.as_str()) {
        return None;
    }
    let mut deployment = deployment.clone();
    let annotations = object::metadata(&mut deployment).entry("annotations").or_insert_with(|| json!({}));
    object::members(annotations).insert(REVISION.to_owned(), json!(revision));
    Some(deployment)
}

/// Returns the revision of a ReplicaSet, 0 when absent.
fn revision(set: &Value) -> i64 {
    let annotations = set.pointer("/metadata/annotations");
    annotations.and_then(|a| a[REVISION].as_str()).and_then(|r| r.parse().ok()).unwrap_or(0)
}

/// Scales a ReplicaSet and updates its replica annotations.
pub(super) fn scale(plan: &mut Plan, deployment: &Value, set: &Value, target: i64) {
    let current = replicas(set);
    let mut scaled = set.clone();
    scaled["spec"]["replicas"] = json!(target);
    let mut annotations = set.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    set_replicas_annotations(&mut annotations, deployment);
    object::set_metadata_field(&mut scaled, "annotations", Some(annotations));
    if current == target && (target == 0 || scaled == *set) {
        return;
    }
    plan.push(Action::Update { resource: replica_set::RESOURCE, object: scaled });
    if current != target {
        let direction = if target > current { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {} from {current} to {target}", object::name(set));
        plan.normal_event(deployment, "ScalingReplicaSet", message);
    }
}

/// Returns `spec.replicas` of the Deployment when the ReplicaSet was last scaled.
pub(super) fn desired_replicas_annotation(set: &Value) -> Option<i64> {
    integer_annotation(set, DESIRED_REPLICAS)
}

/// Returns `spec.replicas` plus surge of the Deployment when the ReplicaSet was last scaled.
pub(super) fn max_replicas_annotation(set: &Value) -> Option<i64> {
    integer_annotation(set, MAX_REPLICAS)
}

/// Returns an annotation as a number.
fn integer_annotation(set: &Value, key: &str) -> Option<i64> {
    set.pointer("/metadata/annotations")?.get(key)?.as_str()?.parse().ok()
}

/// Sets the replica annotations from the Deployment.
fn set_replicas_annotations(annotations: &mut Value, deployment: &Value) {
    let strategy = rolling_update::RollingUpdateStrategy::new(deployment);
    annotations[DESIRED_REPLICAS] = json!(strategy.desired.to_string());
    annotations[MAX_REPLICAS] = json!(strategy.max_total().to_string());
}

/// Deletes old ReplicaSets beyond `revisionHistoryLimit`, once the rollout is complete.
pub(super) fn delete_old_replica_sets(plan: &mut Plan, deployment: &Value, replica_sets: &ReplicaSets) {
    let limit = deployment.pointer("/spec/revisionHistoryLimit").and_then(Value::as_u64).unwrap_or(10);
    let Some(new) = &replica_sets.new else { return };
    let counts = rolling_update::ReplicaCounts::new(new);
    let is_complete = counts.available == replicas(deployment) && counts.replicas == replicas(deployment);
    let mut unused: Vec<&Value> = replica_sets
        .old
        .iter()
        .filter(|set| {
            replicas(set) == 0 && rolling_update::ReplicaCounts::new(set).current == 0 && !object::is_deleting(set)
        })
        .collect();
    if !is_complete {
        return;
    }
    unused.sort_by_key(|set| revision(set));
    let excess = unused.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    for set in unused.into_iter().take(excess) {
        plan.push(Action::Delete { resource: replica_set::RESOURCE, object: Arc::new(set.clone()) });
    }
}

/// Whether a ReplicaSet has this template apart from the hash label (`EqualIgnoreHash`).
fn equal_ignoring_hash(template: &Value, set: &Value) -> bool {
    let mut own_template = set.pointer("/spec/template").cloned().unwrap_or_default();
    if let Some(labels) = own_template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    own_template == *template
}

/// Whether the Deployment stops all old Pods before it starts new ones.
pub(super) fn is_recreate(deployment: &Value) -> bool {
    object::text(deployment, "/spec/strategy/type") == "Recreate"
}

// === impl ReplicaSets ===

impl ReplicaSets {
    pub(super) fn new(deployment: &Value, owned: &[Arc<Value>]) -> Self {
        let template = deployment.pointer("/spec/template").unwrap_or(&Value::Null);
        let mut sets: Vec<Value> = owned.iter().map(|set| set.as_ref().clone()).collect();
        sets.sort_by_key(|set| {
            (object::text(set, "/metadata/creationTimestamp").to_owned(), object::name(set).to_owned())
        });
        let new = sets.iter().position(|set| equal_ignoring_hash(template, set)).map(|index| sets.remove(index));
        Self { new, old: sets }
    }

    /// Returns the ReplicaSets with `spec.replicas` above 0, oldest first.
    pub(super) fn active(&self) -> Vec<&Value> {
        self.old.iter().chain(&self.new).filter(|set| replicas(set) > 0).collect()
    }

    /// Returns the new ReplicaSet, or the youngest old one.
    pub(super) fn latest(&self) -> Option<&Value> {
        self.new.as_ref().or(self.old.last())
    }

    /// Whether all desired Pods of the new ReplicaSet are available (`IsSaturated`).
    pub(super) fn is_saturated(&self, desired: i64) -> bool {
        let new = self.new.as_ref();
        new.is_some_and(|new| replicas(new) == desired && rolling_update::ReplicaCounts::new(new).available == desired)
    }

    /// Returns one more than the highest revision of the old ReplicaSets.
    pub(super) fn next_revision(&self) -> i64 {
        self.old.iter().map(revision).max().unwrap_or(0).saturating_add(1)
    }
}
