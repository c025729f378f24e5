//! Simulates controllers, scheduler and kubelets: creates the Pods of a Deployment on nodes with free capacity,
//! immediately ready.

use cluster::metadata_field;
use operator::kinds::{DEPLOYMENT, POD};
use serde_json::{Value, json};

use crate::client::{Cluster, string_at};
use crate::cluster::{ACCELERATORS_PER_NODE, node_name};
use crate::result::Result;

/// Free accelerators of all nodes, allocated from the first to the last node.
pub(crate) struct NodeCapacity {
    free: Vec<usize>,
    next_node: usize,
}

// === impl NodeCapacity ===

impl NodeCapacity {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { free: vec![ACCELERATORS_PER_NODE; nodes], next_node: 0 }
    }

    fn allocate(&mut self, count: usize) -> Option<String> {
        while self.free.get(self.next_node)? < &count {
            self.next_node += 1;
        }
        self.free[self.next_node] -= count;
        Some(node_name(self.next_node))
    }

    /// Returns the scheduled Pods of a new Deployment.
    pub(crate) fn schedule(&mut self, deployment: &Value) -> Result<Vec<Value>> {
        let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
        let accelerators = accelerators(deployment);
        let pod = |number| {
            let node = self.allocate(accelerators).ok_or("no node has free accelerators")?;
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
    let total: u64 = containers.into_iter().flatten().filter_map(limit).sum();
    usize::try_from(total).unwrap_or(ACCELERATORS_PER_NODE)
}

fn pod(deployment: &Value, number: u64, node: &str) -> Value {
    let template = &deployment["spec"]["template"];
    let mut spec = template["spec"].clone();
    spec["nodeName"] = node.into();
    let name = metadata_field(deployment, "name");
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": metadata_field(deployment, "uid"),
        "controller": true});
    let mut metadata = json!({"name": format!("{name}-{number}"), "namespace": metadata_field(deployment, "namespace"),
        "ownerReferences": [owner]});
    metadata["labels"] = template["metadata"]["labels"].clone();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Creates ready Pods and writes the status of the Deployment.
pub(crate) async fn run(cluster: &Cluster, deployment: &Value, pods: Vec<Value>) -> Result<()> {
    let count = pods.len();
    for pod in pods {
        let (namespace, name) = (metadata_field(&pod, "namespace").to_owned(), metadata_field(&pod, "name").to_owned());
        cluster.create(POD, pod).await?;
        cluster.patch_status(POD, &namespace, &name, &pod_status("True")).await?;
    }
    let status = json!({"observedGeneration": deployment["metadata"]["generation"], "replicas": count,
        "updatedReplicas": count, "readyReplicas": count, "availableReplicas": count,
        "conditions": [{"type": "Available", "status": "True"}]});
    cluster
        .patch_status(
            DEPLOYMENT,
            metadata_field(deployment, "namespace"),
            string_at(deployment, "/metadata/name"),
            &status,
        )
        .await
}

pub(crate) fn pod_status(ready: &str) -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]})
}
