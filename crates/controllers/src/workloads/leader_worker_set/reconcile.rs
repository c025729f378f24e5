//! Reconciles a LeaderWorkerSet: creates, recreates, updates and deletes its groups.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use apimachinery::{object, pod, time};
use jiff::Timestamp;
use serde_json::Value;

use super::broken_groups::BrokenGroups;
use super::group::{self, Group, group_size, revision_of};
use super::rolling_update::{GroupState, is_update_in_progress};
use super::spec::{LeaderWorkerSetSpec, has_subdomain_per_replica};
use super::{exclusive, pods, status};
use crate::workloads::action::{Action, Plan};

/// Minimum age of a group before it is recreated, in seconds. The real controller needs no such limit, because its StatefulSets
/// delay it.
const MIN_RECREATE_INTERVAL_SECONDS: i64 = 10;

/// Reconciles a LeaderWorkerSet with the Pods and Services of its namespace. `node` looks up a node by name.
pub(crate) fn plan(
    set: &Value,
    pods: &[Arc<Value>],
    services: &[Arc<Value>],
    node: &dyn Fn(&str) -> Option<Arc<Value>>,
    broken: &BrokenGroups,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    if object::is_deleting(set) {
        return plan;
    }
    let spec = LeaderWorkerSetSpec::new(set);
    let existing = group::existing_groups(&spec, pods);
    let states: Vec<GroupState> = existing.iter().map(|group| group.state(&spec)).collect();
    let group_count = spec.rolling_update.group_count(&states, is_update_in_progress(set));
    let groups = group::with_missing_groups(existing, group_count);
    if !has_subdomain_per_replica(set) && !services.iter().any(|s| has_name(s, spec.namespace, spec.name)) {
        plan.push(Action::Create { resource: "services", object: pods::service(&spec, spec.name) });
    }
    for group in &groups {
        if plan.is_burst_complete() {
            break;
        }
        if group.index >= group_count {
            delete_group(&mut plan, group);
        } else if !recreate_if_broken(&mut plan, &spec, group, broken, now) {
            create_missing_pods(&mut plan, &spec, group, services, node);
        }
    }
    let updated_from = spec.rolling_update.first_updated(&states);
    update_groups(&mut plan, &spec, &groups, updated_from..group_count);
    status::update(&mut plan, &spec, &groups, now);
    plan
}

/// Whether the object has this namespace and name.
fn has_name(object: &Value, namespace: &str, name: &str) -> bool {
    object::namespace(object) == namespace && object::name(object) == name
}

/// Creates the missing Pods of a group.
fn create_missing_pods(
    plan: &mut Plan,
    spec: &LeaderWorkerSetSpec<'_>,
    group: &Group,
    services: &[Arc<Value>],
    node: &dyn Fn(&str) -> Option<Arc<Value>>,
) {
    let Some(leader) = &group.leader else {
        // Workers of a previous leader are deleted first, because the new workers have the same names.
        if group.workers.is_empty() {
            let leader = pods::leader_pod(spec, group.index);
            let name = object::name(&leader).to_owned();
            if has_subdomain_per_replica(spec.set) && !services.iter().any(|s| has_name(s, spec.namespace, &name)) {
                plan.push(Action::Create { resource: "services", object: pods::service(spec, &name) });
            }
            plan.push(Action::Create { resource: "pods", object: leader });
            plan.normal_event(spec.set, "GroupsProgressing", format!("Created leader pod {name}"));
        }
        return;
    };
    if object::is_deleting(leader) || revision_of(leader) != spec.revision {
        return;
    }
    if object::text(spec.set, "/spec/startupPolicy") == "LeaderReady" && !pod::is_ready(leader) {
        return;
    }
    let Some(placement) = exclusive::worker_placement(leader, node) else { return };
    let existing: BTreeSet<&str> = group.workers.iter().map(|worker| object::name(worker)).collect();
    for index in 1..group_size(leader) {
        if plan.is_burst_complete() {
            return;
        }
        let name = format!("{}-{index}", object::name(leader));
        if !existing.contains(name.as_str()) {
            let worker = placement.apply(pods::worker_pod(spec, leader, group.index, index));
            plan.push(Action::Create { resource: "pods", object: worker });
        }
    }
}

/// Deletes the workers and the leader of a group, without relying on garbage collection for the workers. The leader is
/// last: as long as it exists, the next plan continues a deletion that exceeds the burst.
fn delete_group(plan: &mut Plan, group: &Group) {
    for pod in group.workers.iter().chain(&group.leader).filter(|pod| !object::is_deleting(pod)) {
        if plan.is_burst_complete() {
            return;
        }
        plan.push(Action::Delete { resource: "pods", object: Arc::clone(pod) });
    }
}

/// Recreates the group under `RecreateGroupOnPodRestart` (the default) when a container has restarted or a worker is
/// being deleted or was removed. Returns whether the group is being recreated.
fn recreate_if_broken(
    plan: &mut Plan,
    spec: &LeaderWorkerSetSpec<'_>,
    group: &Group,
    broken: &BrokenGroups,
    now: Timestamp,
) -> bool {
    let policy = object::text(spec.set, "/spec/leaderWorkerTemplate/restartPolicy");
    let recreates_group = matches!(policy, "" | "RecreateGroupOnPodRestart" | "Default" | "RecreateGroupAfterStart");
    let Some(leader) = group.leader.as_ref().filter(|_| recreates_group) else { return false };
    let is_broken = broken.contains(leader)
        || group.workers.iter().any(|worker| object::is_deleting(worker) || !pod::is_active(worker))
        || group.workers.iter().chain([leader]).any(|pod| has_restarted(pod))
        || !pod::is_active(leader) && !object::is_deleting(leader);
    if !is_broken || object::is_deleting(leader) {
        return is_broken;
    }
    let created_at: Option<Timestamp> = object::text(leader, "/metadata/creationTimestamp").parse().ok();
    let recreate_at = created_at.map_or(now, |at| time::add_seconds(at, MIN_RECREATE_INTERVAL_SECONDS));
    if recreate_at > now {
        plan.requeue_at(recreate_at);
        return false;
    }
    delete_group(plan, group);
    let message = format!("Recreating group {} because one of its Pods restarted, failed or was deleted", group.index);
    plan.normal_event(spec.set, "RecreateGroupOnPodRestart", message);
    true
}

/// Whether any container of the Pod has restarted.
fn has_restarted(pod: &Value) -> bool {
    ["initContainerStatuses", "containerStatuses"].iter().any(|list| {
        let statuses = pod.pointer(&format!("/status/{list}")).and_then(Value::as_array);
        statuses.into_iter().flatten().any(|s| s.get("restartCount").and_then(Value::as_i64).unwrap_or(0) > 0)
    })
}

/// Deletes groups of an older revision with an index in `indices`, highest index first.
fn update_groups(plan: &mut Plan, spec: &LeaderWorkerSetSpec<'_>, groups: &[Group], indices: Range<i64>) {
    for group in groups.iter().rev().filter(|group| indices.contains(&group.index)) {
        if plan.is_burst_complete() {
            break;
        }
        let is_outdated = |leader: &Arc<Value>| !object::is_deleting(leader) && revision_of(leader) != spec.revision;
        if group.leader.as_ref().is_some_and(is_outdated) {
            delete_group(plan, group);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::labels::{GROUP_INDEX, LEADER_NAME, WORKER_INDEX};
    use super::*;
    use crate::workloads::action::BURST_REPLICAS;

    fn set(replicas: i64, size: i64) -> Value {
        json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": {"name": "llama", "namespace": "n", "uid": "1"},
            "spec": {"replicas": replicas, "leaderWorkerTemplate": {
                "size": size,
                "workerTemplate": {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}},
            }},
        })
    }

    fn created_pods(plan: &Plan) -> Vec<Value> {
        let pods = plan.actions.iter().filter_map(|action| match action {
            Action::Create { resource: "pods", object } => Some(object.clone()),
            _ => None,
        });
        pods.collect()
    }

    #[test]
    fn creates_leader_then_workers() {
        let first =
            created_pods(&plan(&set(1, 3), &[], &[], &|_| None, &BrokenGroups::default(), Timestamp::UNIX_EPOCH));
        assert_eq!(first.len(), 1);
        let mut leader = first[0].clone();
        assert_eq!(object::name(&leader), "llama-0");
        assert_eq!(
            leader["spec"]["containers"][0]["env"],
            json!([
                {"name": "LWS_LEADER_ADDRESS", "value": "llama-0.llama.n"},
                {"name": "LWS_GROUP_SIZE", "value": "3"},
                {"name": "LWS_WORKER_INDEX", "value": "0"},
                {"name": "A", "value": "1"},
            ])
        );
        leader["metadata"]["uid"] = json!("leader");
        let workers = created_pods(&plan(
            &set(1, 3),
            &[Arc::new(leader)],
            &[],
            &|_| None,
            &BrokenGroups::default(),
            Timestamp::UNIX_EPOCH,
        ));
        let names: Vec<_> = workers.iter().map(object::name).collect();
        assert_eq!(names, ["llama-0-1", "llama-0-2"]);
        let owner = object::controller_of(&workers[1]).unwrap();
        assert_eq!((owner["kind"].as_str(), owner["uid"].as_str()), (Some("Pod"), Some("leader")));
        assert_eq!(workers[1]["metadata"]["labels"][WORKER_INDEX], "2");
        assert_eq!(workers[1]["metadata"]["annotations"][LEADER_NAME], "llama-0");
    }

    #[test]
    fn creates_and_deletes_one_burst_of_pods() {
        let new_plan = |set: &Value, pods: &[Arc<Value>]| {
            plan(set, pods, &[], &|_| None, &BrokenGroups::default(), Timestamp::UNIX_EPOCH)
        };
        let first = created_pods(&new_plan(&set(2_000_000_000, 1), &[]));
        assert_eq!(first.len(), BURST_REPLICAS);
        // A Pod with an index that no group has adds no other group.
        let mut stray = first[0].clone();
        stray["metadata"]["labels"][GROUP_INDEX] = json!(i64::MAX.to_string());
        let pods: Vec<_> = first.iter().skip(1).chain([&stray]).cloned().map(Arc::new).collect();
        let scaled_down = new_plan(&set(0, 1), &pods);
        assert_eq!(scaled_down.actions.iter().filter(|a| matches!(a, Action::Delete { .. })).count(), BURST_REPLICAS);

        let large_groups = set(1, 2_000_000_000);
        let mut leader = created_pods(&new_plan(&large_groups, &[])).remove(0);
        leader["metadata"]["uid"] = json!("leader");
        assert_eq!(created_pods(&new_plan(&large_groups, &[Arc::new(leader)])).len(), BURST_REPLICAS);
    }

    /// A person can copy the labels of a Pod.
    #[test]
    fn never_deletes_pods_that_the_set_does_not_control() {
        let mut copy =
            created_pods(&plan(&set(1, 1), &[], &[], &|_| None, &BrokenGroups::default(), Timestamp::UNIX_EPOCH))
                .remove(0);
        copy["metadata"]["ownerReferences"] = json!([]);
        let scaled_down =
            plan(&set(0, 1), &[Arc::new(copy)], &[], &|_| None, &BrokenGroups::default(), Timestamp::UNIX_EPOCH);
        assert!(!scaled_down.actions.iter().any(|action| matches!(action, Action::Delete { .. })), "{scaled_down:?}");
    }

    #[test]
    fn deletes_leader_of_a_large_group_last() {
        let member = |name: String| Arc::new(json!({"metadata": {"name": name}}));
        let workers: Vec<_> = (0..BURST_REPLICAS).map(|n| member(format!("w{n}"))).collect();
        let mut first = Plan::default();
        delete_group(&mut first, &Group { index: 0, leader: Some(member("leader".to_owned())), workers });
        assert!(first.is_burst_complete());
        assert!(
            !first
                .actions
                .iter()
                .any(|a| matches!(a, Action::Delete { object, .. } if object::name(object) == "leader"))
        );
    }

    #[test]
    fn updates_one_group_at_a_time() {
        let ready = |mut pod: Value| {
            pod["metadata"]["uid"] = json!("u");
            pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            Arc::new(pod)
        };
        let pods: Vec<_> =
            created_pods(&plan(&set(2, 1), &[], &[], &|_| None, &BrokenGroups::default(), Timestamp::UNIX_EPOCH))
                .into_iter()
                .map(ready)
                .collect();
        let mut changed = set(2, 1);
        changed["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = json!("new");
        let plan = plan(&changed, &pods, &[], &|_| None, &BrokenGroups::default(), Timestamp::UNIX_EPOCH);
        let deleted: Vec<_> = plan
            .actions
            .iter()
            .filter_map(|a| match a {
                Action::Delete { object, .. } => Some(object::name(object)),
                _ => None,
            })
            .collect();
        assert_eq!(deleted, ["llama-1"]);
    }

    /// Executes the actions of a plan on Pods. Created Pods are ready once all Pods of their group exist.
    fn execute(plan: &Plan, pods: &[Arc<Value>]) -> Vec<Arc<Value>> {
        let is_deleted =
            |pod: &Arc<Value>| plan.actions.contains(&Action::Delete { resource: "pods", object: Arc::clone(pod) });
        let ready = |mut pod: Value| {
            pod["metadata"]["uid"] = json!(object::name(&pod));
            pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            Arc::new(pod)
        };
        let remaining = pods.iter().filter(|pod| !is_deleted(pod)).cloned();
        remaining.chain(created_pods(plan).into_iter().map(ready)).collect()
    }

    /// The group of two Pods serves until an additional group of four is ready, which then serves until the group is recreated.
    #[test]
    fn size_changes_with_an_additional_group() {
        let rollout = |size: i64| {
            let mut set = set(1, size);
            set["spec"]["rolloutStrategy"] =
                json!({"rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}});
            set
        };
        let (mut pods, mut observed) = (Vec::new(), Vec::new());
        for size in [2, 2, 2, 4, 4, 4, 4, 4, 4] {
            pods = execute(
                &plan(&rollout(size), &pods, &[], &|_| None, &BrokenGroups::default(), Timestamp::UNIX_EPOCH),
                &pods,
            );
            let count = |group: &str| pods.iter().filter(|pod| object::label(pod, GROUP_INDEX) == Some(group)).count();
            observed.push((count("0"), count("1")));
        }
        // Each leader is created before its workers.
        let expected = [(1, 0), (2, 0), (2, 0), (2, 1), (2, 4), (0, 4), (1, 4), (4, 4), (4, 0)];
        assert_eq!(observed, expected);
    }

    /// Recreating a broken group is no update: no additional group replaces it.
    #[test]
    fn broken_group_is_recreated_without_an_additional_one() {
        let mut set = set(1, 2);
        set["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}});
        let new_plan =
            |pods: &[Arc<Value>]| plan(&set, pods, &[], &|_| None, &BrokenGroups::default(), Timestamp::UNIX_EPOCH);
        let mut pods = Vec::new();
        for _ in 0..2 {
            pods = execute(&new_plan(&pods), &pods);
        }
        let mut leader = (*pods[0]).clone();
        leader["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
        pods[0] = Arc::new(leader);
        let stopping = new_plan(&pods);
        assert_eq!(created_pods(&stopping), Vec::<Value>::new());
        let is_updating = |action: &Action| match action {
            Action::UpdateStatus { object, .. } => is_update_in_progress(object),
            _ => false,
        };
        assert!(!stopping.actions.iter().any(is_updating), "{stopping:?}");
    }
}
