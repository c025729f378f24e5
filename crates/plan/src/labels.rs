//! Labels and annotations: which keys we set, and how they meet the user's.

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const OSTLER: &str = "ostler";

pub const OME_SERVICE: &str = decide::inventory::SERVICE_LABEL;
/// Upstream's bare key.
pub const COMPONENT: &str = "component";

/// Class of a pod's accelerators.
pub const ACCELERATOR_CLASS: &str = "ome.io/accelerator-class";
/// Annotations of pods that are for prompts of some sizes: tokens, both bounds inclusive, an absent one is none. The
/// gateway routes by them.
pub const PROMPT_TOKENS_MIN: &str = "ome.io/prompt-tokens-min";
pub const PROMPT_TOKENS_MAX: &str = "ome.io/prompt-tokens-max";

pub const SERVICE: &str = "fusioninfer.io/service";
pub const COMPONENT_TYPE: &str = "fusioninfer.io/component-type";
pub const ROLE_NAME: &str = "fusioninfer.io/role-name";
pub const REPLICA_INDEX: &str = "fusioninfer.io/replica-index";
pub const REVISION: &str = "fusioninfer.io/revision";

/// Annotation by which Volcano finds a Pod's PodGroup.
pub const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
/// Annotation by which Volcano finds a Pod's task.
pub const TASK_SPEC: &str = "volcano.sh/task-spec";

/// Set by LeaderWorkerSet on every pod; leaders have `0`.
pub const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// Set by LeaderWorkerSet on every pod: the number of its group.
pub const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";

/// Annotation on a service of `ome.io`: `true` places engine and decoder together even where each is one node, `false`
/// leaves every Pod to itself.
pub const GANG: &str = "ome.io/gang";

/// Label on a service that its workloads carry too, so that Kueue queues them.
pub const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Annotation on a service: its choice is to be taken again, once for each value.
pub const REDECIDE: &str = "ome.io/redecide";
/// Field of `status.decision`: the value of [`REDECIDE`] that it answers.
pub const REDECIDED: &str = "redecided";
/// Field of `status.decision`: the service has been ready by this choice, so it stays in force.
pub const SERVED: &str = "served";

pub type Labels = BTreeMap<String, String>;

/// `pairs` as labels.
pub fn of<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// `labels` and the mark of who wrote the object.
pub fn managed(labels: &Labels) -> Labels {
    let mut all = labels.clone();
    all.insert(MANAGED_BY.to_owned(), OSTLER.to_owned());
    all
}

/// Puts `ours` over the user's `template.metadata.FIELD` (`labels` or `annotations`). Ours win.
pub fn onto_template(template: &mut Value, field: &str, ours: &Labels) {
    if ours.is_empty() {
        return;
    }
    for (key, value) in ours {
        template["metadata"][field][key] = json!(value);
    }
}
