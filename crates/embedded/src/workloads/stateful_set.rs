//! StatefulSet: Pods with names and places that last (`pkg/controller/statefulset/stateful_set_control.go`).
//!
//! Claims of `volumeClaimTemplates` are created; [`super::volume_claim`] binds them. `maxUnavailable` and retention
//! policies are not used.

use std::sync::Arc;

use apimachinery::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::action::{Action, Plan};
use super::volume_claim::CLAIMS;
use super::{hash, ownership, pod, replica_set};
use crate::object;

pub(crate) const RESOURCE: &str = "statefulsets.apps";
pub(crate) const REVISIONS: &str = "controllerrevisions.apps";

const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Whether one Pod waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    OneAtATime,
    Parallel,
}

struct Spec<'a> {
    set: &'a Value,
    order: Order,
    /// The first ordinal, and the one after the last.
    ordinals: std::ops::Range<i64>,
    /// Ordinals below it keep the current revision.
    partition: i64,
    current: String,
    update: String,
}

/// What follows from a StatefulSet and what is around it.
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
    let spec = Spec::of(set);
    let claim = ownership::claim(set, &selector, pods);
    plan.actions.extend(claim.changed.into_iter().map(|object| Action::Update { resource: "pods", object }));
    let mut owned: Vec<(i64, Arc<Value>)> =
        claim.owned.into_iter().filter_map(|pod| Some((spec.ordinal(object::name(&pod))?, pod))).collect();
    owned.sort_by_key(|(ordinal, _)| *ordinal);

    keep_revision(&mut plan, &spec, revisions);
    let status = spec.status(&owned, now, &mut plan);
    plan.status(RESOURCE, set, status);
    converge(&mut plan, &spec, &owned, revisions, claims);
    plan
}

/// Creates and deletes; one at a time where the order matters.
fn converge(
    plan: &mut Plan,
    spec: &Spec<'_>,
    owned: &[(i64, Arc<Value>)],
    revisions: &[Arc<Value>],
    claims: &[Arc<Value>],
) {
    let wait = spec.order == Order::OneAtATime;
    for ordinal in spec.ordinals.clone() {
        let settled = match owned.iter().find(|(is, _)| *is == ordinal) {
            None => {
                spec.create(plan, ordinal, revisions, claims);
                false
            }
            Some((_, pod)) if is_over(pod) && !object::is_deleting(pod) => {
                spec.delete(plan, pod);
                false
            }
            Some((_, pod)) => pod::is_ready(pod) && !object::is_deleting(pod),
        };
        if wait && !settled {
            return;
        }
    }
    let condemned = owned.iter().rev().filter(|(ordinal, _)| !spec.ordinals.contains(ordinal));
    for (_, pod) in condemned {
        if !object::is_deleting(pod) {
            spec.delete(plan, pod);
        }
        if wait {
            return;
        }
    }
    if spec.set["spec"]["updateStrategy"]["type"] != "OnDelete" {
        update(plan, spec, owned);
    }
}

/// The highest ordinal that has the old template goes, once those above it are well.
fn update(plan: &mut Plan, spec: &Spec<'_>, owned: &[(i64, Arc<Value>)]) {
    let from = spec.ordinals.start.max(spec.partition);
    for (_, pod) in owned.iter().rev().filter(|(ordinal, _)| *ordinal >= from && spec.ordinals.contains(ordinal)) {
        if object::is_deleting(pod) {
            return;
        }
        if revision(pod) != spec.update {
            return spec.delete(plan, pod);
        }
        if !pod::is_ready(pod) {
            return;
        }
    }
}

/// The template of every revision is kept as a ControllerRevision.
fn keep_revision(plan: &mut Plan, spec: &Spec<'_>, revisions: &[Arc<Value>]) {
    let name = &spec.update;
    let mine = revisions.iter().filter(|revision| ownership::controls(spec.set, revision));
    if revisions.iter().any(|it| object::name(it) == name && object::namespace(it) == object::namespace(spec.set)) {
        return;
    }
    let newest = mine.filter_map(|revision| revision["revision"].as_i64()).max().unwrap_or_default();
    let labels = spec.set.pointer("/spec/template/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {
            "name": name, "namespace": object::namespace(spec.set), "labels": labels,
            "ownerReferences": [ownership::reference(spec.set)],
        },
        "data": {"spec": {"template": spec.set["spec"]["template"]}},
        "revision": newest + 1,
    });
    object["metadata"]["labels"][REVISION] = json!(name);
    plan.push(Action::Create { resource: REVISIONS, object });
}

// === impl Spec ===

impl<'a> Spec<'a> {
    fn of(set: &'a Value) -> Self {
        let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        let start = number("/spec/ordinals/start");
        let template = set.pointer("/spec/template").unwrap_or(&Value::Null);
        let update = format!("{}-{}", object::name(set), hash::template(template, 0));
        let current = object::text(set, "/status/currentRevision").to_owned();
        let parallel = object::text(set, "/spec/podManagementPolicy") == "Parallel";
        Self {
            set,
            order: if parallel { Order::Parallel } else { Order::OneAtATime },
            ordinals: start..start + replica_set::replicas(set),
            partition: number("/spec/updateStrategy/rollingUpdate/partition"),
            current: if current.is_empty() { update.clone() } else { current },
            update,
        }
    }

    /// `web-3` → 3.
    fn ordinal(&self, pod: &str) -> Option<i64> {
        pod.strip_prefix(object::name(self.set))?.strip_prefix('-')?.parse().ok()
    }

    fn create(&self, plan: &mut Plan, ordinal: i64, revisions: &[Arc<Value>], claims: &[Arc<Value>]) {
        let (namespace, set) = (object::namespace(self.set), object::name(self.set));
        let name = format!("{set}-{ordinal}");
        let old = self.current != self.update && ordinal < self.partition;
        let revision = if old { &self.current } else { &self.update };
        let kept = revisions.iter().find(|it| object::name(it) == revision && object::namespace(it) == namespace);
        let template = kept.filter(|_| old).and_then(|kept| kept.pointer("/data/spec/template"));
        let template = template.unwrap_or(&self.set["spec"]["template"]);
        let mut pod = pod::from_template(template, namespace, &name, ownership::reference(self.set));
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
            self.claim(plan, template, ordinal, &mut pod, claims);
        }
        plan.push(Action::Create { resource: "pods", object: pod });
        plan.event(self.set, "SuccessfulCreate", format!("create Pod {name} in StatefulSet {set} successful"));
    }

    /// A claim that outlives its Pod, and the volume that names it.
    fn claim(&self, plan: &mut Plan, template: &Value, ordinal: i64, pod: &mut Value, claims: &[Arc<Value>]) {
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
            plan.push(Action::Create { resource: CLAIMS, object });
        }
        let spec = object::members(&mut pod["spec"]);
        let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.retain(|it| it["name"] != *volume);
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": name}}));
        }
    }

    fn delete(&self, plan: &mut Plan, pod: &Arc<Value>) {
        let set = object::name(self.set);
        let message = format!("delete Pod {} in StatefulSet {set} successful", object::name(pod));
        plan.push(Action::Delete { resource: "pods", object: Arc::clone(pod) });
        plan.event(self.set, "SuccessfulDelete", message);
    }

    fn status(&self, owned: &[(i64, Arc<Value>)], now: Timestamp, plan: &mut Plan) -> Value {
        let min_ready = self.set.pointer("/spec/minReadySeconds").and_then(Value::as_i64).unwrap_or(0);
        let live: Vec<&Arc<Value>> = owned.iter().map(|(_, pod)| pod).filter(|pod| pod::is_active(pod)).collect();
        let mut available = 0;
        for from in live.iter().filter_map(|pod| pod::available_from(pod, min_ready)) {
            if from <= now {
                available += 1;
            } else {
                plan.wake_at(from);
            }
        }
        let of = |wanted: &str| live.iter().filter(|pod| revision(pod) == wanted).count();
        let ready = live.iter().filter(|pod| pod::is_ready(pod)).count();
        let updated = of(&self.update);
        let wanted = usize::try_from(self.ordinals.end - self.ordinals.start).unwrap_or_default();
        let whole = self.partition <= self.ordinals.start && updated == wanted && ready == wanted;
        let current = if whole { &self.update } else { &self.current };
        let mut status = Map::new();
        status.insert("availableReplicas".to_owned(), json!(available));
        status.insert("collisionCount".to_owned(), json!(0));
        status.insert("currentRevision".to_owned(), json!(current));
        status.insert("replicas".to_owned(), json!(live.len()));
        status.insert("updateRevision".to_owned(), json!(self.update));
        for (field, count) in [("currentReplicas", of(current)), ("readyReplicas", ready), ("updatedReplicas", updated)]
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

fn revision(pod: &Value) -> &str {
    pod.pointer("/metadata/labels").and_then(|labels| labels.get(REVISION)?.as_str()).unwrap_or_default()
}

fn is_over(pod: &Value) -> bool {
    matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

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
        Spec::of(set).create(&mut plan, ordinal, &[], &[]);
        let made = plan.actions.into_iter().find_map(|action| match action {
            Action::Create { resource: "pods", object } => Some(object),
            _ => None,
        });
        let mut pod = made.unwrap();
        let ready = if ready { "True" } else { "False" };
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        Arc::new(pod)
    }

    /// Names of created Pods, and of deleted ones with a minus.
    fn steps(set: &Value, pods: &[Arc<Value>]) -> Vec<String> {
        let plan = plan(set, pods, &[], &[], Timestamp::UNIX_EPOCH);
        let step = |action: &Action| match action {
            Action::Create { resource: "pods", object } => Some(object::name(object).to_owned()),
            Action::Delete { object, .. } => Some(format!("-{}", object::name(object))),
            _ => None,
        };
        plan.actions.iter().filter_map(step).collect()
    }

    #[rstest]
    #[case::first(&[], &["db-0"])]
    #[case::waits(&[(0, false)], &[])]
    #[case::next(&[(0, true)], &["db-1"])]
    #[case::fills_the_gap(&[(1, true)], &["db-0"])]
    #[case::done(&[(0, true), (1, true), (2, true)], &[])]
    #[case::too_many(&[(0, true), (1, true), (2, true), (3, true), (4, true)], &["-db-4"])]
    fn one_after_another(#[case] have: &[(i64, bool)], #[case] expect: &[&str]) {
        let set = set(3, "OrderedReady", "a:1");
        let pods: Vec<_> = have.iter().map(|(ordinal, ready)| pod(&set, *ordinal, *ready)).collect();
        assert_eq!(steps(&set, &pods), expect);
    }

    #[test]
    fn parallel_sets_do_not_wait() {
        let set = set(3, "Parallel", "a:1");
        assert_eq!(steps(&set, &[pod(&set, 1, false)]), ["db-0", "db-2"]);
    }

    #[test]
    fn an_update_goes_from_the_top_and_stops_at_the_partition() {
        let old = set(3, "OrderedReady", "a:1");
        let pods: Vec<_> = (0..3).map(|ordinal| pod(&old, ordinal, true)).collect();
        let mut new = set(3, "OrderedReady", "a:2");
        assert_eq!(steps(&new, &pods), ["-db-2"]);
        let pods = [Arc::clone(&pods[0]), Arc::clone(&pods[1]), pod(&new, 2, false)];
        assert!(steps(&new, &pods).is_empty(), "waits for the new one");
        new["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
        let pods = [Arc::clone(&pods[0]), Arc::clone(&pods[1]), pod(&new, 2, true)];
        assert!(steps(&new, &pods).is_empty());
    }

    #[test]
    fn a_pod_has_its_name_its_host_and_its_claim() {
        let pod = pod(&set(1, "OrderedReady", "a:1"), 0, true);
        assert_eq!(pod["spec"]["hostname"], "db-0");
        assert_eq!(pod["spec"]["subdomain"], "db");
        assert_eq!(pod["metadata"]["labels"][POD_INDEX], "0");
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-0");
    }
}
