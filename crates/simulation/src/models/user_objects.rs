//! Objects that people create.

use serde_json::{Value, json};

use crate::initial_objects::GANG_RESOURCE;

/// Returns a random specification of a service of `ome.io`, and its description.
pub(super) fn ome_spec(random: &mut fastrand::Rng) -> (Value, String) {
    let (image, replicas) = (random.u8(1..4), random.u8(1..4));
    let engine = json!({"minReplicas": replicas, "maxReplicas": replicas,
        "runner": {"image": format!("example.com/engine:{image}")}});
    (json!({"model": {"name": "small"}, "engine": engine}), format!("image {image}, {replicas} replicas"))
}

/// Returns a random specification of a role-based service, whose prefill and decode roles form a gang, and its
/// description.
pub(super) fn role_based_spec(random: &mut fastrand::Rng) -> (Value, String) {
    let mut role = |name: &str, kind: &str| {
        let (image, replicas, nodes) = (random.u8(1..4), random.u8(1..3), random.u8(1..3));
        let container = json!({"name": "vllm", "image": format!("example.com/engine:{image}"),
            "command": ["vllm", "serve", "example/model"], "ports": [{"name": "http", "containerPort": 8000}],
            "resources": {"limits": {GANG_RESOURCE: "1"}}});
        let role = json!({"name": name, "componentType": kind, "replicas": replicas, "multinode": {"nodeCount": nodes},
            "template": {"spec": {"containers": [container]}}});
        (role, format!("{name} image {image}, {replicas} replicas on {nodes} nodes"))
    };
    let (prefill, prefill_text) = role("prefill", "prefiller");
    let (decode, decode_text) = role("decode", "decoder");
    (json!({"roles": [prefill, decode]}), format!("{prefill_text}; {decode_text}"))
}

/// Returns an object with the name of one of the operator's.
pub(super) fn foreign_object(resource: &str, name: &str) -> Value {
    let template = json!({"metadata": {"labels": {"app": "mine"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/mine"}]}});
    let spec = match resource {
        "deployments.apps" => {
            json!({"replicas": 1, "selector": {"matchLabels": {"app": "mine"}}, "template": template})
        }
        "leaderworkersets.leaderworkerset.x-k8s.io" => {
            json!({"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}})
        }
        "podgroups.scheduling.volcano.sh" => json!({"minMember": 1}),
        "services" => json!({"ports": [{"port": 1234}], "selector": {"app": "mine"}}),
        "backendpools.inference.networking.x-k8s.io" => json!({"selector": {"app": "mine"}, "targetPorts": [1234]}),
        _ => json!({"poolRef": [{"name": "mine"}], "useCases": [{"modelName": "mine"}]}),
    };
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": "mine"}}, "spec": spec})
}
