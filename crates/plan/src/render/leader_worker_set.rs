//! Replicas of leader and workers: one LeaderWorkerSet for each (seed 002, naming table), or one for all of them.

use serde_json::{Value, json};

use crate::gang;
use crate::labels::{self, Labels};
use crate::multinode;
use crate::names;
use crate::topology::{Owner, Role};

/// `{service}-{role}-{index}`: one replica.
pub(crate) fn replica(owner: &Owner, role: &Role, index: u32) -> Value {
    let number = labels::of([(labels::REPLICA_INDEX, index.to_string().as_str())]);
    let mut object_labels = role.labels.clone();
    object_labels.extend(number.clone());
    if let Some(generation) = owner.generation {
        object_labels.insert(labels::REVISION.to_owned(), generation.to_string());
    }
    let pods = PodsOf { owner, role, task: gang::task(&role.name, index), number };
    let mut set = pods.set(&names::replica(&owner.name, &role.name, index), &object_labels);
    set["spec"]["replicas"] = json!(1);
    set
}

/// `{service}-{role}`: all replicas. Where an autoscaler owns their number, we do not state one: two writers would fight.
///
/// LeaderWorkerSet makes headless Services for the Pods' names. One for all groups would have the set's own name, and so
/// that of the component's Service; one for each group does not.
pub(crate) fn whole(owner: &Owner, role: &Role) -> Value {
    let pods = PodsOf { owner, role, task: role.name.clone(), number: Labels::new() };
    let mut set = pods.set(&names::workload(owner, role), &role.labels);
    set["spec"]["networkConfig"] = json!({"subdomainPolicy": "UniquePerReplica"});
    if !role.replicas.scaled() {
        set["spec"]["replicas"] = json!(role.replicas.min);
    }
    set
}

/// The Pods that one LeaderWorkerSet makes.
struct PodsOf<'a> {
    owner: &'a Owner,
    role: &'a Role,
    /// What Volcano counts them as.
    task: String,
    /// Labels that only these Pods of the role have.
    number: Labels,
}

impl PodsOf<'_> {
    /// What we do not state (restart policy, network) LeaderWorkerSet defaults.
    fn set(&self, name: &str, object_labels: &Labels) -> Value {
        let role = self.role;
        let mut group = json!({"size": role.nodes});
        match &role.worker {
            Some(worker) => {
                group["leaderTemplate"] = self.template(&role.template);
                group["workerTemplate"] = self.template(worker);
            }
            // LeaderWorkerSet makes the only Pod from the worker template.
            None => group["workerTemplate"] = self.template(&role.template),
        }
        json!({
            "apiVersion": api::neighbours::LEADER_WORKER_SET,
            "kind": "LeaderWorkerSet",
            "metadata": self.owner.metadata(name, &labels::managed(object_labels)),
            "spec": {
                "startupPolicy": "LeaderCreated",
                // Its controller cannot work with one without these numbers, and a set that is made before its webhook
                // is installed gets no defaults.
                "rolloutStrategy": {"type": "RollingUpdate",
                    "rollingUpdateConfiguration": {"partition": 0, "maxUnavailable": 1, "maxSurge": 0}},
                "leaderWorkerTemplate": group,
            },
        })
    }

    /// A pod template with what only these Pods have: their number, their task, and their hosts.
    fn template(&self, of: &Value) -> Value {
        let mut template = of.clone();
        labels::onto_template(&mut template, "labels", &self.number);
        if self.role.gang {
            let pairs = [(labels::GROUP_NAME, self.owner.name.as_str()), (labels::TASK_SPEC, self.task.as_str())];
            labels::onto_template(&mut template, "annotations", &labels::of(pairs));
        }
        if self.role.spread {
            let mut own = self.role.selector.clone();
            own.extend(self.number.clone());
            multinode::on_different_hosts(&mut template, &own);
        }
        template
    }
}
