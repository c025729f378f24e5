//! Workloads of a service and their Pods, read from the stores for the status functions.

use std::sync::Arc;

use api::dual_pods::{is_provider, is_requester};
use cluster::{Kind, NamespacedName, Stores, controller_of, is_terminating, metadata_field};
use decide::is_pod_terminal;
use jiff::Timestamp;
use plan::labels::{COMPONENT, LEADER_WORKER_SET_NAME, SERVICE, SURGE_REPLICA};
use serde_json::Value;

use crate::crash_tracker::CrashTracker;
use crate::gang_creation::creation_end;
use crate::kinds::{DEPLOYMENT, LEADER_WORKER_SET, OME_SERVICE, POD, POD_LABELS};

/// Label that the Deployment controller adds to the Pods of each Pod template.
pub(crate) const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Label that LeaderWorkerSet adds to the Pods of each revision of its templates.
pub(crate) const GROUP_TEMPLATE_HASH: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";

/// An existing workload and its Pods, sorted by name.
#[derive(Clone, Debug)]
pub(crate) struct LiveWorkload {
    /// Deployment or LeaderWorkerSet.
    pub(crate) object: Arc<Value>,
    /// The Pods of the workload.
    pub(crate) pods: Vec<Arc<Value>>,
    /// The providers of its service, if its Pods are requesters of dual pods.
    pub(crate) providers: Vec<Arc<Value>>,
}

/// A planned workload and its live object.
#[derive(Clone, Debug)]
pub(crate) struct PlannedWorkload {
    /// The planned object.
    pub(crate) planned: Value,
    /// The live object; `None` if it does not exist or another owner controls it.
    pub(crate) live: Option<LiveWorkload>,
    /// Number of Pods of the workload that crashed recently and were replaced.
    pub(crate) recent_crashes: usize,
    /// Until when rejections of its Pods by the scheduler are part of the creation of its gang; `None` if they are a problem.
    pub(crate) gang_creation_end: Option<Timestamp>,
}

/// Reads workloads from the stores.
#[derive(Clone, Copy)]
pub(crate) struct WorkloadReader<'a> {
    /// Caches of the watched objects.
    pub(crate) stores: &'a Stores,
    /// Crashed Pods that were replaced.
    pub(crate) crash_tracker: &'a CrashTracker,
    /// Current time.
    pub(crate) now: Timestamp,
}

// === impl PlannedWorkload ===

impl PlannedWorkload {
    /// Creates a planned workload without recent crashes.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn new(planned: Value, live: Option<Value>, pods: Vec<Value>) -> PlannedWorkload {
        let pods = pods.into_iter().map(Arc::new).collect();
        let live = live.map(|object| LiveWorkload { object: Arc::new(object), pods, providers: Vec::new() });
        PlannedWorkload { planned, live, recent_crashes: 0, gang_creation_end: None }
    }
}

// === impl LiveWorkload ===

impl LiveWorkload {
    /// Returns the Pods of the workload.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Value> {
        self.pods.iter().map(AsRef::as_ref)
    }

    /// Returns the providers of its service, if its Pods are requesters of dual pods.
    pub(crate) fn providers(&self) -> impl Iterator<Item = &Value> {
        self.providers.iter().map(AsRef::as_ref)
    }
}

// === impl WorkloadReader ===

impl WorkloadReader<'_> {
    /// Returns the planned workloads of `service` with their live objects. Objects that another owner controls are
    /// treated as absent.
    pub(crate) fn planned_workloads(&self, service: &Value, planned: &[Value]) -> Vec<PlannedWorkload> {
        let planned = planned.iter().filter_map(|object| Some((object, workload_kind(object)?)));
        planned.map(|(object, kind)| self.read_workload(service, object, kind)).collect()
    }

    /// Returns the existing workloads of `service`, independent of its current plan.
    pub(crate) fn existing_workloads(&self, service: &Value) -> Vec<PlannedWorkload> {
        let workloads_of_kind = |kind: Kind| {
            let owned = self.stores.list_owned_by(kind, service);
            owned.into_iter().map(move |object| self.read_workload(service, &object, kind))
        };
        [DEPLOYMENT, LEADER_WORKER_SET].into_iter().flat_map(workloads_of_kind).collect()
    }

    /// Returns the workloads of an `ome.io` service that its plan does not contain, although it contains other workloads of
    /// their component. The order is that of their kinds and names. Workloads without a recorded identity are not deleted, so
    /// that no replacement may wait for their deletion, except those with the name of the planned workload of another kind:
    /// copies have other names.
    pub(crate) fn obsolete_workloads(&self, service: &Value, planned: &[PlannedWorkload]) -> Vec<LiveWorkload> {
        if service["apiVersion"] != OME_SERVICE.api_version() {
            return Vec::new();
        }
        let is_planned = |object: &Value| {
            planned.iter().any(|workload| {
                workload.planned["kind"] == object["kind"]
                    && metadata_field(&workload.planned, "name") == metadata_field(object, "name")
            })
        };
        let component = |object: &Value| object["metadata"]["labels"][COMPONENT].clone();
        let has_planned_name = |object: &Value| {
            planned.iter().any(|workload| {
                metadata_field(&workload.planned, "name") == metadata_field(object, "name")
                    && component(&workload.planned) == component(object)
            })
        };
        let has_planned_component =
            |object: &Value| planned.iter().any(|workload| component(&workload.planned) == component(object));
        let obsolete_of_kind = |kind: Kind| {
            let owned = self.stores.list_owned_by(kind, service);
            let is_obsolete = move |object: &Arc<Value>| {
                !is_terminating(object)
                    && !is_planned(object)
                    && has_planned_component(object)
                    && (self.stores.has_recorded_identity(object) || has_planned_name(object))
            };
            let obsolete = owned.into_iter().filter(is_obsolete);
            obsolete.filter_map(move |object| {
                live_workload(self.stores, service, kind, &NamespacedName::from_object(&object))
            })
        };
        [DEPLOYMENT, LEADER_WORKER_SET].into_iter().flat_map(obsolete_of_kind).collect()
    }

    /// Returns the existing additional replicas of a role-based service. After scaling up, one of `planned` may have been one.
    pub(crate) fn surge_replicas(&self, service: &Value, planned: &[PlannedWorkload]) -> Vec<PlannedWorkload> {
        let sets = self.unplanned_sets(service, planned).filter(|set| is_surge_replica(set));
        sets.map(|set| self.read_workload(service, &set, LEADER_WORKER_SET)).collect()
    }

    /// Returns the replicas that a role-based service has no longer, other than additional ones. `planned` are its workloads.
    pub(crate) fn removed_replicas(&self, service: &Value, planned: &[PlannedWorkload]) -> Vec<LiveWorkload> {
        let sets = self.unplanned_sets(service, planned).filter(|set| !is_surge_replica(set));
        let workload = |set: Arc<Value>| {
            live_workload(self.stores, service, LEADER_WORKER_SET, &NamespacedName::from_object(&set))
        };
        sets.filter_map(workload).collect()
    }

    /// Returns the LeaderWorkerSets of a service that do not stop and are not among `planned`.
    fn unplanned_sets(&self, service: &Value, planned: &[PlannedWorkload]) -> impl Iterator<Item = Arc<Value>> {
        let is_planned = |set: &Value| {
            planned.iter().any(|workload| metadata_field(&workload.planned, "name") == metadata_field(set, "name"))
        };
        let sets = self.stores.list_owned_by(LEADER_WORKER_SET, service).into_iter();
        sets.filter(move |set| !is_terminating(set) && !is_planned(set))
    }

    /// Returns the Pods of a role-based service that stop: they, or their LeaderWorkerSets, were deleted.
    pub(crate) fn stopping_pods(&self, service: &Value) -> Vec<Arc<Value>> {
        let (namespace, name) = (metadata_field(service, "namespace"), metadata_field(service, "name"));
        let has_set = |pod: &Value| {
            let set = pod["metadata"]["labels"][LEADER_WORKER_SET_NAME].as_str().unwrap_or_default();
            let set = self.stores.get(LEADER_WORKER_SET, &NamespacedName::new(namespace, set));
            set.is_some_and(|set| !is_terminating(&set))
        };
        let mut pods = self.stores.list_with_label(POD, namespace, SERVICE, name);
        // A provider belongs to no set. Its requester uses the accelerators.
        pods.retain(|pod| !is_provider(pod) && !is_pod_terminal(pod) && (is_terminating(pod) || !has_set(pod)));
        pods
    }

    /// Returns whether Pods of a LeaderWorkerSet have not ended, for example of one that was just deleted.
    pub(crate) fn has_pods_of_set(&self, namespace: &str, name: &str) -> bool {
        let pods = self.stores.list_with_label(POD, namespace, LEADER_WORKER_SET_NAME, name);
        pods.iter().any(|pod| !is_pod_terminal(pod))
    }

    fn read_workload(&self, service: &Value, planned: &Value, kind: Kind) -> PlannedWorkload {
        let key = NamespacedName::new(metadata_field(service, "namespace"), metadata_field(planned, "name"));
        let recent_crashes =
            if kind == LEADER_WORKER_SET { self.crash_tracker.recent_crashes(&key, self.now) } else { 0 };
        let live = live_workload(self.stores, service, kind, &key);
        let gang_creation_end = creation_end(live.iter().flat_map(LiveWorkload::pods), self.now);
        PlannedWorkload { planned: planned.clone(), live, recent_crashes, gang_creation_end }
    }
}

/// Returns whether a LeaderWorkerSet is an additional replica of a role.
pub(crate) fn is_surge_replica(object: &Value) -> bool {
    object["metadata"]["annotations"][SURGE_REPLICA].is_string()
}

/// Returns the template of the Pods that serve requests: of a Deployment, or of the leaders of a LeaderWorkerSet.
pub(crate) fn pod_template(workload: &Value) -> &Value {
    if workload["kind"] != LEADER_WORKER_SET.kind {
        return &workload["spec"]["template"];
    }
    let group = &workload["spec"]["leaderWorkerTemplate"];
    if group["leaderTemplate"].is_object() { &group["leaderTemplate"] } else { &group["workerTemplate"] }
}

/// Returns the Pod templates of one replica with the number of its Pods of each: one Pod of a Deployment, or the leader and the
/// workers of a group of a LeaderWorkerSet.
pub(crate) fn replica_templates(workload: &Value) -> Vec<(&Value, u32)> {
    let group = &workload["spec"]["leaderWorkerTemplate"];
    let size = u32::try_from(group_size(workload)).unwrap_or(1);
    let workers = (&group["workerTemplate"], size.saturating_sub(1));
    let has_workers = workload["kind"] == LEADER_WORKER_SET.kind && workers.1 > 0;
    [(pod_template(workload), 1)].into_iter().chain(has_workers.then_some(workers)).collect()
}

/// Returns the number of Pods of each group of a LeaderWorkerSet.
pub(crate) fn group_size(set: &Value) -> u64 {
    set["spec"]["leaderWorkerTemplate"]["size"].as_u64().unwrap_or(1)
}

/// Returns a name for the revision of the Pod templates of a workload that a Pod was created from.
pub(crate) fn template_revision(pod: &Value) -> Option<&str> {
    let labels = &pod["metadata"]["labels"];
    [POD_TEMPLATE_HASH, GROUP_TEMPLATE_HASH].iter().find_map(|label| labels[*label].as_str())
}

fn workload_kind(object: &Value) -> Option<Kind> {
    [DEPLOYMENT, LEADER_WORKER_SET].into_iter().find(|kind| object["kind"] == kind.kind)
}

fn live_workload(stores: &Stores, service: &Value, kind: Kind, key: &NamespacedName) -> Option<LiveWorkload> {
    let object = stores.get_owned_by(kind, key, service)?;
    let mut pods = candidate_pods(stores, kind, &object);
    pods.retain(|pod| is_pod_of(pod, kind, &object));
    let providers = providers(stores, &object, &pods);
    Some(LiveWorkload { object, pods, providers })
}

/// Returns the providers of the service of a workload whose Pods are requesters.
fn providers(stores: &Stores, workload: &Value, pods: &[Arc<Value>]) -> Vec<Arc<Value>> {
    let Some(requester) = pods.iter().find(|pod| is_requester(pod)) else { return Vec::new() };
    let labels = &requester["metadata"]["labels"];
    let Some((label, value)) = POD_LABELS.iter().find_map(|(label, _)| Some((*label, labels[*label].as_str()?))) else {
        return Vec::new();
    };
    let mut pods = stores.list_with_label(POD, metadata_field(workload, "namespace"), label, value);
    pods.retain(|pod| is_provider(pod));
    pods
}

/// Returns the Pods that may belong to a workload: those with a matching indexed label, or all Pods of the namespace if
/// the workload has no such label.
fn candidate_pods(stores: &Stores, kind: Kind, workload: &Value) -> Vec<Arc<Value>> {
    let namespace = metadata_field(workload, "namespace");
    let selector = &workload["spec"]["selector"]["matchLabels"];
    let label = match kind {
        LEADER_WORKER_SET => Some((LEADER_WORKER_SET_NAME, metadata_field(workload, "name"))),
        _ => POD_LABELS.iter().find_map(|(label, _)| Some((*label, selector[*label].as_str()?))),
    };
    match label {
        Some((label, value)) => stores.list_with_label(POD, namespace, label, value),
        None => stores.list_namespace(POD, namespace),
    }
}

fn is_pod_of(pod: &Value, kind: Kind, workload: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    if kind == LEADER_WORKER_SET {
        return labels[LEADER_WORKER_SET_NAME] == workload["metadata"]["name"];
    }
    let selector = workload["spec"]["selector"]["matchLabels"].as_object();
    let is_selected = selector.is_some_and(|selector| {
        !selector.is_empty() && selector.iter().all(|(key, value)| labels[key.as_str()] == *value)
    });
    // Before a service requested dual pods, its selector was that of the labels that providers have, too.
    is_selected && !is_provider(pod) && !is_controlled_by_other_workload(pod, workload)
}

/// Returns whether a Pod that the selector of a Deployment matches belongs to another workload of the same component.
fn is_controlled_by_other_workload(pod: &Value, deployment: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    let Some(hash) = labels[POD_TEMPLATE_HASH].as_str() else { return labels[LEADER_WORKER_SET_NAME].is_string() };
    let replica_set = format!("{}-{hash}", metadata_field(deployment, "name"));
    controller_of(pod).is_some_and(|controller| controller["kind"] == "ReplicaSet" && controller["name"] != replica_set)
}
