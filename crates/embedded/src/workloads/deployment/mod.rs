//! Deployment: ReplicaSets that follow a template, old ones replaced at a measured pace.
//!
//! The rules are those of `pkg/controller/deployment`: [`rolling`] is its `rolling.go`, [`proportional`] the scaling of
//! several generations, [`replica_sets`] the rest of its `sync.go`, [`progress`] its `progress.go`. Not done: rollback,
//! which was removed from `apps/v1`.

mod progress;
mod proportional;
mod replica_sets;

use std::sync::Arc;

use apimachinery::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::Value;

use super::action::{Action, Plan};
use super::replica_set::{self, replicas};
use super::{ownership, rolling};
use crate::object;
use proportional::Part;
use replica_sets::{annotated, create, desired_before, most_before, prune, revised, revision, same_template, scale};

pub(crate) const RESOURCE: &str = "deployments.apps";

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
    progress::status(&mut plan, deployment, &family, now);
    plan
}

/// Creates the new ReplicaSet, or scales the family one step.
fn roll(plan: &mut Plan, deployment: &Value, family: &mut Family, pods: &[Arc<Value>]) {
    let paused = deployment.pointer("/spec/paused") == Some(&Value::Bool(true));
    let Some(new) = &family.new else {
        if paused {
            scale_all(plan, deployment, family);
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
    if paused || is_scaled(deployment, family) {
        scale_all(plan, deployment, family);
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

/// Whether another number is asked for than when the ReplicaSets were last scaled.
fn is_scaled(deployment: &Value, family: &Family) -> bool {
    let desired = replicas(deployment);
    family.active().iter().any(|set| desired_before(set).is_some_and(|before| before != desired))
}

/// Follows the number that is asked for, without moving Pods from one generation to the other.
fn scale_all(plan: &mut Plan, deployment: &Value, family: &Family) {
    let active = family.active();
    let desired = replicas(deployment);
    match active.as_slice() {
        [] => family.latest().into_iter().for_each(|set| scale(plan, deployment, set, desired)),
        [only] => scale(plan, deployment, only, desired),
        _ if family.is_saturated(desired) => {
            family.old.iter().for_each(|set| scale(plan, deployment, set, 0));
        }
        _ if recreates(deployment) => {}
        parts => {
            let shown = deployment.pointer("/status/replicas").and_then(Value::as_i64).unwrap_or(0);
            let part = |set: &&Value| Part { replicas: replicas(set), most_before: most_before(set).unwrap_or(shown) };
            let sizes: Vec<Part> = parts.iter().map(part).collect();
            let sizes = proportional::scaled(&rolling::Strategy::of(deployment), &sizes);
            parts.iter().zip(sizes).for_each(|(set, size)| scale(plan, deployment, set, size));
        }
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

    /// Those that are to have Pods, oldest first.
    fn active(&self) -> Vec<&Value> {
        self.old.iter().chain(&self.new).filter(|set| replicas(set) > 0).collect()
    }

    /// The new ReplicaSet, or the youngest of the old.
    fn latest(&self) -> Option<&Value> {
        self.new.as_ref().or(self.old.last())
    }

    /// Whether the new ReplicaSet has, available, all that is asked for.
    fn is_saturated(&self, desired: i64) -> bool {
        let new = self.new.as_ref();
        new.is_some_and(|new| replicas(new) == desired && rolling::Counts::of(new).available == desired)
    }

    /// One more than the highest revision of the old ReplicaSets.
    fn next_revision(&self) -> i64 {
        self.old.iter().map(revision).max().unwrap_or(0) + 1
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::condition;
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
        let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
        assert_eq!(set["metadata"]["name"], format!("web-{hash}"));
        assert_eq!(set["spec"]["selector"]["matchLabels"]["pod-template-hash"], hash);
        assert_eq!(set["spec"]["template"]["metadata"]["labels"]["pod-template-hash"], hash);
        assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
        assert_eq!(set["spec"]["replicas"], 2);
    }

    #[test]
    fn a_new_image_makes_a_second_replica_set_and_starts_with_the_surge() {
        let mut first = created(&plan(&deployment(4, "a"), &[], &[], Timestamp::UNIX_EPOCH));
        first["status"] = json!({"replicas": 4, "readyReplicas": 4, "availableReplicas": 4});
        let plan = plan(&deployment(4, "b"), &[Arc::new(first)], &[], Timestamp::UNIX_EPOCH);
        let second = created(&plan);
        assert_eq!(second["spec"]["replicas"], 1, "25 % of 4, rounded up");
        assert_eq!(second["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    }

    #[test]
    fn a_settled_deployment_needs_nothing() {
        let mut subject = deployment(1, "a");
        let mut set = created(&plan(&subject, &[], &[], Timestamp::UNIX_EPOCH));
        set["status"] = json!({"replicas": 1, "readyReplicas": 1, "availableReplicas": 1});
        subject["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "1"});
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

    /// Ten replicas with a surge of three, of which eight are of the old template, become fifteen.
    #[rstest]
    #[case::while_it_rolls(false)]
    #[case::while_it_is_paused(true)]
    fn a_scale_between_two_generations_is_shared(#[case] paused: bool) {
        let generation = |image: &str, size: i64| {
            let mut subject = deployment(10, image);
            subject["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
            let mut set = created(&plan(&subject, &[], &[], Timestamp::UNIX_EPOCH));
            set["spec"]["replicas"] = json!(size);
            set["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:0{}Z", 9 - size));
            set["metadata"]["annotations"]["deployment.kubernetes.io/revision"] =
                json!(if image == "a" { "1" } else { "2" });
            set
        };
        let sets = [Arc::new(generation("a", 8)), Arc::new(generation("b", 5))];
        let mut subject = deployment(15, "b");
        subject["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "2"});
        subject["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
        subject["spec"]["paused"] = json!(paused);
        let written = plan(&subject, &sets, &[], Timestamp::UNIX_EPOCH).actions.into_iter();
        let sizes: Vec<i64> = written
            .filter_map(|action| match action {
                Action::Update { resource: replica_set::RESOURCE, object } => Some(replicas(&object)),
                _ => None,
            })
            .collect();
        assert_eq!(sizes, [11, 7]);
    }
}
