//! Renders LeaderWorkerSets: one per replica (seed 002, naming table), or one for all replicas.

use serde_json::{Value, json};

use crate::gang;
use crate::labels::{self, Labels};
use crate::multinode;
use crate::names;
use crate::owner::Owner;
use crate::role::Role;

/// Renders the LeaderWorkerSet `{service}-{role}-{index}` of one replica.
pub(crate) fn replica(owner: &Owner, role: &Role, index: u32) -> Value {
    let index_labels = labels::from_pairs([(labels::REPLICA_INDEX, index.to_string().as_str())]);
    let mut object_labels = role.labels.clone();
    object_labels.extend(index_labels.clone());
    if let Some(generation) = owner.generation {
        object_labels.insert(labels::REVISION.to_owned(), generation.to_string());
    }
    let builder = SetBuilder { owner, role, task: gang::task_name(&role.name, index), index_labels };
    let mut set = builder.build(&names::replica(&owner.name, &role.name, index), &object_labels);
    set["spec"]["replicas"] = json!(1);
    set
}

/// Renders an additional replica, with the next index. It is not a member of the gang, which does not count it.
pub(crate) fn surge_replica(owner: &Owner, role: &Role) -> Value {
    let outside_of_gang = Role { in_gang: false, ..role.clone() };
    let mut set = replica(owner, &outside_of_gang, role.replicas.min);
    set["metadata"]["annotations"] = json!({labels::SURGE_REPLICA: "true"});
    set
}

/// Renders the LeaderWorkerSet `{service}-{role}` with all replicas. Omits `replicas` if an autoscaler manages the number.
///
/// LeaderWorkerSet creates headless Services. A shared headless Service would have the same name as the component's Service, so
/// each group gets its own.
pub(crate) fn all_replicas(owner: &Owner, role: &Role) -> Value {
    let builder = SetBuilder { owner, role, task: role.name.clone(), index_labels: Labels::new() };
    let mut set = builder.build(&names::workload(owner, role), &role.labels);
    set["spec"]["networkConfig"] = json!({"subdomainPolicy": "UniquePerReplica"});
    if !role.replicas.is_managed_by_others() {
        set["spec"]["replicas"] = json!(role.replicas.min);
    }
    set
}

/// Builds one LeaderWorkerSet.
struct SetBuilder<'a> {
    owner: &'a Owner,
    role: &'a Role,
    /// Volcano task of the Pods.
    task: String,
    /// Labels that distinguish the Pods from those of other replicas of the role.
    index_labels: Labels,
}

impl SetBuilder<'_> {
    /// Builds the object. Omitted fields (restart policy, network) are defaulted by LeaderWorkerSet.
    fn build(&self, name: &str, object_labels: &Labels) -> Value {
        let role = self.role;
        let mut group = json!({"size": role.nodes});
        match &role.worker_template {
            Some(worker) => {
                group["leaderTemplate"] = self.template(&role.template);
                group["workerTemplate"] = self.template(worker);
            }
            // If there is no leader template, LeaderWorkerSet creates the only Pod from the worker template.
            None => group["workerTemplate"] = self.template(role.workload_template()),
        }
        json!({
            "apiVersion": api::integrations::LEADER_WORKER_SET_API_VERSION,
            "kind": "LeaderWorkerSet",
            "metadata": self.owner.metadata(name, &labels::with_managed_by(object_labels)),
            "spec": {
                "startupPolicy": "LeaderCreated",
                // The controller requires these fields, and they are not defaulted if the object is created before the
                // webhook is installed.
                "rolloutStrategy": {"type": "RollingUpdate",
                    "rollingUpdateConfiguration": {"partition": 0, "maxUnavailable": 1, "maxSurge": 0}},
                "leaderWorkerTemplate": group,
            },
        })
    }

    /// Returns the Pod template with replica labels, gang annotations and anti-affinity.
    fn template(&self, base: &Value) -> Value {
        let mut template = base.clone();
        labels::set_on_template(&mut template, "labels", &self.index_labels);
        if self.role.in_gang {
            let pairs = [(labels::GROUP_NAME, self.owner.name.as_str()), (labels::TASK_SPEC, self.task.as_str())];
            labels::set_on_template(&mut template, "annotations", &labels::from_pairs(pairs));
        }
        if self.role.spread_over_hosts {
            let mut selector = self.role.selector.clone();
            selector.extend(self.index_labels.clone());
            multinode::spread_over_hosts(&mut template, &selector);
        }
        template
    }
}
