//! LeaderWorkerSet: groups of Pods, each one leader and `size - 1` workers that live and die together.
//!
//! Objects carry what the real controller's webhooks put on Pods: labels, annotations, host names and the three `LWS_*`
//! variables in front of every container's environment. `LWS_LEADER_ADDRESS` is the leader's host name
//! `{leader}.{subdomain}.{namespace}`, as there; no DNS runs here, so the node agent replaces it by the leader's address
//! when the container starts (`node::environment`).
//!
//! Simpler than the real one: Pods belong to the LeaderWorkerSet and to the leader Pod directly, no StatefulSets lie
//! between; `maxSurge` is not used (an update takes `maxUnavailable` groups at a time, at least one); sub-groups and
//! volume claims are not known; `group-key` is an opaque hash of ours.

mod exclusive;
mod pods;
mod status;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::action::{Action, Plan};
use super::{hash, pod, rolling};
use crate::object;

pub(crate) const RESOURCE: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

pub(crate) const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const GROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/group-key";
const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";

/// A group that fails at once is not recreated faster than this; the real controller is slowed by its StatefulSets.
const RECREATE_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// The set's own settings, with defaults.
struct Spec<'a> {
    set: &'a Value,
    name: &'a str,
    namespace: &'a str,
    replicas: i64,
    size: i64,
    revision: String,
}

/// One leader and its workers, as they are.
struct Group {
    index: i64,
    leader: Option<Arc<Value>>,
    workers: Vec<Arc<Value>>,
}

/// What follows from a LeaderWorkerSet, the Pods and the Services around it, and the nodes that its Pods have.
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
    let spec = Spec::of(set);
    let groups = spec.groups(pods);
    if !shares_nothing(set) && !services.iter().any(|s| is_named(s, spec.namespace, spec.name)) {
        plan.push(Action::Create { resource: "services", object: spec.service(spec.name) });
    }
    for group in &groups {
        if group.index >= spec.replicas {
            delete(&mut plan, group);
        } else if !restart(&mut plan, &spec, group, now) {
            fill(&mut plan, &spec, group, services, node);
        }
    }
    update(&mut plan, &spec, &groups);
    status::write(&mut plan, &spec, &groups, now);
    plan
}

fn is_named(object: &Value, namespace: &str, name: &str) -> bool {
    object::namespace(object) == namespace && object::name(object) == name
}

/// `networkConfig.subdomainPolicy: UniquePerReplica`: one headless Service per group instead of one for all.
fn shares_nothing(set: &Value) -> bool {
    object::text(set, "/spec/networkConfig/subdomainPolicy") == "UniquePerReplica"
}

/// Creates the Pods of a group that are missing.
fn fill(
    plan: &mut Plan,
    spec: &Spec<'_>,
    group: &Group,
    services: &[Arc<Value>],
    node: &dyn Fn(&str) -> Option<Arc<Value>>,
) {
    let Some(leader) = &group.leader else {
        // Workers of an earlier leader go first, so that names are free.
        if group.workers.is_empty() {
            let leader = spec.leader(group.index);
            let name = object::name(&leader).to_owned();
            if shares_nothing(spec.set) && !services.iter().any(|s| is_named(s, spec.namespace, &name)) {
                plan.push(Action::Create { resource: "services", object: spec.service(&name) });
            }
            plan.push(Action::Create { resource: "pods", object: leader });
            plan.event(spec.set, "GroupsProgressing", format!("Created leader pod {name}"));
        }
        return;
    };
    if object::is_deleting(leader) || revision(leader) != spec.revision {
        return;
    }
    if object::text(spec.set, "/spec/startupPolicy") == "LeaderReady" && !pod::is_ready(leader) {
        return;
    }
    let Some(place) = exclusive::place_of(leader, node) else { return };
    for index in 1..size(leader) {
        let name = format!("{}-{index}", object::name(leader));
        if !group.workers.iter().any(|worker| object::name(worker) == name) {
            let worker = place.narrow(spec.worker(leader, group.index, index));
            plan.push(Action::Create { resource: "pods", object: worker });
        }
    }
}

/// The whole group goes; the workers are named too, so that they do not wait for garbage collection.
fn delete(plan: &mut Plan, group: &Group) {
    for pod in group.workers.iter().chain(&group.leader).filter(|pod| !object::is_deleting(pod)) {
        plan.push(Action::Delete { resource: "pods", object: Arc::clone(pod) });
    }
}

/// `RecreateGroupOnPodRestart` (the default): a container that restarted or a worker that is going takes its group along.
fn restart(plan: &mut Plan, spec: &Spec<'_>, group: &Group, now: Timestamp) -> bool {
    let policy = object::text(spec.set, "/spec/leaderWorkerTemplate/restartPolicy");
    let recreates = matches!(policy, "" | "RecreateGroupOnPodRestart" | "Default" | "RecreateGroupAfterStart");
    let Some(leader) = group.leader.as_ref().filter(|_| recreates) else { return false };
    let broken = group.workers.iter().any(|worker| object::is_deleting(worker) || !pod::is_active(worker))
        || group.workers.iter().chain([leader]).any(|pod| restarted(pod))
        || !pod::is_active(leader) && !object::is_deleting(leader);
    if !broken || object::is_deleting(leader) {
        return broken;
    }
    let created: Option<Timestamp> = object::text(leader, "/metadata/creationTimestamp").parse().ok();
    let earliest = created.and_then(|at| at.checked_add(RECREATE_EVERY).ok()).unwrap_or(now);
    if earliest > now {
        plan.wake_at(earliest);
        return false;
    }
    delete(plan, group);
    let message = format!("Recreating group {} because one of its pods restarted", group.index);
    plan.event(spec.set, "RecreateGroupOnPodRestart", message);
    true
}

fn restarted(pod: &Value) -> bool {
    ["initContainerStatuses", "containerStatuses"].iter().any(|list| {
        let statuses = pod.pointer(&format!("/status/{list}")).and_then(Value::as_array);
        statuses.into_iter().flatten().any(|s| s.get("restartCount").and_then(Value::as_i64).unwrap_or(0) > 0)
    })
}

/// Replaces groups of an older template, highest index first, down to the partition.
fn update(plan: &mut Plan, spec: &Spec<'_>, groups: &[Group]) {
    let rolling = |field: &str| spec.set.pointer(&format!("/spec/rolloutStrategy/rollingUpdateConfiguration/{field}"));
    let partition = rolling("partition").and_then(Value::as_i64).unwrap_or(0);
    let allowed = rolling("maxUnavailable").map_or(1, |v| rolling::amount(Some(v), spec.replicas, false)).max(1);
    let current = || groups.iter().filter(|group| group.index < spec.replicas);
    let mut unavailable = i64::try_from(current().filter(|group| !group.is_ready(spec)).count()).unwrap_or(0);
    for group in groups.iter().rev().filter(|g| g.index < spec.replicas && g.index >= partition) {
        let outdated = group.leader.as_ref().is_some_and(|l| !object::is_deleting(l) && revision(l) != spec.revision);
        if !outdated {
            continue;
        }
        let costs = i64::from(group.is_ready(spec));
        if unavailable + costs > allowed && costs > 0 {
            break;
        }
        unavailable += costs;
        delete(plan, group);
    }
}

fn revision(pod: &Value) -> &str {
    label(pod, REVISION)
}

fn label<'a>(pod: &'a Value, key: &str) -> &'a str {
    pod.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str()).unwrap_or_default()
}

/// The size a group was made with.
fn size(leader: &Value) -> i64 {
    let annotations = leader.pointer("/metadata/annotations");
    annotations.and_then(|a| a.get(SIZE)?.as_str()?.parse().ok()).unwrap_or(1)
}

// === impl Group ===

impl Group {
    fn is_current(&self, spec: &Spec<'_>) -> bool {
        self.leader.as_ref().is_some_and(|leader| !object::is_deleting(leader) && revision(leader) == spec.revision)
    }

    /// Leader and every worker running and ready.
    fn is_ready(&self, _spec: &Spec<'_>) -> bool {
        let Some(leader) = &self.leader else { return false };
        let workers = i64::try_from(self.workers.len()).unwrap_or(0);
        workers == size(leader) - 1
            && self.workers.iter().chain([leader]).all(|pod| pod::is_active(pod) && pod::is_ready(pod))
    }
}

// === impl Spec ===

impl<'a> Spec<'a> {
    fn of(set: &'a Value) -> Self {
        let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64).unwrap_or(1);
        // A change of the network or of the size replaces groups as a change of the templates does.
        let template = json!([set.pointer("/spec/leaderWorkerTemplate"), set.pointer("/spec/networkConfig")]);
        Self {
            set,
            name: object::name(set),
            namespace: object::namespace(set),
            replicas: number("/spec/replicas"),
            size: number("/spec/leaderWorkerTemplate/size"),
            revision: hash::template(&template, 0),
        }
    }

    /// Groups 0..replicas and those beyond that still have Pods.
    fn groups(&self, pods: &[Arc<Value>]) -> Vec<Group> {
        let mine: Vec<&Arc<Value>> = pods
            .iter()
            .filter(|pod| object::namespace(pod) == self.namespace && label(pod, NAME) == self.name)
            .collect();
        let index = |pod: &Value| label(pod, GROUP_INDEX).parse::<i64>().unwrap_or(-1);
        let last = mine.iter().map(|pod| index(pod) + 1).max().unwrap_or(0).max(self.replicas);
        (0..last)
            .map(|group| {
                let members = || mine.iter().filter(|pod| index(pod) == group);
                Group {
                    index: group,
                    leader: members().find(|p| label(p, WORKER_INDEX) == "0").map(|p| Arc::clone(p)),
                    workers: members().filter(|p| label(p, WORKER_INDEX) != "0").map(|p| Arc::clone(p)).collect(),
                }
            })
            .filter(|group| group.index < self.replicas || group.leader.is_some() || !group.workers.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ownership;
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

    fn created(plan: &Plan) -> Vec<Value> {
        let pods = plan.actions.iter().filter_map(|action| match action {
            Action::Create { resource: "pods", object } => Some(object.clone()),
            _ => None,
        });
        pods.collect()
    }

    #[test]
    fn a_leader_then_its_workers() {
        let first = created(&plan(&set(1, 3), &[], &[], &|_| None, Timestamp::UNIX_EPOCH));
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
        let workers = created(&plan(&set(1, 3), &[Arc::new(leader)], &[], &|_| None, Timestamp::UNIX_EPOCH));
        let names: Vec<_> = workers.iter().map(object::name).collect();
        assert_eq!(names, ["llama-0-1", "llama-0-2"]);
        let owner = ownership::controller(&workers[1]).unwrap();
        assert_eq!((owner["kind"].as_str(), owner["uid"].as_str()), (Some("Pod"), Some("leader")));
        assert_eq!(workers[1]["metadata"]["labels"][WORKER_INDEX], "2");
        assert_eq!(workers[1]["metadata"]["annotations"][LEADER_NAME], "llama-0");
    }

    #[test]
    fn one_group_at_a_time_is_updated() {
        let ready = |mut pod: Value| {
            pod["metadata"]["uid"] = json!("u");
            pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            Arc::new(pod)
        };
        let pods: Vec<_> =
            created(&plan(&set(2, 1), &[], &[], &|_| None, Timestamp::UNIX_EPOCH)).into_iter().map(ready).collect();
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
