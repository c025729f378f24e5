//! Gang scheduling with Volcano (seed 002, Gang Scheduling Behavior). topology.md lists the encodings and their
//! measured behavior.

use std::collections::BTreeMap;

use api::fusioninfer::GangPolicy;
use apimachinery::{ResourceList, add_resources_of_pods, pod_requests};
use decide::Warning;
use serde_json::{Value, json};

use crate::code;
use crate::labels::{self, Labels};
use crate::role::{Role, Workload};

/// Scheduler of gangs.
pub(crate) const VOLCANO: &str = "volcano";

/// Gang fields of the installed PodGroup definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodGroupSchema {
    /// `subGroupPolicy`: Volcano 1.14 and newer.
    #[default]
    SubGroupPolicy,
    /// `minTaskMember` only: Volcano before 1.14.
    MinTaskMember,
}

/// Pods that Volcano schedules together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gang {
    pub policy: GangPolicy,
    /// Members in order of declaration, each with at least one replica.
    pub members: Vec<GangMember>,
    /// Priority class of the first member that has one; Volcano orders PodGroups, not Pods.
    pub priority_class: Option<String>,
}

/// A role of a gang.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GangMember {
    pub role: String,
    /// Selects the role's Pods.
    pub selector: Labels,
    pub replica_label: ReplicaLabel,
    pub replicas: u32,
    /// Number of Pods of one replica.
    pub pods: u32,
    /// Resource requests of one replica.
    pub requests: ResourceList,
}

/// Label that distinguishes the Pods of different replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicaLabel {
    /// Each replica is a separate LeaderWorkerSet with an index.
    ReplicaIndex,
    /// The replicas are groups of one LeaderWorkerSet.
    GroupIndex,
}

/// Returns the gang of `roles`, if any role with replicas is a member. The default policy is `MinimumAvailable` if `schema`
/// supports it. Returns a warning if `schema` does not support the policy.
pub(crate) fn build_gang(
    roles: &[Role],
    policy: Option<GangPolicy>,
    schema: PodGroupSchema,
) -> (Option<Gang>, Option<Warning>) {
    let in_gang: Vec<&Role> = roles.iter().filter(|role| role.in_gang && role.replicas.max > 0).collect();
    if in_gang.is_empty() {
        return (None, None);
    }
    let effective_policy = match schema {
        PodGroupSchema::SubGroupPolicy => policy.unwrap_or(GangPolicy::MinimumAvailable),
        PodGroupSchema::MinTaskMember => GangPolicy::All,
    };
    let warning = (schema == PodGroupSchema::MinTaskMember && policy != Some(GangPolicy::All)).then(|| {
        Warning::new(
            code::warning::GANG_ALL_OR_NOTHING,
            "The installed Volcano does not support subGroupPolicy: all replicas are scheduled together or not at all; with Volcano 1.14 or newer, one replica of each role is enough",
        )
    });
    let priority_class =
        in_gang.iter().find_map(|role| role.template.pointer("/spec/priorityClassName")?.as_str()).map(str::to_owned);
    let members = in_gang.into_iter().map(gang_member).collect();
    (Some(Gang { policy: effective_policy, members, priority_class }), warning)
}

// === impl PodGroupSchema ===

impl PodGroupSchema {
    /// Returns the schema of a Volcano version such as `1.14` or `v1.15.1`; `None` for an invalid version.
    pub fn from_volcano_version(version: &str) -> Option<Self> {
        let version: api::Version = version.parse().ok()?;
        let first_with_subgroups: api::Version = "1.14".parse().ok()?;
        Some(if version.cmp_specified(&first_with_subgroups).is_lt() {
            Self::MinTaskMember
        } else {
            Self::SubGroupPolicy
        })
    }
}

// === impl ReplicaLabel ===

impl ReplicaLabel {
    /// Returns the label key.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::ReplicaIndex => labels::REPLICA_INDEX,
            Self::GroupIndex => labels::GROUP_INDEX,
        }
    }
}

// === impl Gang ===

impl Gang {
    /// Returns the number of replicas of `member` that must be scheduled together.
    fn min_replicas(&self, member: &GangMember) -> u32 {
        match self.policy {
            GangPolicy::All => member.replicas,
            GangPolicy::MinimumAvailable => 1,
        }
    }

    /// Returns the number of Pods that must be scheduled together.
    pub(crate) fn min_member(&self) -> u32 {
        let pods = self.members.iter().map(|member| self.min_replicas(member).saturating_mul(member.pods));
        pods.fold(0, u32::saturating_add)
    }

    /// Returns the resource requests of these Pods.
    pub(crate) fn min_resources(&self) -> ResourceList {
        let mut total = ResourceList::new();
        for member in &self.members {
            add_resources_of_pods(&mut total, &member.requests, self.min_replicas(member));
        }
        total
    }

    /// Returns the number of Pods by task: one task per replica with an index, or one task per role whose Pods share a template.
    pub(crate) fn min_task_member(&self) -> BTreeMap<String, u32> {
        let tasks = |member: &GangMember| -> Vec<(String, u32)> {
            match member.replica_label {
                ReplicaLabel::ReplicaIndex => {
                    (0..member.replicas).map(|index| (task_name(&member.role, index), member.pods)).collect()
                }
                ReplicaLabel::GroupIndex => vec![(member.role.clone(), member.replicas.saturating_mul(member.pods))],
            }
        };
        self.members.iter().flat_map(tasks).collect()
    }
}

fn gang_member(role: &Role) -> GangMember {
    let mut requests = pod_requests(&role.template);
    if let Some(worker) = &role.worker_template {
        let worker_requests = pod_requests(worker);
        add_resources_of_pods(&mut requests, &worker_requests, role.nodes.saturating_sub(1));
    }
    let replicas_by = match role.workload {
        Workload::LeaderWorkerSetPerReplica => ReplicaLabel::ReplicaIndex,
        Workload::LeaderWorkerSet | Workload::Deployment => ReplicaLabel::GroupIndex,
    };
    GangMember {
        role: role.name.clone(),
        selector: role.selector.clone(),
        replica_label: replicas_by,
        // Counts one replica for a role scaled to zero, so that its first replica can join the gang.
        replicas: role.replicas.min.max(1),
        pods: role.nodes,
        requests,
    }
}

/// Sets the scheduler of a Pod template.
///
/// # Errors
/// The name of a different scheduler in the template.
pub(crate) fn set_scheduler(template: &mut Value, scheduler: Option<&str>) -> Result<(), String> {
    let Some(scheduler) = scheduler.filter(|name| !name.is_empty()) else { return Ok(()) };
    if let Some(other) = template["spec"]["schedulerName"].as_str().filter(|other| *other != scheduler) {
        return Err(other.to_owned());
    }
    template["spec"]["schedulerName"] = json!(scheduler);
    Ok(())
}

/// Returns the task name of replica `index` of `role`.
pub(crate) fn task_name(role: &str, index: u32) -> String {
    format!("{role}-{index}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1.14", Some(PodGroupSchema::SubGroupPolicy))]
    #[case("v1.15.1", Some(PodGroupSchema::SubGroupPolicy))]
    #[case("1.13.3", Some(PodGroupSchema::MinTaskMember))]
    #[case("new", None)]
    fn parses_volcano_versions(#[case] version: &str, #[case] expect: Option<PodGroupSchema>) {
        assert_eq!(PodGroupSchema::from_volcano_version(version), expect);
    }
}
