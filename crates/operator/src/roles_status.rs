//! The status of a `fusioninfer.io` InferenceService; pure.

use cluster::apply::Applied;
use cluster::conditions::render;
use cluster::object::generation;
use cluster::{Condition, State, Tone};
use jiff::Timestamp;
use plan::labels::ROLE_NAME;
use serde_json::{Map, Value, json};

use crate::code;
use crate::ome_status::{obstacle, why_not};
use crate::readiness::{Code, Trouble, pod_ready};
use crate::readings::Wanted;
use crate::reason::Reason;
use crate::report::Report;

/// One role as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Replicas wanted.
    pub replicas: i64,
    /// Pods per replica.
    pub nodes: i64,
}

/// What a reconcile of one service found out.
pub struct Findings<'a> {
    /// The service as it is in the cluster.
    pub service: &'a Value,
    /// Its entry of `ostler plan -o json`.
    pub plan: &'a Value,
    /// The declared roles that run engines.
    pub roles: &'a [Role],
    /// The workloads of all roles.
    pub workloads: &'a [Wanted],
    /// What became of its objects.
    pub applied: &'a [Applied],
}

/// What one role has, and what stands in its way.
struct RoleState {
    name: String,
    desired: i64,
    ready: i64,
    status: Value,
    trouble: Option<Trouble>,
}

/// The declared roles that run engines; what is unset counts as 1. Routers are counted elsewhere.
#[must_use]
pub fn roles(service: &Value) -> Vec<Role> {
    let declared = service["spec"]["roles"].as_array().into_iter().flatten();
    let role = |role: &Value| Role {
        name: role["name"].as_str().unwrap_or_default().to_owned(),
        replicas: role["replicas"].as_i64().unwrap_or(1),
        nodes: role["multinode"]["nodeCount"].as_i64().unwrap_or(1),
    };
    declared.filter(|role| role["componentType"] != "router").map(role).collect()
}

/// Everything to tell about the service.
#[must_use]
pub fn report(findings: &Findings<'_>, now: Timestamp) -> Report {
    let service = findings.service;
    let states: Vec<RoleState> = findings.roles.iter().map(|role| state(findings, role)).collect();
    let conditions = conditions(findings, &states);
    let generation = generation(service);
    let old = &service["status"];
    let components: Map<String, Value> = states
        .into_iter()
        .map(|state| (state.name.clone(), dated(&old["components"][&state.name], state.status, now)))
        .collect();
    let mut status = json!({
        "observedGeneration": generation,
        "conditions": render(&old["conditions"], &conditions, generation, now),
    });
    if !components.is_empty() {
        status["components"] = Value::Object(components);
    }
    Report { conditions, status, news: Vec::new() }
}

fn state(findings: &Findings<'_>, role: &Role) -> RoleState {
    let of_role = |wanted: &&Wanted| wanted.planned["metadata"]["labels"][ROLE_NAME] == *role.name;
    let workloads: Vec<&Wanted> = findings.workloads.iter().filter(of_role).collect();
    let ready_pods = |wanted: &Wanted| {
        wanted.live.iter().flat_map(super::readings::Workload::pods).filter(|pod| pod_ready(pod)).count() as i64
    };
    // A replica is ready only when all its nodes are: 3 of 4 is none (seed 002, ComponentStatus).
    let ready = workloads.iter().filter(|wanted| ready_pods(wanted) >= role.nodes).count() as i64;
    let pods = workloads.iter().map(|wanted| ready_pods(wanted)).sum::<i64>();
    let exists = workloads.iter().any(|wanted| wanted.live.is_some());
    let trouble = workloads.iter().filter_map(|wanted| why_not(wanted)).min();
    let failed = findings.plan["feasible"] == false || trouble.as_ref().is_some_and(|trouble| trouble.failed);
    let phase = phase(role.replicas, ready, exists, failed);
    let status = json!({
        "desiredReplicas": role.replicas, "readyReplicas": ready, "nodesPerReplica": role.nodes,
        "totalPods": role.replicas * role.nodes, "readyPods": pods, "phase": phase,
    });
    RoleState { name: role.name.clone(), desired: role.replicas, ready, status, trouble }
}

fn phase(desired: i64, ready: i64, exists: bool, failed: bool) -> &'static str {
    match () {
        () if failed => "Failed",
        () if ready >= desired => "Running",
        () if exists || ready > 0 => "Deploying",
        () => "Pending",
    }
}

/// The component's status with `lastUpdateTime`, which moves only with the content.
fn dated(old: &Value, mut status: Value, now: Timestamp) -> Value {
    let mut before = old.clone();
    let time = before.as_object_mut().and_then(|before| before.remove("lastUpdateTime"));
    status["lastUpdateTime"] = match time {
        Some(time) if before == status => time,
        _ => cluster::clock::seconds(now).into(),
    };
    status
}

fn conditions(findings: &Findings<'_>, states: &[RoleState]) -> Vec<Condition> {
    let initialized = initialized(findings);
    let made = initialized.state == State::True;
    let counts = states
        .iter()
        .map(|one| format!("{} {} of {}", one.name, one.ready, one.desired))
        .collect::<Vec<_>>()
        .join(", ");
    let active = made && states.iter().all(|one| one.ready >= one.desired.min(1));
    let ready = made && states.iter().all(|one| one.ready >= one.desired);
    let worst = states.iter().filter_map(|one| one.trouble.as_ref()).min();
    let failed = worst.filter(|worst| worst.failed);
    let (reason, message, tone) = match worst {
        _ if !made => (initialized.reason.clone(), initialized.message.clone(), initialized.tone),
        Some(worst) => {
            (worst.code.as_str().to_owned(), format!("{}: {}", worst.object, worst.message), worst.code.tone())
        }
        None => (Code::Starting.as_str().to_owned(), format!("ready replicas: {counts}"), Tone::News),
    };
    let unmet = |kind| Condition::relayed(kind, false, reason.clone(), message.clone()).told_as(tone);
    let met = |kind, reason: api::code::Code| Condition::new(kind, true, reason, format!("ready replicas: {counts}"));
    let ready = if ready { met("Ready", Reason::Ready.code()) } else { unmet("Ready") };
    vec![
        initialized,
        if active { met("Active", code::MINIMUM_READY) } else { unmet("Active") },
        match failed.is_some() || findings.plan["feasible"] == false {
            // Positive polarity does not hold here: the name is upstream's.
            true => Condition::relayed("Failed", true, reason.clone(), message.clone()).told_as(Tone::Problem),
            false => {
                Condition::new("Failed", false, code::NO_FAILURE, "no component has failed").told_as(Tone::Consequence)
            }
        },
        ready,
    ]
}

fn initialized(findings: &Findings<'_>) -> Condition {
    if findings.plan["feasible"] == false {
        let text = |field: &str| findings.plan[field].as_str().unwrap_or_default().to_owned();
        return Condition::relayed("Initialized", false, text("reason"), text("message"));
    }
    match obstacle(findings.applied) {
        Some((reason, message)) => reason.condition("Initialized", false, message),
        None => Condition::new("Initialized", true, code::OBJECTS_APPLIED, "every object of the service is applied")
            .told_as(Tone::Consequence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readings::Workload;
    use rstest::rstest;
    use std::sync::Arc;

    fn pod(name: &str, ready: bool) -> Arc<Value> {
        let ready = if ready { "True" } else { "False" };
        Arc::new(
            json!({"metadata": {"name": name}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}}),
        )
    }

    fn replica(ready: usize, nodes: usize) -> Wanted {
        let planned = json!({"kind": "LeaderWorkerSet", "metadata": {"name": "s-w-0", "labels": {ROLE_NAME: "w"}}});
        let mut object = planned.clone();
        object["spec"] = json!({"replicas": 1});
        object["status"] = json!({"readyReplicas": i64::from(ready == nodes), "updatedReplicas": 1});
        let pods = (0..nodes).map(|n| pod(&format!("p{n}"), n < ready)).collect();
        Wanted { planned, live: Some(Workload { object: Arc::new(object), pods }) }
    }

    fn run(old: Value, workloads: &[Wanted], at: i64) -> (Vec<Condition>, Value) {
        let service = json!({"metadata": {"name": "s", "generation": 1}, "status": old});
        let roles = [Role { name: "w".to_owned(), replicas: 2, nodes: 4 }];
        let findings =
            Findings { service: &service, plan: &json!({"feasible": true}), roles: &roles, workloads, applied: &[] };
        let Report { conditions, status, .. } = report(&findings, Timestamp::from_second(at).unwrap());
        (conditions, status)
    }

    // spec: TOP-80
    // spec: TOP-81
    #[test]
    fn three_of_four_pods_are_no_replica_but_are_seen() {
        let (conditions, status) = run(Value::Null, &[replica(4, 4), replica(3, 4)], 0);
        assert_eq!(
            status["components"]["w"],
            json!({"desiredReplicas": 2, "readyReplicas": 1, "nodesPerReplica": 4, "totalPods": 8,
            "readyPods": 7, "phase": "Deploying", "lastUpdateTime": "1970-01-01T00:00:00Z"})
        );
        let states: Vec<_> = conditions.iter().map(|one| (one.kind, one.state.as_str())).collect();
        assert_eq!(states, [("Initialized", "True"), ("Active", "True"), ("Failed", "False"), ("Ready", "False")]);
    }

    // spec: TOP-84
    #[test]
    fn the_time_moves_only_with_the_content() {
        let (_, first) = run(Value::Null, &[replica(3, 4)], 0);
        let (_, second) = run(first.clone(), &[replica(3, 4)], 60);
        assert_eq!(first, second);
        let (_, third) = run(first, &[replica(4, 4)], 60);
        assert_eq!(third["components"]["w"]["lastUpdateTime"], "1970-01-01T00:01:00Z");
    }

    // spec: TOP-82
    #[rstest]
    #[case::nothing(1, 0, false, false, "Pending")]
    #[case::made(1, 0, true, false, "Deploying")]
    #[case::some(2, 1, true, false, "Deploying")]
    #[case::all(2, 2, true, false, "Running")]
    #[case::zero(0, 0, false, false, "Running")]
    #[case::failed(1, 0, true, true, "Failed")]
    fn phases(
        #[case] desired: i64,
        #[case] ready: i64,
        #[case] exists: bool,
        #[case] failed: bool,
        #[case] expect: &str,
    ) {
        assert_eq!(phase(desired, ready, exists, failed), expect);
    }
}
