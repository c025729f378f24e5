//! What has to be placed together (seed 002, Gang Scheduling Behavior; measured encodings: topology.md).

use std::collections::BTreeMap;

use api::fusioninfer::GangPolicy;
use apimachinery::pod::{self, Amounts};
use decide::reason::Warning;
use serde_json::{Value, json};

use crate::code;
use crate::labels::{self, Labels};
use crate::topology::{Role, Workload};

/// The scheduler that places gangs.
pub(crate) const VOLCANO: &str = "volcano";

/// What the installed PodGroup definition can say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodGroupSchema {
    /// `subGroupPolicy`: Volcano 1.14 and newer.
    #[default]
    SubGroups,
    /// `minTaskMember` only.
    Tasks,
}

impl PodGroupSchema {
    /// What Volcano of this version has: `1.14`, `v1.15.1`. None for anything that is no version.
    pub fn of_version(version: &str) -> Option<Self> {
        let version: api::version::Version = version.parse().ok()?;
        let first_with_subgroups: api::version::Version = "1.14".parse().ok()?;
        Some(if version.cmp_stated(&first_with_subgroups).is_lt() { Self::Tasks } else { Self::SubGroups })
    }
}

/// The Pods that Volcano places together.
#[derive(Debug, Clone, PartialEq)]
pub struct Gang {
    pub policy: GangPolicy,
    /// In order of declaration; each has at least one replica.
    pub members: Vec<Member>,
    /// Of the first member that states one: Volcano orders groups, not Pods.
    pub priority_class: Option<String>,
}

/// One role of a gang.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub role: String,
    /// Finds its Pods among those of the service.
    pub selector: Labels,
    pub replicas_by: Replica,
    pub replicas: u32,
    /// Pods of one replica.
    pub pods: u32,
    /// What one replica requests.
    pub requests: Amounts,
}

/// How Pods of one replica are told from those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replica {
    /// Every replica is an object of ours, which numbers its Pods.
    Numbered,
    /// The replicas are groups of one LeaderWorkerSet, which numbers them.
    Group,
}

impl Replica {
    /// The label whose value is the replica's number.
    pub fn label(self) -> &'static str {
        match self {
            Self::Numbered => labels::REPLICA_INDEX,
            Self::Group => labels::GROUP_INDEX,
        }
    }
}

/// The gang of `roles`, if any has a share in it and a replica. Without a stated policy it is the strongest one that
/// `schema` can say; where a stated one cannot be said, a warning tells what holds instead.
pub fn of(roles: &[Role], stated: Option<GangPolicy>, schema: PodGroupSchema) -> (Option<Gang>, Option<Warning>) {
    let in_gang: Vec<&Role> = roles.iter().filter(|role| role.gang && role.replicas.max > 0).collect();
    if in_gang.is_empty() {
        return (None, None);
    }
    let policy = match schema {
        PodGroupSchema::SubGroups => stated.unwrap_or(GangPolicy::MinimumAvailable),
        PodGroupSchema::Tasks => GangPolicy::All,
    };
    let warning = (schema == PodGroupSchema::Tasks && stated != Some(GangPolicy::All)).then(|| {
        Warning::new(
            code::warning::GANG_ALL_OR_NOTHING,
            "this Volcano has no subGroupPolicy: all replicas start together or none does; with Volcano 1.14 or newer one replica of each role is enough",
        )
    });
    let priority_class =
        in_gang.iter().find_map(|role| role.template.pointer("/spec/priorityClassName")?.as_str()).map(str::to_owned);
    let members = in_gang.into_iter().map(member).collect();
    (Some(Gang { policy, members, priority_class }), warning)
}

fn member(role: &Role) -> Member {
    let mut requests = pod::requests(&role.template);
    if let Some(worker) = &role.worker {
        let of_worker = pod::requests(worker);
        (1..role.nodes).for_each(|_| pod::add(&mut requests, &of_worker));
    }
    let replicas_by = match role.workload {
        Workload::LeaderWorkerSetPerReplica => Replica::Numbered,
        Workload::LeaderWorkerSet | Workload::Deployment => Replica::Group,
    };
    Member {
        role: role.name.clone(),
        selector: role.selector.clone(),
        replicas_by,
        // One that sleeps has its place in the gang when it wakes.
        replicas: role.replicas.min.max(1),
        pods: role.nodes,
        requests,
    }
}

impl Gang {
    /// Replicas of `member` that must be placed before any is.
    fn minimum(&self, member: &Member) -> u32 {
        match self.policy {
            GangPolicy::All => member.replicas,
            GangPolicy::MinimumAvailable => 1,
        }
    }

    /// Pods that must be placed together.
    pub fn min_member(&self) -> u32 {
        self.members.iter().map(|member| self.minimum(member) * member.pods).sum()
    }

    /// What these Pods request.
    pub fn min_resources(&self) -> Amounts {
        let mut total = Amounts::new();
        for member in &self.members {
            (0..self.minimum(member)).for_each(|_| pod::add(&mut total, &member.requests));
        }
        total
    }

    /// Pods by task: one replica where replicas are numbered, else the whole role, whose Pods share one template.
    pub fn tasks(&self) -> BTreeMap<String, u32> {
        let replicas = |member: &Member| -> Vec<(String, u32)> {
            match member.replicas_by {
                Replica::Numbered => {
                    (0..member.replicas).map(|index| (task(&member.role, index), member.pods)).collect()
                }
                Replica::Group => vec![(member.role.clone(), member.replicas * member.pods)],
            }
        };
        self.members.iter().flat_map(replicas).collect()
    }
}

/// Puts `scheduler` on the Pods of `template`.
///
/// # Errors
/// The scheduler that the template names, where that is another one.
pub(crate) fn schedule(template: &mut Value, scheduler: Option<&str>) -> Result<(), String> {
    let Some(scheduler) = scheduler.filter(|name| !name.is_empty()) else { return Ok(()) };
    if let Some(other) = template["spec"]["schedulerName"].as_str().filter(|other| *other != scheduler) {
        return Err(other.to_owned());
    }
    template["spec"]["schedulerName"] = json!(scheduler);
    Ok(())
}

/// Name of the task that is replica `index` of `role`.
pub fn task(role: &str, index: u32) -> String {
    format!("{role}-{index}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1.14", Some(PodGroupSchema::SubGroups))]
    #[case("v1.15.1", Some(PodGroupSchema::SubGroups))]
    #[case("1.13.3", Some(PodGroupSchema::Tasks))]
    #[case("new", None)]
    fn versions(#[case] version: &str, #[case] expect: Option<PodGroupSchema>) {
        assert_eq!(PodGroupSchema::of_version(version), expect);
    }
}
