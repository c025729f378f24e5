//! Deployment: ReplicaSets that follow a template, old ones replaced at a measured pace.
//!
//! The rules are those of `pkg/controller/deployment`: [`rolling`] is its `rolling.go`, this file its `sync.go` and
//! `progress.go`. Not done: proportional scaling while a rollout is under way (a scale in the middle goes to the new
//! ReplicaSet first), and rollback, which was removed from `apps/v1`.

use std::sync::Arc;

use apimachinery::selector::LabelSelector;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::action::{Action, Plan};
use super::condition::{self, Condition};
use super::replica_set::{self, replicas};
use super::{hash, ownership, rolling};
use crate::object;

pub(crate) const RESOURCE: &str = "deployments.apps";

const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
const TEMPLATE_HASH: &str = "pod-template-hash";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A Deployment with its ReplicaSets, sorted into the one of the current template and the others.
struct Family {
    new: Option<Value>,
    /// Oldest first.
    old: Vec<Value>,
}

/// What follows from a Deployment, the ReplicaSets around it and (for `Recreate`) the Pods.
pub(crate) fn plan(deployment: &Value, sets: &[Arc<Value>], pods: &[Arc<Value>], now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let selector = deployment.pointer("/spec/selector").unwrap_or(&Value::Null);
    let Ok(selector) = LabelSelector::from_json(selector) else { return plan };
    let claim = ownership::claim(deployment, &selector, sets);
    if !claim.changed.is_empty() {
        let write = |object| Action::Update { resource: replica_set::RESOURCE, object };
        plan.actions.extend(claim.changed.into_iter().map(write));
        return plan; // the next look sees them as written
    }
    let mut family = Family::of(deployment, &claim.owned);
    if !object::is_deleting(deployment) {
        roll(&mut plan, deployment, &mut family, pods);
    }
    status(&mut plan, deployment, &family, now);
    plan
}

/// Creates the new ReplicaSet, or scales the family one step.
fn roll(plan: &mut Plan, deployment: &Value, family: &mut Family, pods: &[Arc<Value>]) {
    let paused = deployment.pointer("/spec/paused") == Some(&Value::Bool(true));
    let Some(new) = &family.new else {
        if paused {
            scale_active(plan, deployment, family);
            return;
        }
        if recreates(deployment) && stop_old(plan, deployment, family, pods) {
            return;
        }
        create(plan, deployment, family);
        return;
    };
    if let Some(updated) = annotated(deployment, new, family.next_revision()) {
        plan.push(Action::Update { resource: replica_set::RESOURCE, object: updated });
        return;
    }
    if let Some(deployment) = revised(deployment, new) {
        plan.push(Action::Update { resource: RESOURCE, object: deployment });
        return;
    }
    if paused {
        scale_active(plan, deployment, family);
        return;
    }
    if recreates(deployment) {
        if !stop_old(plan, deployment, family, pods) {
            scale(plan, deployment, new, replicas(deployment));
        }
        return;
    }
    let strategy = rolling::Strategy::of(deployment);
    let step = rolling::step(
        &strategy,
        &rolling::Counts::of(new),
        &family.old.iter().map(rolling::Counts::of).collect::<Vec<_>>(),
    );
    scale(plan, deployment, new, step.new);
    for (set, target) in family.old.iter().zip(step.old) {
        scale(plan, deployment, set, target);
    }
    prune(plan, deployment, family);
}

/// While paused, the one generation that has Pods follows the number that is asked for, or the new one where none has.
fn scale_active(plan: &mut Plan, deployment: &Value, family: &Family) {
    let active: Vec<_> = family.new.iter().chain(&family.old).filter(|set| replicas(set) > 0).collect();
    let chosen = match active.as_slice() {
        [] => family.new.as_ref(),
        [only] => Some(*only),
        // Halfway between two generations both stay as they are.
        _ => None,
    };
    if let Some(set) = chosen {
        scale(plan, deployment, set, replicas(deployment));
    }
}

fn recreates(deployment: &Value) -> bool {
    object::text(deployment, "/spec/strategy/type") == "Recreate"
}

/// `Recreate`: true while the old generation still holds Pods.
fn stop_old(plan: &mut Plan, deployment: &Value, family: &Family, pods: &[Arc<Value>]) -> bool {
    let mut waiting = false;
    for set in &family.old {
        waiting |= replicas(set) > 0 || pods.iter().any(|pod| ownership::controls(set, pod));
        scale(plan, deployment, set, 0);
    }
    waiting
}

fn scale(plan: &mut Plan, deployment: &Value, set: &Value, target: i64) {
    let before = replicas(set);
    if before == target {
        return;
    }
    let mut scaled = set.clone();
    scaled["spec"]["replicas"] = json!(target);
    plan.push(Action::Update { resource: replica_set::RESOURCE, object: scaled });
    let direction = if target > before { "up" } else { "down" };
    let message = format!("Scaled {direction} replica set {} from {before} to {target}", object::name(set));
    plan.event(deployment, "ScalingReplicaSet", message);
}

fn create(plan: &mut Plan, deployment: &Value, family: &Family) {
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
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": object::namespace(deployment),
            "labels": template.pointer("/metadata/labels").cloned().unwrap_or_default(),
            "annotations": annotations(deployment, None, family.next_revision()),
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

/// The annotations of the new ReplicaSet: the Deployment's own, and the numbers that a rollout needs.
fn annotations(deployment: &Value, set: Option<&Value>, revision: i64) -> Value {
    let mut all = set.and_then(|set| set.pointer("/metadata/annotations")).cloned().unwrap_or_else(|| json!({}));
    for (key, value) in ownership::string_map(deployment.pointer("/metadata/annotations")) {
        if ![LAST_APPLIED, REVISION, DESIRED, MAXIMUM].contains(&key.as_str()) {
            all[key] = json!(value);
        }
    }
    let strategy = rolling::Strategy::of(deployment);
    all[REVISION] = json!(revision.to_string());
    all[DESIRED] = json!(strategy.desired.to_string());
    all[MAXIMUM] = json!((strategy.desired + strategy.max_surge).to_string());
    all
}

/// The new ReplicaSet with the annotations it should have, if it has others.
fn annotated(deployment: &Value, new: &Value, next_revision: i64) -> Option<Value> {
    let revision = revision(new).max(next_revision);
    let wanted = annotations(deployment, Some(new), revision);
    (new.pointer("/metadata/annotations") != Some(&wanted)).then(|| {
        let mut new = new.clone();
        object::set_metadata(&mut new, "annotations", Some(wanted));
        new
    })
}

/// The Deployment with the revision of its new ReplicaSet, if it shows another.
fn revised(deployment: &Value, new: &Value) -> Option<Value> {
    let revision = revision(new).to_string();
    if deployment.pointer("/metadata/annotations").is_some_and(|a| a[REVISION] == revision.as_str()) {
        return None;
    }
    let mut deployment = deployment.clone();
    let annotations = object::metadata(&mut deployment).entry("annotations").or_insert_with(|| json!({}));
    object::members(annotations).insert(REVISION.to_owned(), json!(revision));
    Some(deployment)
}

fn revision(set: &Value) -> i64 {
    let annotations = set.pointer("/metadata/annotations");
    annotations.and_then(|a| a[REVISION].as_str()).and_then(|r| r.parse().ok()).unwrap_or(0)
}

/// Deletes old ReplicaSets beyond `revisionHistoryLimit`, once the rollout is complete.
fn prune(plan: &mut Plan, deployment: &Value, family: &Family) {
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

fn status(plan: &mut Plan, deployment: &Value, family: &Family, now: Timestamp) {
    let old: Vec<_> = family.old.iter().map(rolling::Counts::of).collect();
    let new = family.new.as_ref().map(rolling::Counts::of).unwrap_or_default();
    let sum = |field: fn(&rolling::Counts) -> i64| old.iter().map(field).sum::<i64>() + field(&new);
    let available = sum(|c| c.available);
    let strategy = rolling::Strategy::of(deployment);
    let counts = [
        ("replicas", sum(|c| c.current)),
        ("updatedReplicas", new.current),
        ("readyReplicas", sum(|c| c.ready)),
        ("availableReplicas", available),
        ("unavailableReplicas", (sum(|c| c.replicas) - available).max(0)),
    ];
    let mut status = Map::new();
    for field in ["collisionCount", "conditions"] {
        if let Some(value) = deployment.pointer(&format!("/status/{field}")) {
            status.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(generation) = deployment.pointer("/metadata/generation") {
        status.insert("observedGeneration".to_owned(), generation.clone());
    }
    for (field, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status.insert(field.to_owned(), json!(count));
    }
    let mut status = Value::Object(status);
    let at = object::time(now);
    let enough = available >= strategy.desired - strategy.max_unavailable;
    set_condition(&mut status, availability(enough), &at, false);
    progress(plan, deployment, family, &mut status, now);
    plan.status(RESOURCE, deployment, status);
}

fn availability(enough: bool) -> Condition<'static> {
    let (reason, message) = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    Condition { kind: "Available", status: enough, reason, message }
}

/// The `Progressing` condition. `lastUpdateTime` moves on every step forward; the deadline counts from it.
fn progress(plan: &mut Plan, deployment: &Value, family: &Family, status: &mut Value, now: Timestamp) {
    let Some(new) = &family.new else { return };
    let at = object::time(now);
    let field = |s: &Value, name: &str| s.get(name).and_then(Value::as_i64).unwrap_or(0);
    let desired = replicas(deployment);
    let complete = field(status, "updatedReplicas") == desired
        && field(status, "replicas") == desired
        && field(status, "availableReplicas") == desired;
    let name = object::name(new);
    let before = deployment.get("status").unwrap_or(&Value::Null);
    let moved =
        ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().any(|f| field(status, f) > field(before, f))
            || (field(status, "replicas") - field(status, "updatedReplicas"))
                < (field(before, "replicas") - field(before, "updatedReplicas"));
    let current = condition::find(status, "Progressing").cloned();
    let reason = current.as_ref().map(|c| object::text(c, "/reason").to_owned());
    if complete {
        let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
        let condition =
            Condition { kind: "Progressing", status: true, reason: "NewReplicaSetAvailable", message: &message };
        set_condition(status, condition, &at, reason.as_deref() != Some("NewReplicaSetAvailable"));
        return;
    }
    let finished = reason.as_deref() == Some("NewReplicaSetAvailable");
    if reason.is_none() || moved || finished && message_names_other(current.as_ref(), name) {
        let message = format!("ReplicaSet \"{name}\" is progressing.");
        let condition = Condition { kind: "Progressing", status: true, reason: "ReplicaSetUpdated", message: &message };
        set_condition(status, condition, &at, true);
        if let Some(deadline) = deadline(deployment, status) {
            plan.wake_at(deadline);
        }
        return;
    }
    // A finished rollout that lost a Pod is not a rollout: no deadline.
    if finished {
        return;
    }
    match deadline(deployment, status) {
        Some(deadline) if deadline <= now => {
            let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
            let condition =
                Condition { kind: "Progressing", status: false, reason: "ProgressDeadlineExceeded", message: &message };
            let first = reason.as_deref() != Some("ProgressDeadlineExceeded");
            set_condition(status, condition, &at, first);
        }
        Some(deadline) => plan.wake_at(deadline),
        None => {}
    }
}

fn message_names_other(condition: Option<&Value>, name: &str) -> bool {
    !condition.is_some_and(|c| object::text(c, "/message").contains(&format!("\"{name}\"")))
}

fn deadline(deployment: &Value, status: &Value) -> Option<Timestamp> {
    let seconds = deployment.pointer("/spec/progressDeadlineSeconds").and_then(Value::as_i64).unwrap_or(600);
    let since = object::text(condition::find(status, "Progressing")?, "/lastUpdateTime");
    since.parse::<Timestamp>().ok()?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Deployment conditions also carry `lastUpdateTime`; it moves when `touch` or when anything else does.
fn set_condition(status: &mut Value, condition: Condition<'_>, now: &str, touch: bool) {
    let before = condition::find(status, condition.kind).cloned();
    condition::set(status, condition, now);
    let Some(mut entry) = condition::find(status, condition.kind).cloned() else { return };
    let same = before
        .as_ref()
        .is_some_and(|before| ["/status", "/reason", "/message"].iter().all(|p| before.pointer(p) == entry.pointer(p)));
    let since =
        before.as_ref().filter(|_| same && !touch).map_or(now, |b| object::text(b, "/lastUpdateTime")).to_owned();
    entry["lastUpdateTime"] = json!(since);
    condition::put(status, condition.kind, entry);
}

// === impl Family ===

impl Family {
    fn of(deployment: &Value, owned: &[Arc<Value>]) -> Self {
        let template = deployment.pointer("/spec/template").unwrap_or(&Value::Null);
        let mut sets: Vec<Value> = owned.iter().map(|set| set.as_ref().clone()).collect();
        sets.sort_by_key(|set| {
            (object::text(set, "/metadata/creationTimestamp").to_owned(), object::name(set).to_owned())
        });
        let new = sets.iter().position(|set| same_template(template, set)).map(|at| sets.remove(at));
        Self { new, old: sets }
    }

    /// One more than the highest revision of the old ReplicaSets.
    fn next_revision(&self) -> i64 {
        self.old.iter().map(revision).max().unwrap_or(0) + 1
    }
}

/// Whether a ReplicaSet has this template, its hash label aside.
fn same_template(template: &Value, set: &Value) -> bool {
    let mut theirs = set.pointer("/spec/template").cloned().unwrap_or_default();
    if let Some(labels) = theirs.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    theirs == *template
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(replicas: i64, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "n", "uid": "1", "generation": 1},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}},
            },
        })
    }

    fn created(plan: &Plan) -> Value {
        let set = plan.actions.iter().find_map(|a| match a {
            Action::Create { object, .. } => Some(object.clone()),
            _ => None,
        });
        set.unwrap()
    }

    #[test]
    fn the_first_replica_set_carries_hash_revision_and_owner() {
        let plan = plan(&deployment(2, "a"), &[], &[], Timestamp::UNIX_EPOCH);
        let set = created(&plan);
        let hash = set["metadata"]["labels"][TEMPLATE_HASH].as_str().unwrap();
        assert_eq!(set["metadata"]["name"], format!("web-{hash}"));
        assert_eq!(set["spec"]["selector"]["matchLabels"][TEMPLATE_HASH], hash);
        assert_eq!(set["spec"]["template"]["metadata"]["labels"][TEMPLATE_HASH], hash);
        assert_eq!(set["metadata"]["annotations"][REVISION], "1");
        assert_eq!(set["spec"]["replicas"], 2);
    }

    #[test]
    fn a_new_image_makes_a_second_replica_set_and_starts_with_the_surge() {
        let mut first = created(&plan(&deployment(4, "a"), &[], &[], Timestamp::UNIX_EPOCH));
        first["status"] = json!({"replicas": 4, "readyReplicas": 4, "availableReplicas": 4});
        let plan = plan(&deployment(4, "b"), &[Arc::new(first)], &[], Timestamp::UNIX_EPOCH);
        let second = created(&plan);
        assert_eq!(second["spec"]["replicas"], 1, "25 % of 4, rounded up");
        assert_eq!(second["metadata"]["annotations"][REVISION], "2");
    }

    #[test]
    fn a_settled_deployment_needs_nothing() {
        let mut subject = deployment(1, "a");
        let mut set = created(&plan(&subject, &[], &[], Timestamp::UNIX_EPOCH));
        set["status"] = json!({"replicas": 1, "readyReplicas": 1, "availableReplicas": 1});
        subject["metadata"]["annotations"] = json!({REVISION: "1"});
        let sets = [Arc::new(set)];
        for _ in 0..3 {
            for action in plan(&subject, &sets, &[], Timestamp::UNIX_EPOCH).actions {
                let Action::Status { object, .. } = action else { panic!("{action:?}") };
                subject = object;
            }
        }
        assert_eq!(plan(&subject, &sets, &[], Timestamp::UNIX_EPOCH).actions, []);
        assert!(condition::is_true(&subject, "Available") && condition::is_true(&subject, "Progressing"));
    }
}
