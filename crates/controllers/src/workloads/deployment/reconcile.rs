//! Reconciles a Deployment: creates its new ReplicaSet and continues the rollout by one step.

use std::sync::Arc;

use apimachinery::{LabelSelector, object};
use jiff::Timestamp;
use serde_json::Value;

use super::RESOURCE;
use super::progress;
use super::proportional::{self, ReplicaSetSize};
use super::replica_sets::{
    ReplicaSets, create_replica_set, delete_old_replica_sets, desired_replicas_annotation, is_recreate,
    max_replicas_annotation, scale, with_updated_revision, with_updated_settings,
};
use crate::workloads::action::{Action, Plan};
use crate::workloads::replica_set::{self, replicas};
use crate::workloads::{ownership, rolling_update};

/// Reconciles a Deployment with the ReplicaSets and (for `Recreate`) the Pods of its namespace.
pub(crate) fn plan(deployment: &Value, sets: &[Arc<Value>], pods: &[Arc<Value>], now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let selector = deployment.pointer("/spec/selector").unwrap_or(&Value::Null);
    let Ok(selector) = LabelSelector::from_json(selector) else { return plan };
    let claim = ownership::claim_objects(deployment, &selector, sets);
    if !claim.updates.is_empty() {
        let update = |object| Action::Update { resource: replica_set::RESOURCE, object };
        plan.actions.extend(claim.updates.into_iter().map(update));
        return plan; // the next plan sees the updated ReplicaSets
    }
    let mut replica_sets = ReplicaSets::new(deployment, &claim.owned);
    if !object::is_deleting(deployment) {
        roll_out(&mut plan, deployment, &mut replica_sets, pods);
    }
    progress::sync_status(&mut plan, deployment, &replica_sets, now);
    plan
}

/// Creates the new ReplicaSet, or scales the ReplicaSets by one step of the rollout.
fn roll_out(plan: &mut Plan, deployment: &Value, replica_sets: &mut ReplicaSets, pods: &[Arc<Value>]) {
    let paused = deployment.pointer("/spec/paused") == Some(&Value::Bool(true));
    let Some(new) = &replica_sets.new else {
        if paused {
            sync_scale(plan, deployment, replica_sets);
            return;
        }
        if is_recreate(deployment) && scale_down_old(plan, deployment, replica_sets, pods) {
            return;
        }
        create_replica_set(plan, deployment, replica_sets);
        return;
    };
    if let Some(updated) = with_updated_settings(deployment, new, replica_sets.next_revision()) {
        plan.push(Action::Update { resource: replica_set::RESOURCE, object: updated });
        return;
    }
    if let Some(deployment) = with_updated_revision(deployment, new) {
        plan.push(Action::Update { resource: RESOURCE, object: deployment });
        return;
    }
    if paused || is_scaling_event(deployment, replica_sets) {
        sync_scale(plan, deployment, replica_sets);
        return;
    }
    if is_recreate(deployment) {
        if !scale_down_old(plan, deployment, replica_sets, pods) {
            scale(plan, deployment, new, replicas(deployment));
        }
        return;
    }
    let strategy = rolling_update::RollingUpdateStrategy::new(deployment);
    let step = rolling_update::next_step(
        &strategy,
        &rolling_update::ReplicaCounts::new(new),
        &replica_sets.old.iter().map(rolling_update::ReplicaCounts::new).collect::<Vec<_>>(),
    );
    scale(plan, deployment, new, step.new);
    for (set, target) in replica_sets.old.iter().zip(step.old) {
        scale(plan, deployment, set, target);
    }
    delete_old_replica_sets(plan, deployment, replica_sets);
}

/// Whether `spec.replicas` has changed since the ReplicaSets were last scaled (`isScalingEvent`).
fn is_scaling_event(deployment: &Value, replica_sets: &ReplicaSets) -> bool {
    let desired = replicas(deployment);
    replica_sets.active().iter().any(|set| desired_replicas_annotation(set).is_some_and(|before| before != desired))
}

/// Scales the ReplicaSets to `spec.replicas` without continuing the rollout.
fn sync_scale(plan: &mut Plan, deployment: &Value, replica_sets: &ReplicaSets) {
    let active = replica_sets.active();
    let desired = replicas(deployment);
    match active.as_slice() {
        [] => replica_sets.latest().into_iter().for_each(|set| scale(plan, deployment, set, desired)),
        [single] => scale(plan, deployment, single, desired),
        _ if replica_sets.is_saturated(desired) => {
            replica_sets.old.iter().for_each(|set| scale(plan, deployment, set, 0));
        }
        _ if is_recreate(deployment) => {}
        several => {
            let status_replicas = deployment.pointer("/status/replicas").and_then(Value::as_i64).unwrap_or(0);
            let replica_set_size = |set: &&Value| ReplicaSetSize {
                replicas: replicas(set),
                previous_max_replicas: max_replicas_annotation(set).unwrap_or(status_replicas),
            };
            let sizes: Vec<ReplicaSetSize> = several.iter().map(replica_set_size).collect();
            let sizes = proportional::scaled_sizes(&rolling_update::RollingUpdateStrategy::new(deployment), &sizes);
            several.iter().zip(sizes).for_each(|(set, size)| scale(plan, deployment, set, size));
        }
    }
}

/// Scales the old ReplicaSets to 0 for `Recreate`; returns whether old Pods still exist.
fn scale_down_old(plan: &mut Plan, deployment: &Value, replica_sets: &ReplicaSets, pods: &[Arc<Value>]) -> bool {
    let mut has_old_pods = false;
    for set in &replica_sets.old {
        has_old_pods |= replicas(set) > 0 || pods.iter().any(|pod| ownership::controls(set, pod));
        scale(plan, deployment, set, 0);
    }
    has_old_pods
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use apimachinery::condition;

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

    fn created_replica_set(plan: &Plan) -> Value {
        let set = plan.actions.iter().find_map(|a| match a {
            Action::Create { object, .. } => Some(object.clone()),
            _ => None,
        });
        set.unwrap()
    }

    #[test]
    fn creates_replica_set_with_hash_and_revision() {
        let plan = plan(&deployment(2, "a"), &[], &[], Timestamp::UNIX_EPOCH);
        let set = created_replica_set(&plan);
        let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
        assert_eq!(set["metadata"]["name"], format!("web-{hash}"));
        assert_eq!(set["spec"]["selector"]["matchLabels"]["pod-template-hash"], hash);
        assert_eq!(set["spec"]["template"]["metadata"]["labels"]["pod-template-hash"], hash);
        assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
        assert_eq!(set["spec"]["replicas"], 2);
    }

    #[test]
    fn new_image_creates_replica_set_within_surge() {
        let mut first = created_replica_set(&plan(&deployment(4, "a"), &[], &[], Timestamp::UNIX_EPOCH));
        first["status"] = json!({"replicas": 4, "readyReplicas": 4, "availableReplicas": 4});
        let plan = plan(&deployment(4, "b"), &[Arc::new(first)], &[], Timestamp::UNIX_EPOCH);
        let second = created_replica_set(&plan);
        assert_eq!(second["spec"]["replicas"], 1, "25 % of 4, rounded up");
        assert_eq!(second["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    }

    #[test]
    fn min_ready_seconds_apply_to_the_existing_replica_set() {
        let mut deployment = deployment(1, "a");
        deployment["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "1"});
        let set = created_replica_set(&plan(&deployment, &[], &[], Timestamp::UNIX_EPOCH));
        deployment["spec"]["minReadySeconds"] = json!(10);
        let plan = plan(&deployment, &[Arc::new(set)], &[], Timestamp::UNIX_EPOCH);
        let updated = plan.actions.iter().find_map(|action| match action {
            Action::Update { object, .. } => Some(object["spec"]["minReadySeconds"].clone()),
            _ => None,
        });
        assert_eq!(updated, Some(json!(10)));
    }

    #[test]
    fn complete_deployment_needs_no_action() {
        let mut deployment = deployment(1, "a");
        let mut set = created_replica_set(&plan(&deployment, &[], &[], Timestamp::UNIX_EPOCH));
        set["status"] = json!({"replicas": 1, "readyReplicas": 1, "availableReplicas": 1});
        deployment["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "1"});
        let sets = [Arc::new(set)];
        for _ in 0..3 {
            for action in plan(&deployment, &sets, &[], Timestamp::UNIX_EPOCH).actions {
                let Action::UpdateStatus { object, .. } = action else { panic!("{action:?}") };
                deployment = object;
            }
        }
        assert_eq!(plan(&deployment, &sets, &[], Timestamp::UNIX_EPOCH).actions, []);
        assert!(condition::is_true(&deployment, "Available") && condition::is_true(&deployment, "Progressing"));
    }

    /// A Deployment with ten replicas and a surge of three is scaled to fifteen during a rollout; the old ReplicaSet
    /// has eight replicas.
    #[rstest]
    #[case::rolling(false)]
    #[case::paused(true)]
    fn scales_two_replica_sets_proportionally(#[case] paused: bool) {
        let replica_set = |image: &str, size: i64| {
            let mut deployment = deployment(10, image);
            deployment["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
            let mut set = created_replica_set(&plan(&deployment, &[], &[], Timestamp::UNIX_EPOCH));
            set["spec"]["replicas"] = json!(size);
            set["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:0{}Z", 9 - size));
            set["metadata"]["annotations"]["deployment.kubernetes.io/revision"] =
                json!(if image == "a" { "1" } else { "2" });
            set
        };
        let sets = [Arc::new(replica_set("a", 8)), Arc::new(replica_set("b", 5))];
        let mut deployment = deployment(15, "b");
        deployment["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "2"});
        deployment["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
        deployment["spec"]["paused"] = json!(paused);
        let actions = plan(&deployment, &sets, &[], Timestamp::UNIX_EPOCH).actions.into_iter();
        let sizes: Vec<i64> = actions
            .filter_map(|action| match action {
                Action::Update { resource: replica_set::RESOURCE, object } => Some(replicas(&object)),
                _ => None,
            })
            .collect();
        assert_eq!(sizes, [11, 7]);
    }
}
