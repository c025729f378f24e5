//! Gang scheduling: the Pods of a Volcano PodGroup are placed together or not at all.
//!
//! `spec.minMember` is the minimum number of Pods of the group; `minTaskMember` adds a minimum for each task. With
//! `subGroupPolicy`, the Pods that a policy selects are divided into subgroups by their values of the labels in
//! `matchLabelKeys`. Either all Pods of a subgroup are placed or none, and each policy requires `minSubGroups` complete
//! subgroups before any Pod of the group is bound. Beyond the minimum, subgroups are placed one at a time while
//! resources are available. Pods without a subgroup are placed one at a time in the order of the number at the end of
//! their names, so the replicas fill up in round-robin order. A group with `minResources` starts only when these
//! resources are available in the cluster. The behavior matches measurements on Volcano 1.15 with its default actions.
//! Queues and preemption by gangs are not implemented.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::{LabelSelector, Quantity, ResourceList, object, parse_resource_list};
use serde_json::Value;

use super::decision::{Decision, Outcome};
use super::node_info::{NodeInfo, allocatable};
use super::pod_info;
use super::schedule_one::schedule_pod;
use super::snapshot::SchedulingSnapshot;

/// Annotation or label that names the Volcano task of a Pod.
const TASK_SPEC: &str = "volcano.sh/task-spec";

/// The minimum numbers of Pods and subgroups that must be placed before any Pod of a gang is bound.
struct GangRequirements {
    min_member: u64,
    /// `minTaskMember`: the minimum number of Pods of each task. Empty if it is not enforced.
    tasks: BTreeMap<String, u64>,
    subgroup_policies: Vec<SubGroupPolicy>,
}

/// One entry of `subGroupPolicy`.
struct SubGroupPolicy {
    selector: LabelSelector,
    match_label_keys: Vec<String>,
    size: usize,
    min_subgroups: usize,
}

/// Pods that a policy selects and whose labels in `matchLabelKeys` have the same values.
struct Subgroup {
    /// Index of the policy in `subGroupPolicy`.
    policy_index: usize,
    pending: Vec<Arc<Value>>,
    bound: usize,
    size: usize,
}

/// Tentative placements; they are committed only when the requirements are met.
struct GangPlacement {
    node_infos: Vec<NodeInfo>,
    /// Outcome by Pod name, without an entry for Pods whose placement was not attempted.
    outcomes: BTreeMap<String, Outcome>,
}

/// Schedules the `pending` Pods of `group`, whose other Pods are `bound`. Reserves the requests of placed Pods in
/// `node_infos`.
pub(super) fn schedule_gang(
    name: &str,
    group: Option<&Value>,
    pending: &[Arc<Value>],
    bound: &[Arc<Value>],
    node_infos: &mut Vec<NodeInfo>,
    snapshot: &SchedulingSnapshot,
) -> Vec<Decision> {
    let Some(group) = group else {
        return wait_decisions(pending, &format!("pod group {name} is not found"));
    };
    let requirements = GangRequirements::new(group);
    if bound.is_empty() && !is_enqueueable(group, node_infos) {
        return wait_decisions(
            pending,
            &format!("pod group {name} is waiting: its minResources exceed the resources available in the cluster"),
        );
    }
    let mut pending = pending.to_vec();
    pending.sort_by_cached_key(|pod| task_order(pod));
    let pending = pending.as_slice();
    let mut placement = GangPlacement { node_infos: node_infos.clone(), outcomes: BTreeMap::new() };
    let (subgroups, ungrouped_pods) = subgroups(&requirements.subgroup_policies, pending, bound);
    placement.place_required(&requirements, &subgroups, snapshot);
    for subgroup in &subgroups {
        placement.place_subgroup(subgroup, snapshot);
    }
    for pod in &ungrouped_pods {
        placement.place_pod(pod, snapshot);
    }
    let placed: Vec<&Arc<Value>> = pending.iter().filter(|pod| placement.is_placed(pod)).collect();
    let members: Vec<&Arc<Value>> = bound.iter().chain(placed.iter().copied()).collect();
    if requirements.are_met(&members, &subgroups, &placement) {
        *node_infos = placement.node_infos;
        return pending
            .iter()
            .map(|pod| {
                placement.outcomes.get(object::name(pod)).map_or_else(
                    || wait_decision(pod, "waiting for the subgroup to be complete"),
                    |outcome| Decision { pod: Arc::clone(pod), outcome: outcome.clone() },
                )
            })
            .collect();
    }
    let reason = placement.outcomes.values().find_map(|outcome| match outcome {
        Outcome::Wait { message, .. } => Some(format!("; {message}")),
        Outcome::Bind { .. } | Outcome::Preempt { .. } => None,
    });
    let message = format!(
        "pod group is not ready, {} of {} pending pods fit, {} are bound, {} minAvailable{}",
        placed.len(),
        pending.len(),
        bound.len(),
        requirements.min_member,
        reason.unwrap_or_default()
    );
    wait_decisions(pending, &message)
}

/// Returns `status.phase` of a PodGroup, which is `Running` while the required Pods are bound. Otherwise, a group
/// without `minMember` is `Completed`.
pub(super) fn group_phase(group: &Value, bound: &[Arc<Value>]) -> &'static str {
    let requirements = GangRequirements::new(group);
    let (subgroups, _) = subgroups(&requirements.subgroup_policies, &[], bound);
    let members: Vec<&Arc<Value>> = bound.iter().collect();
    let no_placement = GangPlacement { node_infos: Vec::new(), outcomes: BTreeMap::new() };
    let is_running = !bound.is_empty() && requirements.are_met(&members, &subgroups, &no_placement);
    match is_running {
        true => "Running",
        false if group.pointer("/spec/minMember").is_none() => "Completed",
        false if group.pointer("/spec/minResources").is_some() => "Pending",
        false => "Inqueue",
    }
}

/// Returns the Pods that must be evicted if `pod` is evicted, including `pod` itself: only the Pod or its subgroup if
/// the remaining Pods still meet the minimum, otherwise all `bound` Pods.
pub(super) fn evicted_members(group: &Value, pod: &Arc<Value>, bound: &[Arc<Value>]) -> Vec<Arc<Value>> {
    let requirements = GangRequirements::new(group);
    let is_evicted = |member: &Arc<Value>| match subgroup_of(&requirements.subgroup_policies, pod) {
        Some(key) => subgroup_of(&requirements.subgroup_policies, member) == Some(key),
        None => object::uid(member) == object::uid(pod),
    };
    let (evicted, remaining): (Vec<_>, Vec<_>) = bound.iter().cloned().partition(is_evicted);
    let (subgroups, _) = subgroups(&requirements.subgroup_policies, &[], &remaining);
    let members: Vec<&Arc<Value>> = remaining.iter().collect();
    let no_placement = GangPlacement { node_infos: Vec::new(), outcomes: BTreeMap::new() };
    if requirements.are_met(&members, &subgroups, &no_placement) { evicted } else { bound.to_vec() }
}

/// Whether Volcano's `overcommit` plugin admits the group: its `minResources` must not exceed 1.2 times the allocatable
/// resources of the cluster minus the resources that Pods already request.
fn is_enqueueable(group: &Value, node_infos: &[NodeInfo]) -> bool {
    const OVERCOMMIT_FACTOR: f64 = 1.2;
    let sum_over_nodes = |amount: &dyn Fn(&NodeInfo) -> f64| node_infos.iter().map(amount).sum::<f64>();
    parse_resource_list(group.pointer("/spec/minResources")).iter().all(|(name, minimum)| {
        let units = |amounts: &ResourceList| amounts.get(name).map_or(0.0, Quantity::as_f64);
        let total = sum_over_nodes(&|node_info| units(&allocatable(&node_info.node)));
        let requested = sum_over_nodes(&|node_info| units(&node_info.requested));
        minimum.as_f64() <= total * OVERCOMMIT_FACTOR - requested
    })
}

/// Returns the key by which Volcano sorts the Pods of a job: priority, number at the end of the name, creation time.
fn task_order(pod: &Value) -> (std::cmp::Reverse<i64>, u64, String, String) {
    let number = object::name(pod).rsplit('-').next().and_then(|last| last.parse().ok()).unwrap_or(u64::MAX);
    let created = object::text(pod, "/metadata/creationTimestamp").to_owned();
    (std::cmp::Reverse(pod_info::priority(pod)), number, created, object::name(pod).to_owned())
}

/// Returns the policy index and the label values that identify the subgroup of a Pod.
fn subgroup_of(policies: &[SubGroupPolicy], pod: &Value) -> Option<(usize, Vec<String>)> {
    policies.iter().enumerate().find_map(|(index, policy)| Some((index, policy.label_values(pod)?)))
}

/// Returns the subgroups, sorted by policy and label values, and the pending Pods without a subgroup.
fn subgroups(
    policies: &[SubGroupPolicy],
    pending: &[Arc<Value>],
    bound: &[Arc<Value>],
) -> (Vec<Subgroup>, Vec<Arc<Value>>) {
    let mut subgroups_by_key: BTreeMap<(usize, Vec<String>), Subgroup> = BTreeMap::new();
    let mut ungrouped_pods = Vec::new();
    for (pod, is_bound) in pending.iter().map(|pod| (pod, false)).chain(bound.iter().map(|pod| (pod, true))) {
        let Some(key) = subgroup_of(policies, pod) else {
            if !is_bound {
                ungrouped_pods.push(Arc::clone(pod));
            }
            continue;
        };
        let (policy, size) = (key.0, policies.get(key.0).map_or(1, |policy| policy.size));
        let subgroup = subgroups_by_key.entry(key).or_insert(Subgroup {
            policy_index: policy,
            pending: Vec::new(),
            bound: 0,
            size,
        });
        match is_bound {
            true => subgroup.bound = subgroup.bound.saturating_add(1),
            false => subgroup.pending.push(Arc::clone(pod)),
        }
    }
    (subgroups_by_key.into_values().collect(), ungrouped_pods)
}

/// Returns the task of a Pod: the value of the annotation, or of the label if the annotation is absent.
fn task_of(pod: &Value) -> String {
    let value = |field: &str| pod.pointer(&format!("/metadata/{field}"))?.get(TASK_SPEC)?.as_str().map(str::to_owned);
    value("annotations").or_else(|| value("labels")).unwrap_or_default()
}

/// Returns a decision for each Pod that leaves it pending with this message.
fn wait_decisions(pods: &[Arc<Value>], message: &str) -> Vec<Decision> {
    pods.iter().map(|pod| wait_decision(pod, message)).collect()
}

fn wait_decision(pod: &Arc<Value>, message: &str) -> Decision {
    let outcome = Outcome::Wait { reason: "Unschedulable", message: message.to_owned(), retains_nomination: false };
    Decision { pod: Arc::clone(pod), outcome }
}

// === impl GangRequirements ===

impl GangRequirements {
    fn new(group: &Value) -> Self {
        let spec = group.get("spec").unwrap_or(&Value::Null);
        let members = spec.get("minMember").and_then(Value::as_u64).unwrap_or(0);
        let tasks: BTreeMap<String, u64> = spec
            .get("minTaskMember")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(task, count)| Some((task.clone(), count.as_u64()?)))
            .collect();
        // Volcano enforces `minTaskMember` only if the sum of its values is at most `minMember`.
        let is_enforced = tasks.values().copied().fold(0, u64::saturating_add) <= members;
        let policies = spec.get("subGroupPolicy").and_then(Value::as_array).into_iter().flatten();
        Self {
            min_member: members,
            tasks: if is_enforced { tasks } else { BTreeMap::new() },
            subgroup_policies: policies.filter_map(SubGroupPolicy::new).collect(),
        }
    }

    fn are_met(&self, members: &[&Arc<Value>], subgroups: &[Subgroup], placement: &GangPlacement) -> bool {
        let member_count = |task: &str| members.iter().filter(|pod| task_of(pod) == task).count() as u64;
        let complete_subgroups =
            |policy: usize| subgroups.iter().filter(|s| s.policy_index == policy && placement.is_complete(s)).count();
        members.len() as u64 >= self.min_member
            && self.tasks.iter().all(|(task, count)| member_count(task) >= *count)
            && self
                .subgroup_policies
                .iter()
                .enumerate()
                .all(|(index, policy)| complete_subgroups(index) >= policy.min_subgroups)
    }
}

// === impl SubGroupPolicy ===

impl SubGroupPolicy {
    /// Reads a policy. A policy without `matchLabelKeys` never has a complete subgroup, so no Pod of its group is ever
    /// bound.
    fn new(policy: &Value) -> Option<Self> {
        let number = |field: &str| policy.get(field).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let match_label_keys = object::strings(policy.get("matchLabelKeys")).into_iter().map(str::to_owned).collect();
        Some(Self {
            selector: LabelSelector::from_json(policy.get("labelSelector").unwrap_or(&Value::Null)).ok()?,
            match_label_keys,
            size: number("subGroupSize").unwrap_or(1),
            min_subgroups: number("minSubGroups").unwrap_or(0),
        })
    }

    /// Returns the Pod's values of the labels in `matchLabelKeys`, or `None` if the policy does not select the Pod.
    fn label_values(&self, pod: &Value) -> Option<Vec<String>> {
        let labels = object::string_map(pod.pointer("/metadata/labels"));
        if self.match_label_keys.is_empty() || !self.selector.matches(&labels) {
            return None;
        }
        self.match_label_keys.iter().map(|key| labels.get(key).cloned()).collect()
    }
}

// === impl GangPlacement ===

impl GangPlacement {
    /// Places the subgroups that each policy requires, before any surplus subgroup takes resources.
    fn place_required(
        &mut self,
        requirements: &GangRequirements,
        subgroups: &[Subgroup],
        snapshot: &SchedulingSnapshot,
    ) {
        for (index, policy) in requirements.subgroup_policies.iter().enumerate() {
            let subgroups_of_policy = || subgroups.iter().filter(|subgroup| subgroup.policy_index == index);
            let mut complete = subgroups_of_policy().filter(|subgroup| self.is_complete(subgroup)).count();
            for subgroup in subgroups_of_policy() {
                if complete >= policy.min_subgroups {
                    break;
                }
                if !self.is_complete(subgroup) && self.place_subgroup(subgroup, snapshot) {
                    complete = complete.saturating_add(1);
                }
            }
        }
    }

    /// Places either all pending Pods of the subgroup or none. Returns whether the subgroup is complete afterwards.
    fn place_subgroup(&mut self, subgroup: &Subgroup, snapshot: &SchedulingSnapshot) -> bool {
        if self.is_complete(subgroup) || subgroup.bound.saturating_add(subgroup.pending.len()) < subgroup.size {
            return self.is_complete(subgroup);
        }
        let node_infos_before = self.node_infos.clone();
        let outcomes: Vec<Outcome> =
            subgroup.pending.iter().map(|pod| schedule_pod(pod, &mut self.node_infos, snapshot)).collect();
        let unschedulable = outcomes.iter().find(|outcome| matches!(outcome, Outcome::Wait { .. })).cloned();
        if unschedulable.is_some() {
            self.node_infos = node_infos_before;
        }
        for (pod, outcome) in subgroup.pending.iter().zip(outcomes) {
            let outcome = unschedulable.clone().unwrap_or(outcome);
            self.outcomes.insert(object::name(pod).to_owned(), outcome);
        }
        unschedulable.is_none()
    }

    fn place_pod(&mut self, pod: &Arc<Value>, snapshot: &SchedulingSnapshot) {
        let outcome = schedule_pod(pod, &mut self.node_infos, snapshot);
        self.outcomes.insert(object::name(pod).to_owned(), outcome);
    }

    fn is_placed(&self, pod: &Value) -> bool {
        matches!(self.outcomes.get(object::name(pod)), Some(Outcome::Bind { .. }))
    }

    fn is_complete(&self, subgroup: &Subgroup) -> bool {
        let placed = subgroup.pending.iter().filter(|pod| self.is_placed(pod)).count();
        placed == subgroup.pending.len() && subgroup.bound.saturating_add(placed) >= subgroup.size
    }
}
