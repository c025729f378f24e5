//! The Pods of a LeaderWorkerSet and their headless Services.

use apimachinery::object;
use serde_json::{Value, json};

use super::super::{hash, ownership, pod_template};
use super::{
    GROUP_INDEX, GROUP_KEY, LEADER_NAME, LeaderWorkerSetSpec, NAME, REVISION, SIZE, WORKER_INDEX, exclusive,
    has_subdomain_per_replica,
};

impl LeaderWorkerSetSpec<'_> {
    /// Returns the leader of a group.
    pub(super) fn leader_pod(&self, group: i64) -> Value {
        let template = self.set.pointer("/spec/leaderWorkerTemplate/leaderTemplate").filter(|t| !t.is_null());
        let template = template.unwrap_or_else(|| self.worker_template());
        let name = format!("{}-{group}", self.name);
        let pod = pod_template::new_pod(template, self.namespace, &name, ownership::controller_reference(self.set));
        exclusive::with_exclusive_affinity(self.with_group_metadata(pod, &name, group, 0), self.set)
    }

    /// Returns a worker of a group.
    pub(super) fn worker_pod(&self, leader: &Value, group: i64, index: i64) -> Value {
        let name = format!("{}-{index}", object::name(leader));
        let owner = ownership::controller_reference(&with_type_meta(leader));
        let pod = pod_template::new_pod(self.worker_template(), self.namespace, &name, owner);
        let mut pod = self.with_group_metadata(pod, object::name(leader), group, index);
        pod["metadata"]["annotations"][LEADER_NAME] = json!(object::name(leader));
        pod
    }

    fn worker_template(&self) -> &Value {
        self.set.pointer("/spec/leaderWorkerTemplate/workerTemplate").unwrap_or(&Value::Null)
    }

    /// Adds the labels, annotations, host name and environment of the Pod webhook.
    fn with_group_metadata(&self, mut pod: Value, leader: &str, group: i64, index: i64) -> Value {
        let key = hash::template_hash(&json!(format!("{}/{leader}", self.namespace)), 0);
        let labels = [
            (NAME, self.name.to_owned()),
            (GROUP_INDEX, group.to_string()),
            (WORKER_INDEX, index.to_string()),
            (GROUP_KEY, key),
            (REVISION, self.revision.clone()),
        ];
        for (label, value) in labels {
            pod["metadata"]["labels"][label] = json!(value);
        }
        pod["metadata"]["annotations"][SIZE] = json!(self.size.to_string());
        let subdomain = if has_subdomain_per_replica(self.set) { leader } else { self.name };
        pod["spec"]["hostname"] = json!(object::name(&pod));
        pod["spec"]["subdomain"] = json!(subdomain);
        let address = format!("{leader}.{subdomain}.{}", self.namespace);
        let variables = [
            ("LWS_LEADER_ADDRESS", address),
            ("LWS_GROUP_SIZE", self.size.to_string()),
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
    pub(super) fn service(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": self.namespace, "ownerReferences": [ownership::controller_reference(self.set)]},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {NAME: self.name}},
        })
    }
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
