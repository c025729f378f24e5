//! The Pods of a LeaderWorkerSet and the Services that give them names.

use serde_json::{Value, json};

use super::super::{hash, ownership, pod};
use super::{GROUP_INDEX, GROUP_KEY, LEADER_NAME, NAME, REVISION, SIZE, Spec, WORKER_INDEX, exclusive, shares_nothing};
use crate::object;

impl Spec<'_> {
    pub(super) fn leader(&self, group: i64) -> Value {
        let template = self.set.pointer("/spec/leaderWorkerTemplate/leaderTemplate").filter(|t| !t.is_null());
        let template = template.unwrap_or_else(|| self.worker_template());
        let name = format!("{}-{group}", self.name);
        let pod = pod::from_template(template, self.namespace, &name, ownership::reference(self.set));
        exclusive::alone(self.dressed(pod, &name, group, 0), self.set)
    }

    pub(super) fn worker(&self, leader: &Value, group: i64, index: i64) -> Value {
        let name = format!("{}-{index}", object::name(leader));
        let owner = ownership::reference(&with_type(leader));
        let pod = pod::from_template(self.worker_template(), self.namespace, &name, owner);
        let mut pod = self.dressed(pod, object::name(leader), group, index);
        pod["metadata"]["annotations"][LEADER_NAME] = json!(object::name(leader));
        pod
    }

    fn worker_template(&self) -> &Value {
        self.set.pointer("/spec/leaderWorkerTemplate/workerTemplate").unwrap_or(&Value::Null)
    }

    /// What the Pod webhook adds.
    fn dressed(&self, mut pod: Value, leader: &str, group: i64, index: i64) -> Value {
        let key = hash::template(&json!(format!("{}/{leader}", self.namespace)), 0);
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
        let subdomain = if shares_nothing(self.set) { leader } else { self.name };
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
                prepend(container, &variables);
            }
        }
        pod
    }

    /// The headless Service that gives the Pods their names.
    pub(super) fn service(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": self.namespace, "ownerReferences": [ownership::reference(self.set)]},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {NAME: self.name}},
        })
    }
}

fn with_type(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod
}

/// In front, so that the container's own variables can refer to them; a variable that is there already stays.
fn prepend(container: &mut Value, variables: &[(&str, String)]) {
    let own = container.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    let has = |name: &str| own.iter().any(|entry| object::text(entry, "/name") == name);
    let mut env: Vec<Value> =
        variables.iter().filter(|(n, _)| !has(n)).map(|(name, value)| json!({"name": name, "value": value})).collect();
    env.extend(own.iter().cloned());
    container["env"] = Value::Array(env);
}
