//! Condition `GangScheduled`: how many replicas of a gang are fully scheduled.
//!
//! Applies to services of both kinds: a replica is either a LeaderWorkerSet or one group of a LeaderWorkerSet.

use std::collections::BTreeSet;

use cluster::{ApplyResult, Condition, EventPolicy, is_terminating, metadata_field};
use plan::ServicePlan;
use plan::labels::{GROUP_INDEX, GROUP_NAME, REPLICA_INDEX, ROLE_NAME, TASK_SPEC};
use serde_json::Value;

use crate::condition_reason::{ConditionReason, WorkloadReason};
use crate::failures::apply_failure;
use crate::kinds::POD_GROUP;
use crate::readiness::{WorkloadProblem, pod_problem};
use crate::workloads::{LiveWorkload, PlannedWorkload};

const CONDITION_TYPE: &str = "GangScheduled";

/// Annotation that LeaderWorkerSet sets on every Pod: the number of Pods of its group.
const GROUP_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";

/// Role of a gang.
struct GangRole<'a> {
    name: &'a str,
    replicas: Replicas,
}

/// Replicas of a role.
struct Replicas {
    /// The replicas that have Pods, in order. A replica without Pods is not scheduled.
    with_pods: Vec<GangReplica>,
    /// Number of all replicas. A user may have scaled a LeaderWorkerSet to any number.
    total: u64,
}

/// Replica whose Pods are scheduled together.
struct GangReplica {
    placement: Placement,
    /// Message of the scheduler about one of the unscheduled Pods.
    waiting_message: Option<String>,
    /// Whether such a message is expected because the Pods are being created.
    is_being_created: bool,
}

/// How many Pods of a replica are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// All Pods are scheduled.
    Full,
    /// Some Pods are scheduled; they occupy nodes without serving.
    Partial,
    /// No Pod is scheduled.
    None,
}

/// Returns the `GangScheduled` condition of a service, or `None` if the service has no gang.
pub(crate) fn gang_condition(
    workloads: &[PlannedWorkload],
    applied: &[ApplyResult],
    plan: Option<&ServicePlan>,
) -> Option<Condition> {
    let roles = gang_roles(workloads);
    if roles.is_empty() || plan.is_some_and(|plan| !plan.feasible) {
        return None;
    }
    if let Some(failure) = apply_failure(applied, |kind| kind == POD_GROUP.kind) {
        let condition = ConditionReason::from(&failure).condition(CONDITION_TYPE, false, failure.to_string());
        // `Initialized`, or `WorkloadsReady` of an `ome.io` service, emits the event.
        return Some(condition.with_event_policy(EventPolicy::Suppressed));
    }
    let waiting_message = roles.iter().find_map(GangRole::waiting_message);
    let with_waiting_message = |text: String| match &waiting_message {
        Some(waiting) => format!("{text}; {waiting}"),
        None => text,
    };
    Some(match () {
        () if roles.iter().all(|role| role.scheduled() == role.replicas.total) => {
            let message = format!("All replicas are scheduled: {}", scheduled_counts(&roles));
            ConditionReason::FullCapacity.condition(CONDITION_TYPE, true, message)
        }
        () if roles.iter().all(GangRole::has_minimum) => {
            let message = with_waiting_message(format!("Scheduled replicas: {}", scheduled_counts(&roles)));
            ConditionReason::PartialCapacity.condition(CONDITION_TYPE, true, message)
        }
        () if !roles.iter().any(GangRole::is_rejected) => {
            let message = with_waiting_message("Waiting for the scheduler to schedule the Pods".to_owned());
            ConditionReason::Workload(WorkloadReason::Starting).condition(CONDITION_TYPE, false, message)
        }
        () if roles.iter().any(GangRole::occupies_nodes) => {
            let message = with_waiting_message(format!("Fully scheduled replicas: {}", scheduled_counts(&roles)));
            ConditionReason::BelowMinimum.condition(CONDITION_TYPE, false, message)
        }
        () => {
            let message = "No Pod runs until one replica of each role can be scheduled".to_owned();
            blocked_condition(plan, with_waiting_message(message))
        }
    })
}

/// Returns the condition of a blocked gang. An installed Volcano that only supports all-or-nothing gangs may be the
/// cause.
fn blocked_condition(plan: Option<&ServicePlan>, message: String) -> Condition {
    let all_or_nothing = plan::code::warning::GANG_ALL_OR_NOTHING;
    let mut warnings = plan.into_iter().flat_map(|plan| &plan.warnings);
    match warnings.any(|warning| warning.code == all_or_nothing.as_str()) {
        true => Condition::new(CONDITION_TYPE, false, all_or_nothing, message),
        false => ConditionReason::Blocked.condition(CONDITION_TYPE, false, message),
    }
}

/// Returns the roles of the gang, in the order of the plan.
fn gang_roles(workloads: &[PlannedWorkload]) -> Vec<GangRole<'_>> {
    let mut roles: Vec<GangRole<'_>> = Vec::new();
    for workload in workloads.iter().filter(|workload| is_in_gang(&workload.planned)) {
        let (name, replicas) = (role_name(&workload.planned), gang_replicas(workload));
        match roles.iter_mut().find(|role| role.name == name) {
            Some(role) => role.replicas.append(replicas),
            None => roles.push(GangRole { name, replicas }),
        }
    }
    roles
}

fn pod_annotations(set: &Value) -> &Value {
    &set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"]
}

fn is_in_gang(set: &Value) -> bool {
    pod_annotations(set)[GROUP_NAME].is_string()
}

/// Returns the role of a LeaderWorkerSet. If the set contains all replicas of a role, its Volcano task has the name of
/// the role.
fn role_name(set: &Value) -> &str {
    let label = set["metadata"]["labels"][ROLE_NAME].as_str();
    label.or_else(|| pod_annotations(set)[TASK_SPEC].as_str()).unwrap_or_else(|| metadata_field(set, "name"))
}

/// Returns the replicas of a LeaderWorkerSet: the set itself if it is one replica, otherwise its groups.
fn gang_replicas(workload: &PlannedWorkload) -> Replicas {
    let planned = &workload.planned;
    if let Some(index) = planned["metadata"]["labels"][REPLICA_INDEX].as_str() {
        return Replicas { with_pods: vec![GangReplica::new(workload, index, |_| true)], total: 1 };
    }
    let spec_replicas = |set: &Value| set["spec"]["replicas"].as_u64();
    // Only the live object has the replica count that an autoscaler set.
    let count = workload
        .live
        .as_ref()
        .and_then(|live| spec_replicas(&live.object))
        .or_else(|| spec_replicas(planned))
        .unwrap_or(1);
    let pods = workload.live.iter().flat_map(LiveWorkload::pods);
    let indices: BTreeSet<u64> =
        pods.filter_map(|pod| pod["metadata"]["labels"][GROUP_INDEX].as_str()?.parse().ok()).collect();
    let replica =
        |index: String| GangReplica::new(workload, &index, |pod| pod["metadata"]["labels"][GROUP_INDEX] == *index);
    let with_pods = indices.range(..count).map(|index| replica(index.to_string())).collect();
    Replicas { with_pods, total: count }
}

/// Formats the scheduled replicas: `prefill 1 of 1, decode 1 of 2`.
fn scheduled_counts(roles: &[GangRole<'_>]) -> String {
    let count = |role: &GangRole<'_>| format!("{} {} of {}", role.name, role.scheduled(), role.replicas.total);
    roles.iter().map(count).collect::<Vec<_>>().join(", ")
}

// === impl GangRole ===

impl GangRole<'_> {
    /// Returns the number of fully scheduled replicas.
    fn scheduled(&self) -> u64 {
        let scheduled = self.replicas.with_pods.iter().filter(|replica| replica.placement == Placement::Full);
        scheduled.count() as u64
    }

    /// Returns whether at least one replica is scheduled, or the role is scaled to zero.
    fn has_minimum(&self) -> bool {
        self.scheduled() > 0 || self.replicas.total == 0
    }

    fn occupies_nodes(&self) -> bool {
        self.replicas.with_pods.iter().any(|replica| replica.placement != Placement::None)
    }

    /// Returns whether the scheduler rejects a replica that is not being created.
    fn is_rejected(&self) -> bool {
        self.replicas.with_pods.iter().any(|replica| replica.waiting_message.is_some() && !replica.is_being_created)
    }

    /// Returns the scheduler's message about the first waiting replica.
    fn waiting_message(&self) -> Option<String> {
        self.replicas.with_pods.iter().find_map(|replica| replica.waiting_message.clone())
    }
}

// === impl Replicas ===

impl Replicas {
    /// Appends the replicas of another workload of the role.
    fn append(&mut self, others: Replicas) {
        self.with_pods.extend(others.with_pods);
        self.total = self.total.saturating_add(others.total);
    }
}

// === impl GangReplica ===

impl GangReplica {
    /// Creates replica `index` of a workload from the Pods that `is_member` accepts.
    fn new(workload: &PlannedWorkload, index: &str, is_member: impl Fn(&Value) -> bool) -> GangReplica {
        let pods: Vec<&Value> =
            workload.live.iter().flat_map(LiveWorkload::pods).filter(|pod| is_member(pod)).collect();
        // A replica that is not updated yet may have another number of Pods, and so may a group of the live set.
        let set = workload.live.as_ref().map_or(&workload.planned, |live| &live.object);
        let size_of_group = |pod: &&Value| pod["metadata"]["annotations"][GROUP_SIZE].as_str()?.parse().ok();
        let size = pods.iter().find_map(size_of_group);
        let size: u64 = size.or_else(|| set["spec"]["leaderWorkerTemplate"]["size"].as_u64()).unwrap_or(1);
        let is_scheduled = |pod: &&&Value| pod["spec"]["nodeName"].is_string() && !is_terminating(pod);
        let placement = match pods.iter().filter(is_scheduled).count() {
            0 => Placement::None,
            scheduled if u64::try_from(scheduled).is_ok_and(|scheduled| scheduled >= size) => Placement::Full,
            _ => Placement::Partial,
        };
        let problems = pods.into_iter().filter_map(pod_problem);
        let unschedulable = problems.filter(WorkloadProblem::is_waiting_for_node);
        let message = unschedulable.map(|problem| problem.message).min();
        let waiting_message =
            message.map(|message| format!("{}-{index} is not scheduled: {message}", role_name(&workload.planned)));
        GangReplica { placement, waiting_message, is_being_created: workload.gang_creation_end.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Returns a LeaderWorkerSet of an `ome.io` engine: each entry is a group of two Pods with that many scheduled
    /// Pods.
    fn engine(groups: &[usize]) -> PlannedWorkload {
        let planned = json!({"kind": "LeaderWorkerSet", "metadata": {"name": "chat-engine"},
            "spec": {"replicas": groups.len(), "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"metadata":
                {"annotations": {GROUP_NAME: "chat", TASK_SPEC: "engine"}}}}}});
        let pod = |group: usize, index: usize, scheduled: usize| {
            let unschedulable = json!([{"type": "PodScheduled", "status": "False", "message": "no capacity"}]);
            let (spec, conditions) =
                if index < scheduled { (json!({"nodeName": "n"}), json!([])) } else { (json!({}), unschedulable) };
            json!({"metadata": {"name": format!("chat-engine-{group}-{index}"), "labels": {GROUP_INDEX: group.to_string()}},
                "spec": spec, "status": {"phase": "Pending", "conditions": conditions}})
        };
        let pods = groups
            .iter()
            .enumerate()
            .flat_map(|(group, scheduled)| (0..2).map(move |index| pod(group, index, *scheduled)));
        PlannedWorkload::new(planned.clone(), Some(planned), pods.collect())
    }

    #[rstest]
    #[case::full(&[2, 2], "True FullCapacity", "All replicas are scheduled: engine 2 of 2")]
    #[case::partial(&[2, 0], "True PartialCapacity",
        "Scheduled replicas: engine 1 of 2; engine-1 is not scheduled: no capacity")]
    #[case::blocked(&[0, 0], "False Blocked",
        "No Pod runs until one replica of each role can be scheduled; engine-0 is not scheduled: no capacity")]
    // A node was lost: the remaining Pod of the replica still occupies a node.
    #[case::lost_node(&[1, 0], "False BelowMinimum",
        "Fully scheduled replicas: engine 0 of 2; engine-0 is not scheduled: no capacity")]
    #[case::scaled_to_zero(&[], "True FullCapacity", "All replicas are scheduled: engine 0 of 0")]
    fn counts_groups_of_one_set(#[case] groups: &[usize], #[case] expect: &str, #[case] message: &str) {
        let condition = gang_condition(&[engine(groups)], &[], None).unwrap();
        assert_eq!(
            (format!("{} {}", condition.status.as_str(), condition.reason).as_str(), condition.message.as_str()),
            (expect, message)
        );
    }

    /// The scheduler rejects the first Pods of every gang.
    #[rstest]
    #[case::no_pod_is_bound(&[0, 0])]
    #[case::pods_are_being_bound(&[1, 0])]
    fn gang_that_is_being_created_is_starting(#[case] groups: &[usize]) {
        let engine = PlannedWorkload { gang_creation_end: Some(Timestamp::MAX), ..engine(groups) };
        let condition = gang_condition(&[engine], &[], None).unwrap();
        assert_eq!(
            (condition.reason.as_str(), condition.event_policy, condition.message.as_str()),
            (
                "Starting",
                EventPolicy::Normal,
                "Waiting for the scheduler to schedule the Pods; engine-0 is not scheduled: no capacity"
            )
        );
    }

    /// An autoscaled role has no replica count of ours, so that a user's is not reverted.
    #[test]
    fn many_replicas_are_counted_without_a_list() {
        let mut engine = engine(&[2, 0]);
        engine.planned["spec"].as_object_mut().unwrap().remove("replicas");
        Arc::make_mut(&mut engine.live.as_mut().unwrap().object)["spec"]["replicas"] = json!(u64::MAX);
        let condition = gang_condition(&[engine], &[], None).unwrap();
        let expected = format!("Scheduled replicas: engine 1 of {}; engine-1 is not scheduled: no capacity", u64::MAX);
        assert_eq!(condition.message, expected);
    }

    #[test]
    fn workload_without_group_annotation_is_no_gang() {
        let mut single_replica = engine(&[2]);
        single_replica.planned["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"] = Value::Null;
        assert_eq!(gang_condition(&[single_replica], &[], None), None);
    }
}
