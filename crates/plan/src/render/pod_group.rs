//! Renders the PodGroup of a gang.

use api::fusioninfer::GangPolicy;
use serde_json::{Value, json};

use crate::gang::{Gang, GangMember};
use crate::labels::{self, Labels};
use crate::owner::Owner;

/// Renders a PodGroup with the service's name. `MinimumAvailable` has one subgroup per replica and requires one of each role;
/// `All` has one task per replica and requires all of them.
pub(crate) fn render(owner: &Owner, labels: &Labels, gang: &Gang) -> Value {
    let mut spec = json!({"minMember": gang.min_member(), "minResources": gang.min_resources()});
    match gang.policy {
        GangPolicy::All => spec["minTaskMember"] = json!(gang.min_task_member()),
        GangPolicy::MinimumAvailable => {
            spec["subGroupPolicy"] = gang.members.iter().map(subgroup).collect();
        }
    }
    if let Some(class) = &gang.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    json!({
        "apiVersion": api::integrations::POD_GROUP_API_VERSION,
        "kind": "PodGroup",
        "metadata": owner.metadata(&owner.name, &labels::with_managed_by(labels)),
        "spec": spec,
    })
}

/// Renders the subgroup policy of a role. `matchLabelKeys` is required: without it, Volcano finds no subgroups and
/// schedules no Pods.
fn subgroup(member: &GangMember) -> Value {
    json!({
        "name": member.role,
        "labelSelector": {"matchLabels": member.selector},
        "matchLabelKeys": [member.replica_label.label()],
        "subGroupSize": member.pods,
        "minSubGroups": 1,
    })
}
