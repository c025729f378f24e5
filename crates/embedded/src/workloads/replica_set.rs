//! ReplicaSet: so many Pods of one template.

use std::sync::Arc;

use apimachinery::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::action::{Action, Plan};
use super::{ownership, pod};
use crate::object;
use crate::ports::Random;

pub(crate) const RESOURCE: &str = "replicasets.apps";

/// More than this at once only makes the API server slow (`BurstReplicas`).
const BURST: usize = 500;

/// What follows from a ReplicaSet and the Pods around it.
pub(crate) fn plan(set: &Value, pods: &[Arc<Value>], random: &dyn Random, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let selector = set.pointer("/spec/selector").unwrap_or(&Value::Null);
    let Ok(selector) = LabelSelector::from_json(selector) else { return plan };
    let claim = ownership::claim(set, &selector, pods);
    plan.actions.extend(claim.changed.into_iter().map(|object| Action::Update { resource: "pods", object }));
    let active: Vec<Arc<Value>> = claim.owned.into_iter().filter(|pod| pod::is_active(pod)).collect();
    if !object::is_deleting(set) {
        scale(&mut plan, set, &active, random);
    }
    status(&mut plan, set, &active, now);
    plan
}

/// Creates what is missing or deletes what is too much.
fn scale(plan: &mut Plan, set: &Value, active: &[Arc<Value>], random: &dyn Random) {
    let wanted = usize::try_from(replicas(set)).unwrap_or(0);
    for _ in 0..wanted.saturating_sub(active.len()).min(BURST) {
        let name = format!("{}-{}", generated_base(object::name(set)), random.suffix(5));
        let template = set.pointer("/spec/template").unwrap_or(&Value::Null);
        let mut pod = pod::from_template(template, object::namespace(set), &name, ownership::reference(set));
        pod["metadata"]["generateName"] = json!(format!("{}-", object::name(set)));
        plan.push(Action::Create { resource: "pods", object: pod });
        plan.event(set, "SuccessfulCreate", format!("Created pod: {name}"));
    }
    let mut candidates = active.to_vec();
    pod::cheapest_first(&mut candidates);
    for pod in candidates.into_iter().take(active.len().saturating_sub(wanted).min(BURST)) {
        let message = format!("Deleted pod: {}", object::name(&pod));
        plan.push(Action::Delete { resource: "pods", object: pod });
        plan.event(set, "SuccessfulDelete", message);
    }
}

/// Generated names have at most 63 characters, of which six are `-` and the suffix.
fn generated_base(name: &str) -> &str {
    name.get(..57).unwrap_or(name)
}

fn status(plan: &mut Plan, set: &Value, active: &[Arc<Value>], now: Timestamp) {
    let min_ready = set.pointer("/spec/minReadySeconds").and_then(Value::as_i64).unwrap_or(0);
    let labels = ownership::string_map(set.pointer("/spec/template/metadata/labels"));
    let labelled = active.iter().filter(|pod| {
        let has = ownership::labels(pod);
        labels.iter().all(|(key, value)| has.get(key) == Some(value))
    });
    let mut available = 0;
    for from in active.iter().filter_map(|pod| pod::available_from(pod, min_ready)) {
        if from <= now {
            available += 1;
        } else {
            plan.wake_at(from);
        }
    }
    let counts = [
        ("fullyLabeledReplicas", labelled.count()),
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
    plan.status(RESOURCE, set, Value::Object(status));
}

/// `spec.replicas`, 1 when absent.
pub(crate) fn replicas(set: &Value) -> i64 {
    set.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::ports::SystemRandom;

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
            "metadata": {"name": name, "namespace": "n", "labels": {"app": "web"}, "ownerReferences": [ownership::reference(&set(1))]},
            "spec": {"nodeName": "x"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
    }

    #[rstest]
    #[case::from_nothing(2, 0, 2, 0)]
    #[case::one_more(3, 2, 1, 0)]
    #[case::enough(2, 2, 0, 0)]
    #[case::too_many(1, 3, 0, 2)]
    #[case::to_zero(0, 2, 0, 2)]
    fn makes_the_count(#[case] wanted: i64, #[case] have: usize, #[case] created: usize, #[case] deleted: usize) {
        let pods: Vec<_> = (0..have).map(|i| pod(&format!("p{i}"), true)).collect();
        let plan = plan(&set(wanted), &pods, &SystemRandom, Timestamp::UNIX_EPOCH);
        let count = |f: fn(&Action) -> bool| plan.actions.iter().filter(|a| f(a)).count();
        assert_eq!(count(|a| matches!(a, Action::Create { .. })), created);
        assert_eq!(count(|a| matches!(a, Action::Delete { .. })), deleted);
    }

    #[test]
    fn the_template_reaches_the_pod_untouched_and_the_unready_goes_first() {
        let made = plan(&set(1), &[], &SystemRandom, Timestamp::UNIX_EPOCH);
        let Action::Create { object, .. } = &made.actions[0] else { panic!("{made:?}") };
        assert_eq!(object["spec"], json!({"containers": [{"name": "c", "new": 1}]}));

        let pods = [pod("a", true), pod("b", false)];
        let cut = plan(&set(1), &pods, &SystemRandom, Timestamp::UNIX_EPOCH);
        let Action::Delete { object, .. } = &cut.actions[0] else { panic!("{cut:?}") };
        assert_eq!(object::name(object), "b");
    }
}
