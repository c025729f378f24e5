//! Plays the controllers, the scheduler and the nodes: the Pods of a Deployment, on nodes with room, ready at once.

use cluster::object::meta;
use operator::kinds::{DEPLOYMENT, POD};
use serde_json::{Value, json};

use crate::Result;
use crate::client::{Cluster, text};
use crate::cluster::{ACCELERATORS, node_name};

/// Room on nodes, handed out from the first to the last.
pub(crate) struct Room {
    free: Vec<usize>,
    next: usize,
}

// === impl Room ===

impl Room {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { free: vec![ACCELERATORS; nodes], next: 0 }
    }

    fn take(&mut self, count: usize) -> Option<String> {
        while self.free.get(self.next)? < &count {
            self.next += 1;
        }
        self.free[self.next] -= count;
        Some(node_name(self.next))
    }

    /// The Pods of a new Deployment, each with its node.
    pub(crate) fn place(&mut self, deployment: &Value) -> Result<Vec<Value>> {
        let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
        let accelerators = accelerators(deployment);
        let pod = |number| {
            let node = self.take(accelerators).ok_or("no node has room")?;
            Ok(pod(deployment, number, &node))
        };
        (0..replicas).map(pod).collect()
    }
}

fn accelerators(deployment: &Value) -> usize {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let limit = |container: &Value| match &container["resources"]["limits"]["nvidia.com/gpu"] {
        Value::String(text) => text.parse().ok(),
        number => number.as_u64(),
    };
    let sum: u64 = containers.into_iter().flatten().filter_map(limit).sum();
    usize::try_from(sum).unwrap_or(ACCELERATORS)
}

fn pod(deployment: &Value, number: u64, node: &str) -> Value {
    let template = &deployment["spec"]["template"];
    let mut spec = template["spec"].clone();
    spec["nodeName"] = node.into();
    let name = meta(deployment, "name");
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": meta(deployment, "uid"),
        "controller": true});
    let mut metadata = json!({"name": format!("{name}-{number}"), "namespace": meta(deployment, "namespace"),
        "ownerReferences": [owner]});
    metadata["labels"] = template["metadata"]["labels"].clone();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// The Pods run and are ready, and the Deployment says so.
pub(crate) async fn run(cluster: &Cluster, deployment: &Value, pods: Vec<Value>) -> Result<()> {
    let count = pods.len();
    for pod in pods {
        let (namespace, name) = (meta(&pod, "namespace").to_owned(), meta(&pod, "name").to_owned());
        cluster.create(POD, pod).await?;
        cluster.patch_status(POD, &namespace, &name, &pod_status("True")).await?;
    }
    let status = json!({"observedGeneration": deployment["metadata"]["generation"], "replicas": count,
        "updatedReplicas": count, "readyReplicas": count, "availableReplicas": count,
        "conditions": [{"type": "Available", "status": "True"}]});
    cluster.patch_status(DEPLOYMENT, meta(deployment, "namespace"), text(deployment, "/metadata/name"), &status).await
}

pub(crate) fn pod_status(ready: &str) -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]})
}
