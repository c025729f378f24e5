//! The Pods of a LeaderWorkerSet and their headless Services.

use apimachinery::object;
use serde_json::{Value, json};

use super::exclusive;
use super::labels::{GROUP_INDEX, GROUP_KEY, LEADER_NAME, NAME, REVISION, SIZE, WORKER_INDEX};
use super::spec::{LeaderWorkerSetSpec, has_subdomain_per_replica};
use crate::workloads::{hash, ownership, pod_template};

/// Returns the leader of a group.
pub(super) fn leader_pod(spec: &LeaderWorkerSetSpec<'_>, group: i64) -> Value {
    let template = spec.set.pointer("/spec/leaderWorkerTemplate/leaderTemplate").filter(|t| !t.is_null());
    let template = template.unwrap_or_else(|| worker_template(spec));
    let name = format!("{}-{group}", spec.name);
    let pod = pod_template::new_pod(template, spec.namespace, &name, ownership::controller_reference(spec.set));
    exclusive::with_exclusive_affinity(with_group_metadata(spec, pod, &name, group, 0), spec.set)
}

/// Returns a worker of a group.
pub(super) fn worker_pod(spec: &LeaderWorkerSetSpec<'_>, leader: &Value, group: i64, index: i64) -> Value {
    let name = format!("{}-{index}", object::name(leader));
    let owner = ownership::controller_reference(&with_type_meta(leader));
    let pod = pod_template::new_pod(worker_template(spec), spec.namespace, &name, owner);
    let mut pod = with_group_metadata(spec, pod, object::name(leader), group, index);
    pod["metadata"]["annotations"][LEADER_NAME] = json!(object::name(leader));
    pod
}

fn worker_template<'a>(spec: &LeaderWorkerSetSpec<'a>) -> &'a Value {
    spec.set.pointer("/spec/leaderWorkerTemplate/workerTemplate").unwrap_or(&Value::Null)
}

/// Adds the labels, annotations, host name and environment of the Pod webhook.
fn with_group_metadata(spec: &LeaderWorkerSetSpec<'_>, mut pod: Value, leader: &str, group: i64, index: i64) -> Value {
    let key = hash::template_hash(&json!(format!("{}/{leader}", spec.namespace)), 0);
    let labels = [
        (NAME, spec.name.to_owned()),
        (GROUP_INDEX, group.to_string()),
        (WORKER_INDEX, index.to_string()),
        (GROUP_KEY, key),
        (REVISION, spec.revision.clone()),
    ];
    for (label, value) in labels {
        pod["metadata"]["labels"][label] = json!(value);
    }
    pod["metadata"]["annotations"][SIZE] = json!(spec.size.to_string());
    let subdomain = if has_subdomain_per_replica(spec.set) { leader } else { spec.name };
    pod["spec"]["hostname"] = json!(object::name(&pod));
    pod["spec"]["subdomain"] = json!(subdomain);
    let address = format!("{leader}.{subdomain}.{}", spec.namespace);
    let variables = [
        ("LWS_LEADER_ADDRESS", address),
        ("LWS_GROUP_SIZE", spec.size.to_string()),
        ("LWS_WORKER_INDEX", index.to_string()),
    ];
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            prepend_env(container, &variables);
        }
    }
    pod
}

/// Returns the headless Service for the host names of the Pods.
pub(super) fn service(spec: &LeaderWorkerSetSpec<'_>, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": spec.namespace, "ownerReferences": [ownership::controller_reference(spec.set)]},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {NAME: spec.name}},
    })
}

/// Returns the Pod with `apiVersion` and `kind`.
fn with_type_meta(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod
}

/// Prepends environment variables, so that the other variables of the container can refer to them. Existing variables
/// are not replaced.
fn prepend_env(container: &mut Value, variables: &[(&str, String)]) {
    let existing = container.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_set = |name: &str| existing.iter().any(|entry| object::text(entry, "/name") == name);
    let mut env: Vec<Value> = variables
        .iter()
        .filter(|(name, _)| !is_set(name))
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    env.extend(existing.iter().cloned());
    container["env"] = Value::Array(env);
}
