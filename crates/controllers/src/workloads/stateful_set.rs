//! StatefulSet: Pods with stable names and volumes (`pkg/controller/statefulset/stateful_set_control.go`).
//!
//! Claims of `volumeClaimTemplates` are created here and bound by [`super::volume_claim`]. `maxUnavailable` and
//! `persistentVolumeClaimRetentionPolicy` are not implemented.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::{LabelSelector, object, persistent_volume, pod};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::action::{Action, Plan};
use super::{hash, ownership, pod_template, replica_set};

/// Storage name of StatefulSets.
pub(crate) const RESOURCE: &str = "statefulsets.apps";
/// Storage name of ControllerRevisions.
pub(crate) const REVISIONS: &str = "controllerrevisions.apps";

const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// `podManagementPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodManagementPolicy {
    /// Waits for each Pod to become ready before it creates or deletes the next one.
    OrderedReady,
    /// Creates and deletes all Pods at the same time.
    Parallel,
}

/// The settings of a StatefulSet.
struct StatefulSetSpec<'a> {
    set: &'a Value,
    pod_management: PodManagementPolicy,
    /// The ordinals of the desired Pods.
    ordinals: std::ops::Range<i64>,
    /// Pods with lower ordinals keep the current revision.
    partition: i64,
    current_revision: String,
    update_revision: String,
}

/// Reconciles a StatefulSet with its Pods, ControllerRevisions and claims.
pub(crate) fn plan(
    set: &Value,
    pods: &[Arc<Value>],
    revisions: &[Arc<Value>],
    claims: &[Arc<Value>],
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let selector = set.pointer("/spec/selector").unwrap_or(&Value::Null);
    let Ok(selector) = LabelSelector::from_json(selector) else { return plan };
    if object::is_deleting(set) {
        return plan;
    }
    let spec = StatefulSetSpec::new(set);
    let claim = ownership::claim_objects(set, &selector, pods);
    plan.actions.extend(claim.updates.into_iter().map(|object| Action::Update { resource: "pods", object }));
    let mut owned: Vec<(i64, Arc<Value>)> =
        claim.owned.into_iter().filter_map(|pod| Some((spec.ordinal(object::name(&pod))?, pod))).collect();
    owned.sort_by_key(|(ordinal, _)| *ordinal);

    ensure_revision(&mut plan, &spec, revisions);
    let status = spec.status(&owned, now, &mut plan);
    plan.update_status(RESOURCE, set, status);
    reconcile_pods(&mut plan, &spec, &owned, revisions, claims);
    plan
}

/// Creates and deletes Pods, one at a time under `podManagementPolicy: OrderedReady`.
fn reconcile_pods(
    plan: &mut Plan,
    spec: &StatefulSetSpec<'_>,
    owned: &[(i64, Arc<Value>)],
    revisions: &[Arc<Value>],
    claims: &[Arc<Value>],
) {
    let is_ordered = spec.pod_management == PodManagementPolicy::OrderedReady;
    let by_ordinal: BTreeMap<i64, &Arc<Value>> = owned.iter().map(|(ordinal, pod)| (*ordinal, pod)).collect();
    for ordinal in spec.ordinals.clone() {
        if plan.is_burst_complete() {
            return;
        }
        let is_healthy = match by_ordinal.get(&ordinal) {
            None => {
                spec.create(plan, ordinal, revisions, claims);
                false
            }
            Some(pod) if pod::is_finished(pod) && !object::is_deleting(pod) => {
                spec.delete(plan, pod);
                false
            }
            Some(pod) => pod::is_ready(pod) && !object::is_deleting(pod),
        };
        if is_ordered && !is_healthy {
            return;
        }
    }
    let condemned = owned.iter().rev().filter(|(ordinal, _)| !spec.ordinals.contains(ordinal));
    for (_, pod) in condemned {
        if plan.is_burst_complete() {
            return;
        }
        if !object::is_deleting(pod) {
            spec.delete(plan, pod);
        }
        if is_ordered {
            return;
        }
    }
    if spec.set["spec"]["updateStrategy"]["type"] != "OnDelete" && !plan.is_burst_complete() {
        rolling_update(plan, spec, owned);
    }
}

/// Deletes the Pod with the highest ordinal among those with an old revision, once all Pods with higher ordinals are
/// ready.
fn rolling_update(plan: &mut Plan, spec: &StatefulSetSpec<'_>, owned: &[(i64, Arc<Value>)]) {
    let lowest = spec.ordinals.start.max(spec.partition);
    for (_, pod) in owned.iter().rev().filter(|(ordinal, _)| *ordinal >= lowest && spec.ordinals.contains(ordinal)) {
        if object::is_deleting(pod) {
            return;
        }
        if revision_of(pod) != spec.update_revision {
            return spec.delete(plan, pod);
        }
        if !pod::is_ready(pod) {
            return;
        }
    }
}

/// Creates the ControllerRevision of the current template if it does not exist.
fn ensure_revision(plan: &mut Plan, spec: &StatefulSetSpec<'_>, revisions: &[Arc<Value>]) {
    let name = &spec.update_revision;
    let owned = revisions.iter().filter(|revision| ownership::controls(spec.set, revision));
    if revisions
        .iter()
        .any(|revision| object::name(revision) == name && object::namespace(revision) == object::namespace(spec.set))
    {
        return;
    }
    let latest_revision = owned.filter_map(|revision| revision["revision"].as_i64()).max().unwrap_or_default();
    let labels = spec.set.pointer("/spec/template/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {
            "name": name, "namespace": object::namespace(spec.set), "labels": labels,
            "ownerReferences": [ownership::controller_reference(spec.set)],
        },
        "data": {"spec": {"template": spec.set["spec"]["template"]}},
        "revision": latest_revision.saturating_add(1),
    });
    object["metadata"]["labels"][REVISION] = json!(name);
    plan.push(Action::Create { resource: REVISIONS, object });
}

// === impl StatefulSetSpec ===

impl<'a> StatefulSetSpec<'a> {
    fn new(set: &'a Value) -> Self {
        let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        let start = number("/spec/ordinals/start");
        let template = set.pointer("/spec/template").unwrap_or(&Value::Null);
        let update = format!("{}-{}", object::name(set), hash::template_hash(template, 0));
        let current = object::text(set, "/status/currentRevision").to_owned();
        let is_parallel = object::text(set, "/spec/podManagementPolicy") == "Parallel";
        Self {
            set,
            pod_management: if is_parallel { PodManagementPolicy::Parallel } else { PodManagementPolicy::OrderedReady },
            ordinals: start..start.saturating_add(replica_set::replicas(set)),
            partition: number("/spec/updateStrategy/rollingUpdate/partition"),
            current_revision: if current.is_empty() { update.clone() } else { current },
            update_revision: update,
        }
    }

    /// Returns the ordinal of a Pod name: 3 for `web-3`.
    fn ordinal(&self, pod: &str) -> Option<i64> {
        pod.strip_prefix(object::name(self.set))?.strip_prefix('-')?.parse().ok()
    }

    /// Creates the Pod with this ordinal and its claims.
    fn create(&self, plan: &mut Plan, ordinal: i64, revisions: &[Arc<Value>], claims: &[Arc<Value>]) {
        let (namespace, set) = (object::namespace(self.set), object::name(self.set));
        let name = format!("{set}-{ordinal}");
        let uses_current_revision = self.current_revision != self.update_revision && ordinal < self.partition;
        let revision = if uses_current_revision { &self.current_revision } else { &self.update_revision };
        let controller_revision = revisions.iter().find(|revision_object| {
            object::name(revision_object) == revision && object::namespace(revision_object) == namespace
        });
        let template = controller_revision
            .filter(|_| uses_current_revision)
            .and_then(|controller_revision| controller_revision.pointer("/data/spec/template"));
        let template = template.unwrap_or(&self.set["spec"]["template"]);
        let mut pod = pod_template::new_pod(template, namespace, &name, ownership::controller_reference(self.set));
        pod["metadata"]["generateName"] = json!(format!("{set}-"));
        for (label, value) in [(REVISION, revision.as_str()), (POD_NAME, &name), (POD_INDEX, &ordinal.to_string())] {
            pod["metadata"]["labels"][label] = json!(value);
        }
        pod["spec"]["hostname"] = json!(name);
        let service = object::text(self.set, "/spec/serviceName");
        if !service.is_empty() {
            pod["spec"]["subdomain"] = json!(service);
        }
        for template in self.set.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array).into_iter().flatten() {
            self.ensure_claim(plan, template, ordinal, &mut pod, claims);
        }
        plan.push(Action::Create { resource: "pods", object: pod });
        plan.normal_event(self.set, "SuccessfulCreate", format!("create Pod {name} in StatefulSet {set} successful"));
    }

    /// Creates the claim of a template if it does not exist, and adds its volume to the Pod. The claim has no owner
    /// reference, so it is retained when the Pod is deleted.
    fn ensure_claim(&self, plan: &mut Plan, template: &Value, ordinal: i64, pod: &mut Value, claims: &[Arc<Value>]) {
        let namespace = object::namespace(self.set);
        let volume = object::name(template);
        let name = format!("{volume}-{}-{ordinal}", object::name(self.set));
        if !claims.iter().any(|claim| object::name(claim) == name && object::namespace(claim) == namespace) {
            let mut object = template.clone();
            object["apiVersion"] = json!("v1");
            object["kind"] = json!("PersistentVolumeClaim");
            object["metadata"]["name"] = json!(name);
            object["metadata"]["namespace"] = json!(namespace);
            object["metadata"]["labels"] =
                self.set.pointer("/spec/selector/matchLabels").cloned().unwrap_or_else(|| json!({}));
            if let Some(members) = object.as_object_mut() {
                members.remove("status");
            }
            plan.push(Action::Create { resource: persistent_volume::CLAIMS, object });
        }
        let spec = object::members(&mut pod["spec"]);
        let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.retain(|existing| existing["name"] != *volume);
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": name}}));
        }
    }

    /// Deletes a Pod and records an Event.
    fn delete(&self, plan: &mut Plan, pod: &Arc<Value>) {
        let set = object::name(self.set);
        let message = format!("delete Pod {} in StatefulSet {set} successful", object::name(pod));
        plan.push(Action::Delete { resource: "pods", object: Arc::clone(pod) });
        plan.normal_event(self.set, "SuccessfulDelete", message);
    }

    /// Returns the status of the StatefulSet.
    fn status(&self, owned: &[(i64, Arc<Value>)], now: Timestamp, plan: &mut Plan) -> Value {
        let min_ready = self.set.pointer("/spec/minReadySeconds").and_then(Value::as_i64).unwrap_or(0);
        let active: Vec<&Arc<Value>> = owned.iter().map(|(_, pod)| pod).filter(|pod| pod::is_active(pod)).collect();
        let mut available = 0;
        for available_from in active.iter().filter_map(|pod| pod::available_from(pod, min_ready)) {
            if available_from <= now {
                available += 1;
            } else {
                plan.requeue_at(available_from);
            }
        }
        let revision_count = |revision: &str| active.iter().filter(|pod| revision_of(pod) == revision).count();
        let ready = active.iter().filter(|pod| pod::is_ready(pod)).count();
        let updated = revision_count(&self.update_revision);
        let replicas = usize::try_from(self.ordinals.end.saturating_sub(self.ordinals.start)).unwrap_or_default();
        let is_complete = self.partition <= self.ordinals.start && updated == replicas && ready == replicas;
        let current = if is_complete { &self.update_revision } else { &self.current_revision };
        let mut status = Map::new();
        status.insert("availableReplicas".to_owned(), json!(available));
        status.insert("collisionCount".to_owned(), json!(0));
        status.insert("currentRevision".to_owned(), json!(current));
        status.insert("replicas".to_owned(), json!(active.len()));
        status.insert("updateRevision".to_owned(), json!(self.update_revision));
        for (field, count) in
            [("currentReplicas", revision_count(current)), ("readyReplicas", ready), ("updatedReplicas", updated)]
        {
            if count > 0 {
                status.insert(field.to_owned(), json!(count));
            }
        }
        if let Some(generation) = self.set.pointer("/metadata/generation") {
            status.insert("observedGeneration".to_owned(), generation.clone());
        }
        Value::Object(status)
    }
}

/// Returns the revision of a Pod from its label.
fn revision_of(pod: &Value) -> &str {
    object::label(pod, REVISION).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::action::BURST_REPLICAS;
    use super::*;

    fn set(replicas: i64, policy: &str, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "db", "namespace": "n", "uid": "1", "generation": 1},
            "spec": {
                "replicas": replicas, "serviceName": "db", "podManagementPolicy": policy,
                "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": image}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
            },
        })
    }

    fn pod(set: &Value, ordinal: i64, ready: bool) -> Arc<Value> {
        let mut plan = Plan::default();
        StatefulSetSpec::new(set).create(&mut plan, ordinal, &[], &[]);
        let created = plan.actions.into_iter().find_map(|action| match action {
            Action::Create { resource: "pods", object } => Some(object),
            _ => None,
        });
        let mut pod = created.unwrap();
        let ready = if ready { "True" } else { "False" };
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        Arc::new(pod)
    }

    /// Returns the names of the created Pods, and the names of the deleted Pods prefixed with `-`.
    fn pod_actions(set: &Value, pods: &[Arc<Value>]) -> Vec<String> {
        let plan = plan(set, pods, &[], &[], Timestamp::UNIX_EPOCH);
        let step = |action: &Action| match action {
            Action::Create { resource: "pods", object } => Some(object::name(object).to_owned()),
            Action::Delete { object, .. } => Some(format!("-{}", object::name(object))),
            _ => None,
        };
        plan.actions.iter().filter_map(step).collect()
    }

    #[rstest]
    #[case::first_pod(&[], &["db-0"])]
    #[case::waits_for_ready(&[(0, false)], &[])]
    #[case::next_pod(&[(0, true)], &["db-1"])]
    #[case::fills_gap(&[(1, true)], &["db-0"])]
    #[case::complete(&[(0, true), (1, true), (2, true)], &[])]
    #[case::surplus(&[(0, true), (1, true), (2, true), (3, true), (4, true)], &["-db-4"])]
    fn creates_pods_in_order(#[case] existing: &[(i64, bool)], #[case] expect: &[&str]) {
        let set = set(3, "OrderedReady", "a:1");
        let pods: Vec<_> = existing.iter().map(|(ordinal, ready)| pod(&set, *ordinal, *ready)).collect();
        assert_eq!(pod_actions(&set, &pods), expect);
    }

    #[test]
    fn parallel_sets_create_all_pods() {
        let set = set(3, "Parallel", "a:1");
        assert_eq!(pod_actions(&set, &[pod(&set, 1, false)]), ["db-0", "db-2"]);
    }

    #[test]
    fn parallel_sets_create_and_delete_one_burst_of_pods() {
        let large = set(2_000_000_000, "Parallel", "a:1");
        let created = pod_actions(&large, &[pod(&large, 1, true)]);
        assert_eq!((created.len(), created[1].as_str()), (BURST_REPLICAS, "db-2"));
        let pods: Vec<_> = (0..=600).map(|ordinal| pod(&large, ordinal, true)).collect();
        let deleted = pod_actions(&set(0, "Parallel", "a:1"), &pods);
        assert_eq!((deleted.len(), deleted[0].as_str()), (BURST_REPLICAS, "-db-600"));
    }

    #[test]
    fn updates_from_highest_ordinal_to_partition() {
        let old = set(3, "OrderedReady", "a:1");
        let pods: Vec<_> = (0..3).map(|ordinal| pod(&old, ordinal, true)).collect();
        let mut new = set(3, "OrderedReady", "a:2");
        assert_eq!(pod_actions(&new, &pods), ["-db-2"]);
        let pods = [Arc::clone(&pods[0]), Arc::clone(&pods[1]), pod(&new, 2, false)];
        assert!(pod_actions(&new, &pods).is_empty(), "waits for the new Pod");
        new["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
        let pods = [Arc::clone(&pods[0]), Arc::clone(&pods[1]), pod(&new, 2, true)];
        assert!(pod_actions(&new, &pods).is_empty());
    }

    #[test]
    fn pod_has_stable_hostname_and_claim() {
        let pod = pod(&set(1, "OrderedReady", "a:1"), 0, true);
        assert_eq!(pod["spec"]["hostname"], "db-0");
        assert_eq!(pod["spec"]["subdomain"], "db");
        assert_eq!(pod["metadata"]["labels"][POD_INDEX], "0");
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-0");
    }
}
