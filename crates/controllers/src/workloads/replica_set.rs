//! ReplicaSet: maintains a number of Pods with the same template.

use std::sync::Arc;

use apimachinery::{LabelSelector, object, pod};
use apiserver::ports::Random;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::action::{Action, Plan};
use super::{ownership, pod_template};

/// Storage name of ReplicaSets.
pub(crate) const RESOURCE: &str = "replicasets.apps";

/// Reconciles a ReplicaSet with the Pods of its namespace.
pub(crate) fn plan(set: &Value, pods: &[Arc<Value>], random: &dyn Random, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let selector = set.pointer("/spec/selector").unwrap_or(&Value::Null);
    let Ok(selector) = LabelSelector::from_json(selector) else { return plan };
    let claim = ownership::claim_objects(set, &selector, pods);
    plan.actions.extend(claim.updates.into_iter().map(|object| Action::Update { resource: "pods", object }));
    let active: Vec<Arc<Value>> = claim.owned.into_iter().filter(|pod| pod::is_active(pod)).collect();
    if !object::is_deleting(set) {
        scale(&mut plan, set, &active, random);
    }
    status(&mut plan, set, &active, now);
    plan
}

/// Creates missing Pods or deletes surplus ones.
fn scale(plan: &mut Plan, set: &Value, active: &[Arc<Value>], random: &dyn Random) {
    let desired = usize::try_from(replicas(set)).unwrap_or(0);
    for _ in active.len()..desired {
        if plan.is_burst_complete() {
            return;
        }
        let name = format!("{}-{}", name_prefix(object::name(set)), random.suffix(5));
        let template = set.pointer("/spec/template").unwrap_or(&Value::Null);
        let mut pod =
            pod_template::new_pod(template, object::namespace(set), &name, ownership::controller_reference(set));
        pod["metadata"]["generateName"] = json!(format!("{}-", object::name(set)));
        plan.push(Action::Create { resource: "pods", object: pod });
        plan.normal_event(set, "SuccessfulCreate", format!("Created pod: {name}"));
    }
    let mut candidates = active.to_vec();
    sort_for_deletion(&mut candidates);
    for pod in candidates.into_iter().take(active.len().saturating_sub(desired)) {
        if plan.is_burst_complete() {
            return;
        }
        let message = format!("Deleted pod: {}", object::name(&pod));
        plan.push(Action::Delete { resource: "pods", object: pod });
        plan.normal_event(set, "SuccessfulDelete", message);
    }
}

/// Sorts Pods in the order in which a ReplicaSet deletes them (`controller.ActivePods`): unassigned, then pending,
/// then not ready, then the youngest, then by name.
fn sort_for_deletion(pods: &mut [Arc<Value>]) {
    let deletion_order = |pod: &Arc<Value>| {
        (
            !object::text(pod, "/spec/nodeName").is_empty(),
            object::text(pod, "/status/phase") == "Running",
            pod::is_ready(pod),
            std::cmp::Reverse(object::text(pod, "/metadata/creationTimestamp").to_owned()),
            object::name(pod).to_owned(),
        )
    };
    pods.sort_by_cached_key(deletion_order);
}

/// Returns the prefix of generated names: a name has at most 63 characters, including `-` and the five characters of
/// the suffix.
fn name_prefix(name: &str) -> &str {
    name.get(..57).unwrap_or(name)
}

/// Updates the status.
fn status(plan: &mut Plan, set: &Value, active: &[Arc<Value>], now: Timestamp) {
    let min_ready = set.pointer("/spec/minReadySeconds").and_then(Value::as_i64).unwrap_or(0);
    let labels = object::string_map(set.pointer("/spec/template/metadata/labels"));
    let labeled = active.iter().filter(|pod| {
        let pod_labels = object::labels(pod);
        labels.iter().all(|(key, value)| pod_labels.get(key) == Some(value))
    });
    let mut available = 0;
    for available_from in active.iter().filter_map(|pod| pod::available_from(pod, min_ready)) {
        if available_from <= now {
            available += 1;
        } else {
            plan.requeue_at(available_from);
        }
    }
    let counts = [
        ("fullyLabeledReplicas", labeled.count()),
        ("readyReplicas", active.iter().filter(|pod| pod::is_ready(pod)).count()),
        ("availableReplicas", available),
    ];
    let mut status = Map::new();
    status.insert("replicas".to_owned(), json!(active.len()));
    for (field, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status.insert(field.to_owned(), json!(count));
    }
    if let Some(generation) = set.pointer("/metadata/generation") {
        status.insert("observedGeneration".to_owned(), generation.clone());
    }
    plan.update_status(RESOURCE, set, Value::Object(status));
}

/// Returns `spec.replicas`, 1 when absent.
pub(crate) fn replicas(set: &Value) -> i64 {
    set.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::action::BURST_REPLICAS;
    use super::*;
    use apiserver::ports::SystemRandom;

    fn set(replicas: i64) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "web", "namespace": "n", "uid": "1", "generation": 1},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "new": 1}]}},
            },
        })
    }

    fn pod(name: &str, ready: bool) -> Arc<Value> {
        let ready = if ready { "True" } else { "False" };
        Arc::new(json!({
            "metadata": {"name": name, "namespace": "n", "labels": {"app": "web"}, "ownerReferences": [ownership::controller_reference(&set(1))]},
            "spec": {"nodeName": "x"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
    }

    #[rstest]
    #[case::initial(2, 0, 2, 0)]
    #[case::one_missing(3, 2, 1, 0)]
    #[case::enough(2, 2, 0, 0)]
    #[case::too_many(1, 3, 0, 2)]
    #[case::scaled_to_zero(0, 2, 0, 2)]
    #[case::one_burst_of_many(2_000_000_000, 0, BURST_REPLICAS, 0)]
    #[case::one_burst_of_deletions(0, BURST_REPLICAS + 1, 0, BURST_REPLICAS)]
    fn creates_or_deletes_pods(
        #[case] desired: i64,
        #[case] existing: usize,
        #[case] created: usize,
        #[case] deleted: usize,
    ) {
        let pods: Vec<_> = (0..existing).map(|index| pod(&format!("p{index}"), true)).collect();
        let plan = plan(&set(desired), &pods, &SystemRandom, Timestamp::UNIX_EPOCH);
        let count = |predicate: fn(&Action) -> bool| plan.actions.iter().filter(|action| predicate(action)).count();
        assert_eq!(count(|action| matches!(action, Action::Create { .. })), created);
        assert_eq!(count(|action| matches!(action, Action::Delete { .. })), deleted);
    }

    #[test]
    fn copies_template_and_deletes_unready_pod_first() {
        let created = plan(&set(1), &[], &SystemRandom, Timestamp::UNIX_EPOCH);
        let Action::Create { object, .. } = &created.actions[0] else { panic!("{created:?}") };
        assert_eq!(object["spec"], json!({"containers": [{"name": "c", "new": 1}]}));

        let pods = [pod("a", true), pod("b", false)];
        let scaled_down = plan(&set(1), &pods, &SystemRandom, Timestamp::UNIX_EPOCH);
        let Action::Delete { object, .. } = &scaled_down.actions[0] else { panic!("{scaled_down:?}") };
        assert_eq!(object::name(object), "b");
    }

    /// The Pods became ready in 2026, and the clock has been set back since.
    #[rstest]
    #[case::without_min_ready_seconds(0, 1)]
    #[case::within_min_ready_seconds(10, 0)]
    fn ready_pod_is_available(#[case] min_ready_seconds: i64, #[case] available: u64) {
        let mut set = set(1);
        set["spec"]["minReadySeconds"] = json!(min_ready_seconds);
        let plan = plan(&set, &[pod("a", true)], &SystemRandom, Timestamp::UNIX_EPOCH);
        let Action::UpdateStatus { object, .. } = &plan.actions[0] else { panic!("{plan:?}") };
        assert_eq!(object["status"]["availableReplicas"].as_u64().unwrap_or_default(), available);
    }
}
