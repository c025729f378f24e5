//! The ReplicaSets of a Deployment: made, annotated, scaled and forgotten.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::action::{Action, Plan};
use super::super::replica_set::{self, replicas};
use super::super::{hash, ownership, rolling};
use super::{Family, recreates};
use crate::object;

const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
const TEMPLATE_HASH: &str = "pod-template-hash";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(super) fn create(plan: &mut Plan, deployment: &Value, family: &Family) {
    let template = deployment.pointer("/spec/template").unwrap_or(&Value::Null);
    let collisions = deployment.pointer("/status/collisionCount").and_then(Value::as_i64).unwrap_or(0);
    let hash = hash::template(template, collisions);
    let name = format!("{}-{hash}", object::name(deployment));
    let strategy = rolling::Strategy::of(deployment);
    let existing: Vec<_> = family.old.iter().map(rolling::Counts::of).collect();
    let count = if recreates(deployment) { strategy.desired } else { rolling::first(&strategy, &existing) };

    let mut template = template.clone();
    label(&mut template, &hash);
    let mut selector = deployment.pointer("/spec/selector").cloned().unwrap_or_else(|| json!({}));
    selector["matchLabels"][TEMPLATE_HASH] = json!(hash);
    let mut first = annotations(deployment, None, family.next_revision());
    note_numbers(&mut first, deployment);
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": object::namespace(deployment),
            "labels": template.pointer("/metadata/labels").cloned().unwrap_or_default(),
            "annotations": first,
            "ownerReferences": [ownership::reference(deployment)],
        },
        "spec": {"replicas": count, "selector": selector, "template": template},
    });
    if let Some(seconds) = deployment.pointer("/spec/minReadySeconds") {
        set["spec"]["minReadySeconds"] = seconds.clone();
    }
    plan.push(Action::Create { resource: replica_set::RESOURCE, object: set });
    if count > 0 {
        plan.event(deployment, "ScalingReplicaSet", format!("Scaled up replica set {name} from 0 to {count}"));
    }
}

fn label(template: &mut Value, hash: &str) {
    let metadata = object::metadata(template);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    object::members(labels).insert(TEMPLATE_HASH.to_owned(), json!(hash));
}

/// The annotations of the new ReplicaSet: the Deployment's own, and its revision.
fn annotations(deployment: &Value, set: Option<&Value>, revision: i64) -> Value {
    let mut all = set.and_then(|set| set.pointer("/metadata/annotations")).cloned().unwrap_or_else(|| json!({}));
    for (key, value) in ownership::string_map(deployment.pointer("/metadata/annotations")) {
        if ![LAST_APPLIED, REVISION, DESIRED, MAXIMUM].contains(&key.as_str()) {
            all[key] = json!(value);
        }
    }
    all[REVISION] = json!(revision.to_string());
    all
}

/// The new ReplicaSet with the annotations it should have, if it has others.
pub(super) fn annotated(deployment: &Value, new: &Value, next_revision: i64) -> Option<Value> {
    let revision = revision(new).max(next_revision);
    let wanted = annotations(deployment, Some(new), revision);
    (new.pointer("/metadata/annotations") != Some(&wanted)).then(|| {
        let mut new = new.clone();
        object::set_metadata(&mut new, "annotations", Some(wanted));
        new
    })
}

/// The Deployment with the revision of its new ReplicaSet, if it shows another.
pub(super) fn revised(deployment: &Value, new: &Value) -> Option<Value> {
    let revision = revision(new).to_string();
    if deployment.pointer("/metadata/annotations").is_some_and(|a| a[REVISION] == revision.as_str()) {
        return None;
    }
    let mut deployment = deployment.clone();
    let annotations = object::metadata(&mut deployment).entry("annotations").or_insert_with(|| json!({}));
    object::members(annotations).insert(REVISION.to_owned(), json!(revision));
    Some(deployment)
}

pub(super) fn revision(set: &Value) -> i64 {
    let annotations = set.pointer("/metadata/annotations");
    annotations.and_then(|a| a[REVISION].as_str()).and_then(|r| r.parse().ok()).unwrap_or(0)
}

/// Sets the number of a ReplicaSet, and on it what was asked for at the time.
pub(super) fn scale(plan: &mut Plan, deployment: &Value, set: &Value, target: i64) {
    let before = replicas(set);
    let mut scaled = set.clone();
    scaled["spec"]["replicas"] = json!(target);
    let mut annotations = set.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    note_numbers(&mut annotations, deployment);
    object::set_metadata(&mut scaled, "annotations", Some(annotations));
    if before == target && (target == 0 || scaled == *set) {
        return;
    }
    plan.push(Action::Update { resource: replica_set::RESOURCE, object: scaled });
    if before != target {
        let direction = if target > before { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {} from {before} to {target}", object::name(set));
        plan.event(deployment, "ScalingReplicaSet", message);
    }
}

/// The `spec.replicas` of the Deployment when the ReplicaSet was last scaled.
pub(super) fn desired_before(set: &Value) -> Option<i64> {
    number(set, DESIRED)
}

/// The same with the surge.
pub(super) fn most_before(set: &Value) -> Option<i64> {
    number(set, MAXIMUM)
}

fn number(set: &Value, key: &str) -> Option<i64> {
    set.pointer("/metadata/annotations")?.get(key)?.as_str()?.parse().ok()
}

fn note_numbers(annotations: &mut Value, deployment: &Value) {
    let strategy = rolling::Strategy::of(deployment);
    annotations[DESIRED] = json!(strategy.desired.to_string());
    annotations[MAXIMUM] = json!((strategy.desired + strategy.max_surge).to_string());
}

/// Deletes old ReplicaSets beyond `revisionHistoryLimit`, once the rollout is complete.
pub(super) fn prune(plan: &mut Plan, deployment: &Value, family: &Family) {
    let limit = deployment.pointer("/spec/revisionHistoryLimit").and_then(Value::as_u64).unwrap_or(10);
    let Some(new) = &family.new else { return };
    let counts = rolling::Counts::of(new);
    let done = counts.available == replicas(deployment) && counts.replicas == replicas(deployment);
    let mut idle: Vec<&Value> = family
        .old
        .iter()
        .filter(|set| replicas(set) == 0 && rolling::Counts::of(set).current == 0 && !object::is_deleting(set))
        .collect();
    if !done {
        return;
    }
    idle.sort_by_key(|set| revision(set));
    let excess = idle.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    for set in idle.into_iter().take(excess) {
        plan.push(Action::Delete { resource: replica_set::RESOURCE, object: Arc::new(set.clone()) });
    }
}

/// Whether a ReplicaSet has this template, its hash label aside.
pub(super) fn same_template(template: &Value, set: &Value) -> bool {
    let mut theirs = set.pointer("/spec/template").cloned().unwrap_or_default();
    if let Some(labels) = theirs.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    theirs == *template
}
