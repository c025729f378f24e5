//! One replica of a role-based service: a LeaderWorkerSet of `replicas: 1` (seed 002, naming table).

use serde_json::{Value, json};

use crate::labels;
use crate::names;
use crate::topology::{Owner, Role};

/// `{service}-{role}-{index}`. What we do not state (restart policy, network, rollout numbers) LeaderWorkerSet defaults.
pub(crate) fn render(owner: &Owner, role: &Role, index: u32) -> Value {
    let replica = labels::of([(labels::REPLICA_INDEX, index.to_string().as_str())]);
    let mut object_labels = role.labels.clone();
    object_labels.extend(replica.clone());
    if let Some(generation) = owner.generation {
        object_labels.insert(labels::REVISION.to_owned(), generation.to_string());
    }
    let mut template = role.template.clone();
    labels::onto_template(&mut template, "labels", &replica);
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": owner.metadata(&names::replica(&owner.name, &role.name, index), &labels::managed(&object_labels)),
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {"type": "RollingUpdate"},
            "leaderWorkerTemplate": {"size": role.nodes, "workerTemplate": template},
        },
    })
}
