//! One replica of a role-based service: a LeaderWorkerSet of `replicas: 1` (seed 002, naming table).

use serde_json::{Value, json};

use crate::gang;
use crate::labels::{self, Labels};
use crate::multinode;
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
    let mut group = json!({"size": role.nodes});
    match &role.worker {
        Some(worker) => {
            group["leaderTemplate"] = template(owner, role, &role.template, index, &replica);
            group["workerTemplate"] = template(owner, role, worker, index, &replica);
        }
        // LeaderWorkerSet makes the only Pod from the worker template.
        None => group["workerTemplate"] = template(owner, role, &role.template, index, &replica),
    }
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": owner.metadata(&names::replica(&owner.name, &role.name, index), &labels::managed(&object_labels)),
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {"type": "RollingUpdate"},
            "leaderWorkerTemplate": group,
        },
    })
}

/// A pod template with what only this replica has: its index, its task, and its hosts.
fn template(owner: &Owner, role: &Role, of: &Value, index: u32, replica: &Labels) -> Value {
    let mut template = of.clone();
    labels::onto_template(&mut template, "labels", replica);
    if role.gang {
        let (task, group) = (gang::task(&role.name, index), owner.name.as_str());
        let annotations = labels::of([(labels::GROUP_NAME, group), (labels::TASK_SPEC, task.as_str())]);
        labels::onto_template(&mut template, "annotations", &annotations);
    }
    if role.spread {
        let mut own = role.selector.clone();
        own.extend(replica.clone());
        multinode::on_different_hosts(&mut template, &own);
    }
    template
}
