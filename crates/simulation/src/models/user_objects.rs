//! Objects that people create with the names of the operator's.

use serde_json::{Value, json};

/// Returns an object with the name of one of the operator's.
pub(super) fn foreign_object(resource: &str, name: &str) -> Value {
    let template = json!({"metadata": {"labels": {"app": "mine"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/mine"}]}});
    let mut object = match resource {
        "deployments.apps" => json!({"spec":
            {"replicas": 1, "selector": {"matchLabels": {"app": "mine"}}, "template": template}}),
        "leaderworkersets.leaderworkerset.x-k8s.io" => json!({"spec":
            {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}}),
        "podgroups.scheduling.volcano.sh" => json!({"spec": {"minMember": 1}}),
        "services" => json!({"spec": {"ports": [{"port": 1234}], "selector": {"app": "mine"}}}),
        "backendpools.inference.networking.x-k8s.io" => {
            json!({"spec": {"selector": {"app": "mine"}, "targetPorts": [1234]}})
        }
        "llmusecasesets.inference.networking.x-k8s.io" => {
            json!({"spec": {"poolRef": [{"name": "mine"}], "useCases": [{"modelName": "mine"}]}})
        }
        "inferencepools.inference.networking.k8s.io" => json!({"spec": {"selector": {"matchLabels": {"app": "mine"}},
            "targetPorts": [{"number": 1234}], "endpointPickerRef": {"name": "mine", "port": {"number": 1234}}}}),
        "httproutes.gateway.networking.k8s.io" => json!({"spec": {"parentRefs": [{"name": "mine"}]}}),
        "configmaps" => json!({"data": {"mine": "true"}}),
        "roles.rbac.authorization.k8s.io" => {
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
        }
        _ => json!({}),
    };
    object["metadata"] = json!({"name": name, "namespace": "default", "labels": {"app": "mine"}});
    object
}
