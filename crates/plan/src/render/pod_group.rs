//! The PodGroup of a service with a gang.

use api::fusioninfer::GangPolicy;
use serde_json::{Value, json};

use crate::gang::{Gang, Member};
use crate::labels::{self, Labels};
use crate::topology::Owner;

/// One PodGroup of the service's name. `MinimumAvailable` has a subgroup for each replica and needs one of each role;
/// `All` names every replica as a task and needs them all.
pub(crate) fn render(owner: &Owner, labels: &Labels, gang: &Gang) -> Value {
    let mut spec = json!({"minMember": gang.min_member(), "minResources": gang.min_resources()});
    match gang.policy {
        GangPolicy::All => spec["minTaskMember"] = json!(gang.tasks()),
        GangPolicy::MinimumAvailable => {
            spec["subGroupPolicy"] = gang.members.iter().map(subgroup).collect();
        }
    }
    if let Some(class) = &gang.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": owner.metadata(&owner.name, &labels::managed(labels)),
        "spec": spec,
    })
}

/// Without `matchLabelKeys` Volcano sees no subgroup and starts nothing.
fn subgroup(member: &Member) -> Value {
    json!({
        "name": member.role,
        "labelSelector": {"matchLabels": member.selector},
        "matchLabelKeys": [member.replicas_by.label()],
        "subGroupSize": member.pods,
        "minSubGroups": 1,
    })
}
