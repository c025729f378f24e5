//! What one role has, and what stands in its way.

use api::fusioninfer::ComponentType;
use jiff::Timestamp;
use plan::labels::{COMPONENT_TYPE, ROLE_NAME};
use serde_json::{Value, json};

use super::{Findings, Part, Role};
use crate::obstacles::why_not;
use crate::readiness::{Progress, Trouble, pod_ready};
use crate::readings::{Wanted, Workload};

pub(super) struct RoleState {
    pub(super) name: String,
    pub(super) part: Part,
    pub(super) desired: i64,
    pub(super) ready: i64,
    /// Its entry of `status.components`, without the time.
    status: Value,
    pub(super) trouble: Option<Trouble>,
}

/// Counts of a role's workloads.
#[derive(Clone, Copy, Default)]
struct Counts {
    desired: i64,
    ready: i64,
    ready_pods: i64,
    exists: bool,
}

/// Where a role is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Deploying,
    Running,
    Failed,
    /// What is there cannot be read.
    Unknown,
}

// === impl Phase ===

impl Phase {
    /// Nothing of it exists, something does, or all that is wanted is ready. Zero replicas are all there at once.
    pub(super) fn of(desired: i64, ready: i64, exists: bool, failed: bool) -> Phase {
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
    pub(super) fn of(findings: &Findings<'_>, role: &Role) -> RoleState {
        if !findings.unread.is_empty() {
            return RoleState::unknown(findings, role);
        }
        let workloads: Vec<&Wanted> = findings.workloads.iter().filter(|wanted| role.owns(wanted)).collect();
        let counts = match role.part {
            Part::Engine => replicas(role, &workloads),
            Part::Router => deployment(role, &workloads),
        };
        let trouble = workloads.iter().filter_map(|wanted| why_not(wanted)).min();
        let failed = !findings.feasible() || trouble.as_ref().is_some_and(|trouble| trouble.failed);
        let phase = Phase::of(counts.desired, counts.ready, counts.exists, failed);
        RoleState {
            name: role.name.clone(),
            part: role.part,
            desired: counts.desired,
            ready: counts.ready,
            status: status(role, counts, phase),
            trouble,
        }
    }

    /// The last counts stay, since nothing better is known.
    fn unknown(findings: &Findings<'_>, role: &Role) -> RoleState {
        let old = &findings.service["status"]["components"][&role.name];
        let count = |field: &str| old[field].as_i64().unwrap_or_default();
        let desired = if old.is_object() { count("desiredReplicas") } else { role.replicas };
        let counts = Counts { desired, ready: count("readyReplicas"), ready_pods: count("readyPods"), exists: true };
        RoleState {
            name: role.name.clone(),
            part: role.part,
            desired,
            ready: counts.ready,
            status: status(role, counts, Phase::Unknown),
            trouble: None,
        }
    }

    /// Its entry with `lastUpdateTime`, which moves only with the content.
    pub(super) fn dated(&self, old: &Value, now: Timestamp) -> Value {
        let (mut status, mut before) = (self.status.clone(), old.clone());
        let time = before.as_object_mut().and_then(|before| before.remove("lastUpdateTime"));
        status["lastUpdateTime"] = match time {
            Some(time) if before == status => time,
            _ => cluster::clock::seconds(now).into(),
        };
        status
    }
}

// === impl Role ===

impl Role {
    /// A service has one router, whatever it is called; every replica of an engine names its role.
    fn owns(&self, wanted: &Wanted) -> bool {
        let labels = &wanted.planned["metadata"]["labels"];
        let routes = labels[COMPONENT_TYPE] == ComponentType::Router.as_str();
        match self.part {
            Part::Router => routes,
            Part::Engine => !routes && labels[ROLE_NAME] == *self.name,
        }
    }
}

/// A replica is ready only when all its nodes are: 3 of 4 is none (seed 002, ComponentStatus).
fn replicas(role: &Role, workloads: &[&Wanted]) -> Counts {
    let ready = workloads.iter().filter(|wanted| ready_pods(wanted) >= role.nodes).count();
    Counts {
        desired: role.replicas,
        ready: i64::try_from(ready).unwrap_or(i64::MAX),
        // A replica that is to have fewer Pods still has all of before.
        ready_pods: workloads.iter().map(|wanted| ready_pods(wanted).min(role.nodes)).sum(),
        exists: workloads.iter().any(|wanted| wanted.live.is_some()),
    }
}

fn deployment(role: &Role, workloads: &[&Wanted]) -> Counts {
    let Some(wanted) = workloads.first() else { return Counts { desired: role.replicas, ..Counts::default() } };
    let progress = wanted.live.as_ref().map(|live| Progress::of(&live.object));
    let ready = progress.as_ref().map_or(0, |progress| progress.ready);
    Counts {
        desired: wanted.planned["spec"]["replicas"].as_i64().unwrap_or(role.replicas),
        ready,
        ready_pods: ready,
        exists: progress.is_some(),
    }
}

fn ready_pods(wanted: &Wanted) -> i64 {
    let ready = wanted.live.iter().flat_map(Workload::pods).filter(|pod| pod_ready(pod)).count();
    i64::try_from(ready).unwrap_or(i64::MAX)
}

fn status(role: &Role, counts: Counts, phase: Phase) -> Value {
    json!({
        "desiredReplicas": counts.desired, "readyReplicas": counts.ready, "nodesPerReplica": role.nodes,
        "totalPods": counts.desired * role.nodes, "readyPods": counts.ready_pods, "phase": phase.as_str(),
    })
}
