//! Keys of labels and annotations that ostler sets or reads, and how they are merged with those of the user.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Label that names the manager of an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`] on objects that ostler manages.
pub const MANAGER: &str = "ostler";

/// Label with the name of the `ome.io` service.
pub const OME_SERVICE: &str = decide::SERVICE_LABEL;
/// Label with the component (`engine`, `decoder`, `router`); the key is upstream's.
pub const COMPONENT: &str = "component";

/// Label of Pods with the class of their accelerators.
pub const ACCELERATOR_CLASS: &str = "ome.io/accelerator-class";
/// Annotation of Pods that serve prompts of a size range: smallest number of tokens, inclusive. Without it there is no lower
/// bound. The gateway routes by the range.
pub const PROMPT_TOKENS_MIN: &str = "ome.io/prompt-tokens-min";
/// Annotation of Pods that serve prompts of a size range: largest number of tokens, inclusive. Without it there is no upper
/// bound.
pub const PROMPT_TOKENS_MAX: &str = "ome.io/prompt-tokens-max";

/// Label with the name of the role-based service.
pub const SERVICE: &str = "fusioninfer.io/service";
/// Label with the component type of a role.
pub const COMPONENT_TYPE: &str = "fusioninfer.io/component-type";
/// Label with the name of a role.
pub const ROLE_NAME: &str = "fusioninfer.io/role-name";
/// Label with the index of a replica.
pub const REPLICA_INDEX: &str = "fusioninfer.io/replica-index";
/// Label with the generation of the service that an object was rendered from.
pub const REVISION: &str = "fusioninfer.io/revision";

/// Annotation of the LeaderWorkerSet of an additional replica, which serves while the number of nodes of the others changes.
pub const SURGE_REPLICA: &str = "fusioninfer.io/surge-replica";

/// Annotation with the PodGroup of a Pod, read by Volcano.
pub const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
/// Annotation with the task of a Pod, read by Volcano.
pub const TASK_SPEC: &str = "volcano.sh/task-spec";

/// Label that LeaderWorkerSet sets on every Pod: the index within its group; `0` for leaders.
pub const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// Label that LeaderWorkerSet sets on every Pod: the name of the LeaderWorkerSet.
pub const LEADER_WORKER_SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";

/// Label that LeaderWorkerSet sets on every Pod: the index of its group.
pub const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";

/// Annotation of `ome.io` services: `true` schedules engine and decoder as a gang even if each has one node, `false`
/// disables gang scheduling.
pub const GANG: &str = "ome.io/gang";

/// Annotation of `ome.io` services: time without requests after which an engine with `minReplicas: 0` has no replicas.
pub const IDLE_TIMEOUT: &str = "ome.io/idle-timeout";

/// Label with the Kueue queue; copied from a service to its workloads.
pub const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Annotation of services: each new value requests a new decision.
pub const REDECIDE: &str = "ome.io/redecide";

/// A map of labels or annotations.
pub type Labels = BTreeMap<String, String>;

/// Returns `pairs` as labels.
pub(crate) fn from_pairs<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Returns `labels` with [`MANAGED_BY`].
pub(crate) fn with_managed_by(labels: &Labels) -> Labels {
    let mut labels = labels.clone();
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// Sets `values` in `template.metadata.FIELD` (`labels` or `annotations`) and overwrites the user's values.
pub(crate) fn set_on_template(template: &mut Value, field: &str, values: &Labels) {
    if values.is_empty() {
        return;
    }
    for (key, value) in values {
        template["metadata"][field][key] = json!(value);
    }
}
