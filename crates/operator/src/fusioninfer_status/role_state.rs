//! Observed state of one role.

use api::fusioninfer::ComponentType;
use jiff::Timestamp;
use plan::labels::{COMPONENT_TYPE, ROLE_NAME};
use serde_json::{Value, json};

use super::observations::FusionInferObservations;
use super::spec_role::{Role, RoleKind};
use crate::failures::planned_workload_problem;
use crate::readiness::{Progress, WorkloadProblem, is_pod_ready};
use crate::workloads::{LiveWorkload, PlannedWorkload};

/// Observed state of one role.
pub(super) struct RoleState {
    /// Name of the role.
    pub(super) name: String,
    /// Whether the role serves or routes requests.
    pub(super) kind: RoleKind,
    /// Desired replicas.
    pub(super) desired: i64,
    /// Replicas that serve requests.
    pub(super) ready: i64,
    /// Entry of `status.components`, without the timestamp.
    status: Value,
    /// The most urgent problem of the workloads.
    pub(super) problem: Option<WorkloadProblem>,
}

/// Counts over the workloads of a role.
#[derive(Clone, Copy, Default)]
struct Counts {
    desired: i64,
    ready: i64,
    ready_pods: i64,
    exists: bool,
}

/// Phase of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing exists.
    Pending,
    /// Fewer than the desired replicas are ready.
    Deploying,
    /// All desired replicas are ready.
    Running,
    /// The role does not work without a change by the user.
    Failed,
    /// The workloads cannot be listed.
    Unknown,
}

// === impl Phase ===

impl Phase {
    /// Returns `Pending` if nothing exists, `Deploying` if something exists, and `Running` if all desired replicas are
    /// ready. A role with zero replicas is `Running`.
    pub(super) fn new(desired: i64, ready: i64, exists: bool, failed: bool) -> Phase {
        match () {
            () if failed => Phase::Failed,
            () if ready >= desired => Phase::Running,
            () if exists || ready > 0 => Phase::Deploying,
            () => Phase::Pending,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Deploying => "Deploying",
            Phase::Running => "Running",
            Phase::Failed => "Failed",
            Phase::Unknown => "Unknown",
        }
    }
}

// === impl RoleState ===

impl RoleState {
    pub(super) fn new(observations: &FusionInferObservations<'_>, role: &Role) -> RoleState {
        if !observations.unlisted.is_empty() {
            return RoleState::unknown(observations, role);
        }
        let workloads: Vec<&PlannedWorkload> =
            observations.workloads.iter().filter(|workload| role.has_workload(workload)).collect();
        let counts = match role.kind {
            RoleKind::Engine => engine_counts(role, &workloads),
            RoleKind::Router => router_counts(role, &workloads),
        };
        let problem = workloads.iter().filter_map(|workload| planned_workload_problem(workload)).min();
        let failed = !observations.is_feasible() || problem.as_ref().is_some_and(|problem| problem.failed);
        let phase = Phase::new(counts.desired, counts.ready, counts.exists, failed);
        RoleState {
            name: role.name.clone(),
            kind: role.kind,
            desired: counts.desired,
            ready: counts.ready,
            status: status(role, counts, phase),
            problem,
        }
    }

    /// Keeps the last observed counts because no newer ones are known.
    fn unknown(observations: &FusionInferObservations<'_>, role: &Role) -> RoleState {
        let old_entry = &observations.service["status"]["components"][&role.name];
        let count = |field: &str| old_entry[field].as_i64().unwrap_or_default();
        let desired = if old_entry.is_object() { count("desiredReplicas") } else { role.replicas };
        let counts = Counts { desired, ready: count("readyReplicas"), ready_pods: count("readyPods"), exists: true };
        RoleState {
            name: role.name.clone(),
            kind: role.kind,
            desired,
            ready: counts.ready,
            status: status(role, counts, Phase::Unknown),
            problem: None,
        }
    }

    /// Returns the entry with `lastUpdateTime`, which changes only with the content.
    pub(super) fn with_timestamp(&self, old_entry: &Value, now: Timestamp) -> Value {
        let (mut status, mut old_content) = (self.status.clone(), old_entry.clone());
        let last_update_time = old_content.as_object_mut().and_then(|content| content.remove("lastUpdateTime"));
        status["lastUpdateTime"] = match last_update_time {
            Some(time) if old_content == status => time,
            _ => cluster::rfc3339_seconds(now).into(),
        };
        status
    }
}

// === impl Role ===

impl Role {
    /// Returns whether a workload belongs to the role. A service has at most one router; workloads of engines are
    /// labeled with their role.
    fn has_workload(&self, workload: &PlannedWorkload) -> bool {
        let labels = &workload.planned["metadata"]["labels"];
        let is_router = labels[COMPONENT_TYPE] == ComponentType::Router.as_str();
        match self.kind {
            RoleKind::Router => is_router,
            RoleKind::Engine => !is_router && labels[ROLE_NAME] == *self.name,
        }
    }
}

/// Counts the replicas of an engine role. A replica is ready only if all its Pods are: a replica with 3 of 4 ready Pods
/// is not ready (seed 002, ComponentStatus). One that is not updated yet may have another number of nodes. An additional replica
/// counts instead of one that is being updated.
fn engine_counts(role: &Role, workloads: &[&PlannedWorkload]) -> Counts {
    let nodes = |workload: &PlannedWorkload| {
        let size = workload.live.as_ref().and_then(|live| live.object["spec"]["leaderWorkerTemplate"]["size"].as_i64());
        size.unwrap_or(role.nodes)
    };
    let ready = workloads.iter().filter(|workload| ready_pods(workload) >= nodes(workload)).count();
    // A replica that is scaled down to fewer nodes may still have its former Pods.
    let ready_pods: i64 = workloads.iter().map(|workload| ready_pods(workload).min(role.nodes)).sum();
    Counts {
        desired: role.replicas,
        ready: i64::try_from(ready).unwrap_or(i64::MAX).min(role.replicas),
        ready_pods: ready_pods.min(role.replicas.saturating_mul(role.nodes)),
        exists: workloads.iter().any(|workload| workload.live.is_some()),
    }
}

fn router_counts(role: &Role, workloads: &[&PlannedWorkload]) -> Counts {
    let Some(workload) = workloads.first() else { return Counts { desired: role.replicas, ..Counts::default() } };
    let progress = workload.live.as_ref().map(|live| Progress::from_workload(&live.object));
    let ready = progress.as_ref().map_or(0, |progress| progress.ready);
    Counts {
        desired: workload.planned["spec"]["replicas"].as_i64().unwrap_or(role.replicas),
        ready,
        ready_pods: ready,
        exists: progress.is_some(),
    }
}

fn ready_pods(workload: &PlannedWorkload) -> i64 {
    let ready = workload.live.iter().flat_map(LiveWorkload::pods).filter(|pod| is_pod_ready(pod)).count();
    i64::try_from(ready).unwrap_or(i64::MAX)
}

fn status(role: &Role, counts: Counts, phase: Phase) -> Value {
    json!({
        "desiredReplicas": counts.desired, "readyReplicas": counts.ready, "nodesPerReplica": role.nodes,
        "totalPods": counts.desired.saturating_mul(role.nodes), "readyPods": counts.ready_pods, "phase": phase.as_str(),
    })
}
