//! LeaderWorkerSet: groups of Pods, each with one leader and `size - 1` workers, which are created and recreated
//! together.
//!
//! Pods have the metadata that the webhooks of the real controller add: labels, annotations, host names, and the three
//! `LWS_*` variables, which precede the other environment variables of every container. `LWS_LEADER_ADDRESS` is the
//! host name of the leader, `{leader}.{subdomain}.{namespace}`. There is no DNS server, so the node agent replaces it
//! with the address of the leader when a container starts (`node::environment`).
//!
//! Differences from the real controller: the LeaderWorkerSet and the leader Pod own Pods directly, without
//! StatefulSets; `maxSurge` is ignored (an update replaces `maxUnavailable` groups at a time, at least one);
//! subgroups and volume claim templates are not supported; the value of `group-key` is a different hash.

mod exclusive;
mod pods;
mod status;

use std::sync::Arc;

use apimachinery::{object, pod, scaled_int_or_percent};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::action::{Action, Plan};
use super::hash;

/// Storage name of LeaderWorkerSets.
pub(crate) const RESOURCE: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

/// Label with the name of the set.
pub(crate) const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const GROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/group-key";
const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";

/// Minimum age of a group before it is recreated. The real controller needs no such limit, because its StatefulSets
/// delay it.
const MIN_RECREATE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// The settings of a LeaderWorkerSet, with defaults.
struct LeaderWorkerSetSpec<'a> {
    set: &'a Value,
    name: &'a str,
    namespace: &'a str,
    replicas: i64,
    size: i64,
    revision: String,
}

/// The existing Pods of one group.
struct Group {
    index: i64,
    leader: Option<Arc<Value>>,
    workers: Vec<Arc<Value>>,
}

/// Reconciles a LeaderWorkerSet with the Pods and Services of its namespace. `node` looks up a node by name.
pub(crate) fn plan(
    set: &Value,
    pods: &[Arc<Value>],
    services: &[Arc<Value>],
    node: &dyn Fn(&str) -> Option<Arc<Value>>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    if object::is_deleting(set) {
        return plan;
    }
    let spec = LeaderWorkerSetSpec::new(set);
    let groups = spec.groups(pods);
    if !has_subdomain_per_replica(set) && !services.iter().any(|s| has_name(s, spec.namespace, spec.name)) {
        plan.push(Action::Create { resource: "services", object: spec.service(spec.name) });
    }
    for group in &groups {
        if group.index >= spec.replicas {
            delete_group(&mut plan, group);
        } else if !recreate_if_broken(&mut plan, &spec, group, now) {
            create_missing_pods(&mut plan, &spec, group, services, node);
        }
    }
    update_groups(&mut plan, &spec, &groups);
    status::update(&mut plan, &spec, &groups, now);
    plan
}

/// Whether the object has this namespace and name.
fn has_name(object: &Value, namespace: &str, name: &str) -> bool {
    object::namespace(object) == namespace && object::name(object) == name
}

/// Whether `networkConfig.subdomainPolicy` is `UniquePerReplica`: one headless Service per group instead of one for
/// the set.
fn has_subdomain_per_replica(set: &Value) -> bool {
    object::text(set, "/spec/networkConfig/subdomainPolicy") == "UniquePerReplica"
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
            let leader = spec.leader_pod(group.index);
            let name = object::name(&leader).to_owned();
            if has_subdomain_per_replica(spec.set) && !services.iter().any(|s| has_name(s, spec.namespace, &name)) {
                plan.push(Action::Create { resource: "services", object: spec.service(&name) });
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
    for index in 1..group_size(leader) {
        let name = format!("{}-{index}", object::name(leader));
        if !group.workers.iter().any(|worker| object::name(worker) == name) {
            let worker = placement.apply(spec.worker_pod(leader, group.index, index));
            plan.push(Action::Create { resource: "pods", object: worker });
        }
    }
}

/// Deletes the leader and the workers of a group, without relying on garbage collection for the workers.
fn delete_group(plan: &mut Plan, group: &Group) {
    for pod in group.workers.iter().chain(&group.leader).filter(|pod| !object::is_deleting(pod)) {
        plan.push(Action::Delete { resource: "pods", object: Arc::clone(pod) });
    }
}

/// Recreates the group under `RecreateGroupOnPodRestart` (the default) when a container has restarted or a worker is
/// being deleted. Returns whether the group is being recreated.
fn recreate_if_broken(plan: &mut Plan, spec: &LeaderWorkerSetSpec<'_>, group: &Group, now: Timestamp) -> bool {
    let policy = object::text(spec.set, "/spec/leaderWorkerTemplate/restartPolicy");
    let recreates_group = matches!(policy, "" | "RecreateGroupOnPodRestart" | "Default" | "RecreateGroupAfterStart");
    let Some(leader) = group.leader.as_ref().filter(|_| recreates_group) else { return false };
    let is_broken = group.workers.iter().any(|worker| object::is_deleting(worker) || !pod::is_active(worker))
        || group.workers.iter().chain([leader]).any(|pod| has_restarted(pod))
        || !pod::is_active(leader) && !object::is_deleting(leader);
    if !is_broken || object::is_deleting(leader) {
        return is_broken;
    }
    let created_at: Option<Timestamp> = object::text(leader, "/metadata/creationTimestamp").parse().ok();
    let recreate_at = created_at.and_then(|at| at.checked_add(MIN_RECREATE_INTERVAL).ok()).unwrap_or(now);
    if recreate_at > now {
        plan.requeue_at(recreate_at);
        return false;
    }
    delete_group(plan, group);
    let message = format!("Recreating group {} because one of its pods restarted", group.index);
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

/// Deletes groups of an older revision, highest index first, down to the partition, within `maxUnavailable`.
fn update_groups(plan: &mut Plan, spec: &LeaderWorkerSetSpec<'_>, groups: &[Group]) {
    let rolling_update_field =
        |field: &str| spec.set.pointer(&format!("/spec/rolloutStrategy/rollingUpdateConfiguration/{field}"));
    let partition = rolling_update_field("partition").and_then(Value::as_i64).unwrap_or(0);
    let max_unavailable = rolling_update_field("maxUnavailable")
        .map_or(1, |v| scaled_int_or_percent(Some(v), spec.replicas, false))
        .max(1);
    let current = || groups.iter().filter(|group| group.index < spec.replicas);
    let mut unavailable = i64::try_from(current().filter(|group| !group.is_ready(spec)).count()).unwrap_or(0);
    for group in groups.iter().rev().filter(|g| g.index < spec.replicas && g.index >= partition) {
        let outdated =
            group.leader.as_ref().is_some_and(|l| !object::is_deleting(l) && revision_of(l) != spec.revision);
        if !outdated {
            continue;
        }
        let newly_unavailable = i64::from(group.is_ready(spec));
        if unavailable + newly_unavailable > max_unavailable && newly_unavailable > 0 {
            break;
        }
        unavailable += newly_unavailable;
        delete_group(plan, group);
    }
}

/// Returns the template revision of a Pod.
fn revision_of(pod: &Value) -> &str {
    label_value(pod, REVISION)
}

/// Returns a label of an object, empty when absent.
fn label_value<'a>(pod: &'a Value, key: &str) -> &'a str {
    pod.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str()).unwrap_or_default()
}

/// Returns the size that a group was created with.
fn group_size(leader: &Value) -> i64 {
    let annotations = leader.pointer("/metadata/annotations");
    annotations.and_then(|a| a.get(SIZE)?.as_str()?.parse().ok()).unwrap_or(1)
}

// === impl Group ===

impl Group {
    /// Whether the leader has the current revision.
    fn is_current(&self, spec: &LeaderWorkerSetSpec<'_>) -> bool {
        self.leader.as_ref().is_some_and(|leader| !object::is_deleting(leader) && revision_of(leader) == spec.revision)
    }

    /// Whether the leader and all workers are active and ready.
    fn is_ready(&self, _spec: &LeaderWorkerSetSpec<'_>) -> bool {
        let Some(leader) = &self.leader else { return false };
        let workers = i64::try_from(self.workers.len()).unwrap_or(0);
        workers == group_size(leader) - 1
            && self.workers.iter().chain([leader]).all(|pod| pod::is_active(pod) && pod::is_ready(pod))
    }
}

// === impl LeaderWorkerSetSpec ===

impl<'a> LeaderWorkerSetSpec<'a> {
    fn new(set: &'a Value) -> Self {
        let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64).unwrap_or(1);
        // Like a change of the Pod templates, a change of the network configuration or the group size replaces the
        // groups.
        let template = json!([set.pointer("/spec/leaderWorkerTemplate"), set.pointer("/spec/networkConfig")]);
        Self {
            set,
            name: object::name(set),
            namespace: object::namespace(set),
            replicas: number("/spec/replicas"),
            size: number("/spec/leaderWorkerTemplate/size"),
            revision: hash::template_hash(&template, 0),
        }
    }

    /// Returns the groups with index `0..replicas`, and groups with a higher index that still have Pods.
    fn groups(&self, pods: &[Arc<Value>]) -> Vec<Group> {
        let owned: Vec<&Arc<Value>> = pods
            .iter()
            .filter(|pod| object::namespace(pod) == self.namespace && label_value(pod, NAME) == self.name)
            .collect();
        let index = |pod: &Value| label_value(pod, GROUP_INDEX).parse::<i64>().unwrap_or(-1);
        let count = owned.iter().map(|pod| index(pod) + 1).max().unwrap_or(0).max(self.replicas);
        (0..count)
            .map(|group_index| {
                let members = || owned.iter().filter(|pod| index(pod) == group_index);
                Group {
                    index: group_index,
                    leader: members().find(|p| label_value(p, WORKER_INDEX) == "0").map(|p| Arc::clone(p)),
                    workers: members().filter(|p| label_value(p, WORKER_INDEX) != "0").map(|p| Arc::clone(p)).collect(),
                }
            })
            .filter(|group| group.index < self.replicas || group.leader.is_some() || !group.workers.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let first = created_pods(&plan(&set(1, 3), &[], &[], &|_| None, Timestamp::UNIX_EPOCH));
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
        let workers = created_pods(&plan(&set(1, 3), &[Arc::new(leader)], &[], &|_| None, Timestamp::UNIX_EPOCH));
        let names: Vec<_> = workers.iter().map(object::name).collect();
        assert_eq!(names, ["llama-0-1", "llama-0-2"]);
        let owner = object::controller_of(&workers[1]).unwrap();
        assert_eq!((owner["kind"].as_str(), owner["uid"].as_str()), (Some("Pod"), Some("leader")));
        assert_eq!(workers[1]["metadata"]["labels"][WORKER_INDEX], "2");
        assert_eq!(workers[1]["metadata"]["annotations"][LEADER_NAME], "llama-0");
    }

    #[test]
    fn updates_one_group_at_a_time() {
        let ready = |mut pod: Value| {
            pod["metadata"]["uid"] = json!("u");
            pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            Arc::new(pod)
        };
        let pods: Vec<_> = created_pods(&plan(&set(2, 1), &[], &[], &|_| None, Timestamp::UNIX_EPOCH))
            .into_iter()
            .map(ready)
            .collect();
        let mut changed = set(2, 1);
        changed["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = json!("new");
        let plan = plan(&changed, &pods, &[], &|_| None, Timestamp::UNIX_EPOCH);
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
}
