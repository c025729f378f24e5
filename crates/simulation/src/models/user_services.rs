//! Services that people create.

use serde_json::{Value, json};

use crate::initial_objects::{GANG_RESOURCE, SERVICES};

/// A service that people create, edit and delete.
pub(super) struct UserService {
    /// One of [`SERVICES`].
    pub(super) resource: &'static str,
    pub(super) name: &'static str,
    /// Returns a random specification, and its summary.
    pub(super) spec: fn(&mut fastrand::Rng) -> (Value, String),
    /// Resources of which people create objects with the names of the operator's, and the suffixes of these names. They
    /// edit those of the first resource.
    pub(super) objects: &'static [(&'static str, &'static str)],
}

const DEPLOYMENT_OBJECTS: &[(&str, &str)] = &[
    ("deployments.apps", "-engine"),
    ("services", "-engine"),
    ("backendpools.inference.networking.x-k8s.io", ""),
    ("llmusecasesets.inference.networking.x-k8s.io", ""),
];

/// A service for each way in which engines run: a Deployment, a LeaderWorkerSet, a gang, and behind a router.
pub(super) const USER_SERVICES: [UserService; 5] = [
    UserService { resource: SERVICES[0], name: "chat", spec: deployment_spec, objects: DEPLOYMENT_OBJECTS },
    UserService { resource: SERVICES[0], name: "code", spec: deployment_spec, objects: DEPLOYMENT_OBJECTS },
    UserService {
        resource: SERVICES[0],
        name: "large",
        spec: multi_node_spec,
        objects: &[
            ("leaderworkersets.leaderworkerset.x-k8s.io", "-engine"),
            ("services", "-engine"),
            ("backendpools.inference.networking.x-k8s.io", ""),
        ],
    },
    UserService {
        resource: SERVICES[1],
        name: "split",
        spec: gang_spec,
        objects: &[
            ("leaderworkersets.leaderworkerset.x-k8s.io", "-decode-0"),
            ("podgroups.scheduling.volcano.sh", ""),
            ("backendpools.inference.networking.x-k8s.io", ""),
        ],
    },
    UserService {
        resource: SERVICES[1],
        name: "routed",
        spec: routed_spec,
        objects: &[
            ("deployments.apps", "-epp"),
            ("leaderworkersets.leaderworkerset.x-k8s.io", "-engine-0"),
            ("configmaps", "-epp-config"),
            ("services", "-epp"),
            ("serviceaccounts", "-epp"),
            ("roles.rbac.authorization.k8s.io", "-epp"),
            ("inferencepools.inference.networking.k8s.io", "-pool"),
            ("httproutes.gateway.networking.k8s.io", "-httproute"),
        ],
    },
];

/// Plugins of routers. They need no metrics of engines, because there are no engines.
const PICKERS: [&str; 2] = ["random-picker", "weighted-random-picker"];

/// Returns a service of `ome.io` whose replicas are single Pods.
fn deployment_spec(random: &mut fastrand::Rng) -> (Value, String) {
    let (image, replicas) = (random.u8(1..4), random.u8(1..4));
    let engine = json!({"minReplicas": replicas, "maxReplicas": replicas,
        "runner": {"image": format!("example.com/engine:{image}")}});
    (json!({"model": {"name": "small"}, "engine": engine}), format!("image {image}, {replicas} replicas"))
}

/// Returns a service of `ome.io` whose replicas have a leader and workers.
fn multi_node_spec(random: &mut fastrand::Rng) -> (Value, String) {
    let (image, replicas, workers) = (random.u8(1..4), random.u8(1..4), random.u8(1..3));
    let runner = json!({"name": "ome-container", "image": format!("example.com/engine:{image}"),
        "command": ["serve", "$(LWS_LEADER_ADDRESS)"], "resources": {"limits": {"nvidia.com/gpu": "1"}}});
    let engine = json!({"minReplicas": replicas, "maxReplicas": replicas, "leader": {"runner": runner},
        "worker": {"size": workers, "runner": runner}});
    let summary = format!("image {image}, {replicas} replicas with {workers} workers");
    (json!({"model": {"name": "small"}, "engine": engine}), summary)
}

/// Returns a role-based service whose prefill and decode roles form a gang, of all replicas or of one of each role.
fn gang_spec(random: &mut fastrand::Rng) -> (Value, String) {
    let limits = json!({GANG_RESOURCE: "1"});
    let (prefill, prefill_summary) = role("prefill", "prefiller", &limits, random);
    let (decode, decode_summary) = role("decode", "decoder", &limits, random);
    let policy = if random.bool() { "All" } else { "MinimumAvailable" };
    let spec = json!({"roles": [prefill, decode], "schedulingStrategy": {"gangPolicy": policy}});
    (spec, format!("{prefill_summary}; {decode_summary}; {policy}"))
}

/// Returns a role-based service whose engines are behind a router, or not behind one any more.
fn routed_spec(random: &mut fastrand::Rng) -> (Value, String) {
    let (engine, mut summary) = role("engine", "worker", &json!({"nvidia.com/gpu": "1"}), random);
    let mut roles = vec![engine];
    if random.u8(..4) > 0 {
        let picker = PICKERS[random.usize(..PICKERS.len())];
        let config = format!(
            "{{apiVersion: inference.networking.x-k8s.io/v1alpha1, kind: EndpointPickerConfig, \
            plugins: [{{type: {picker}}}]}}"
        );
        let mut router = json!({"name": "router", "componentType": "router", "endpointPickerConfig": config});
        summary = format!("{summary}; router with {picker}");
        if random.bool() {
            router["httproute"] = json!({"parentRefs": [{"name": "gateway"}]});
            summary.push_str(" with a route");
        }
        roles.push(router);
    }
    (json!({"roles": roles}), summary)
}

fn role(name: &str, kind: &str, limits: &Value, random: &mut fastrand::Rng) -> (Value, String) {
    let (image, replicas, nodes) = (random.u8(1..4), random.u8(1..3), random.u8(1..3));
    let container = json!({"name": "vllm", "image": format!("example.com/engine:{image}"),
        "command": ["vllm", "serve", "example/model"], "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"limits": limits}});
    let role = json!({"name": name, "componentType": kind, "replicas": replicas, "multinode": {"nodeCount": nodes},
        "template": {"spec": {"containers": [container]}}});
    (role, format!("{name} image {image}, {replicas} replicas on {nodes} nodes"))
}
