//! The status of a `fusioninfer.io` InferenceService; pure.

mod conditions;
mod role;
#[cfg(test)]
mod tests;

use cluster::apply::Applied;
use cluster::conditions::{Transition, render};
use cluster::object::generation;
use decide::reason::Warning;
use jiff::Timestamp;
use plan::ServicePlan;
use serde_json::{Map, Value, json};

use crate::readings::Wanted;
use crate::report::Report;
use crate::rollout::Rollouts;
use crate::routes::Answer;
use role::RoleState;

/// One role as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// What its Pods do.
    pub part: Part,
    /// Replicas wanted.
    pub replicas: i64,
    /// Pods per replica.
    pub nodes: i64,
}

/// What the Pods of a role do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// They answer requests.
    Engine,
    /// They choose who answers.
    Router,
}

/// What a reconcile of one service found out.
pub struct Findings<'a> {
    /// The service as it is in the cluster.
    pub service: &'a Value,
    /// What was planned for it; `None` where its state cannot be read and nothing was.
    pub plan: Option<&'a ServicePlan>,
    /// The declared roles.
    pub roles: &'a [Role],
    /// The workloads of all roles.
    pub workloads: &'a [Wanted],
    /// What became of its objects.
    pub applied: &'a [Applied],
    /// What is being rolled out, by role.
    pub rollouts: &'a Rollouts,
    /// What gateways say of its route and pool.
    pub routes: &'a Answer,
    /// Kinds of workloads that cannot be read: nothing is known about their state.
    pub unread: &'a [String],
}

// === impl Findings ===

impl Findings<'_> {
    /// The plan that says why nothing can be laid out.
    fn refusal(&self) -> Option<&ServicePlan> {
        self.plan.filter(|plan| !plan.feasible)
    }

    fn feasible(&self) -> bool {
        self.refusal().is_none()
    }
}

/// The declared roles; what is unset counts as 1. A router has one node per replica, and its number is its own affair.
#[must_use]
pub fn roles(service: &Value) -> Vec<Role> {
    let declared = service["spec"]["roles"].as_array().into_iter().flatten();
    let role = |role: &Value| {
        let router = role["componentType"] == "router";
        Role {
            name: role["name"].as_str().unwrap_or_default().to_owned(),
            part: if router { Part::Router } else { Part::Engine },
            replicas: if router { 1 } else { role["replicas"].as_i64().unwrap_or(1) },
            nodes: if router { 1 } else { role["multinode"]["nodeCount"].as_i64().unwrap_or(1) },
        }
    };
    declared.map(role).collect()
}

/// Everything to tell about the service.
#[must_use]
pub fn report(findings: &Findings<'_>, now: Timestamp) -> Report {
    let service = findings.service;
    let states: Vec<RoleState> = findings.roles.iter().map(|role| RoleState::of(findings, role)).collect();
    let conditions = conditions::conditions(findings, &states);
    let generation = generation(service);
    let old = &service["status"];
    let dated = |state: &RoleState| (state.name.clone(), state.dated(&old["components"][&state.name], now));
    let components: Map<String, Value> = states.iter().map(dated).collect();
    // What cannot be read was not reconciled either.
    let observed = if findings.unread.is_empty() { json!(generation) } else { old["observedGeneration"].clone() };
    let mut status = json!({"conditions": render(&old["conditions"], &conditions, generation, now)});
    if !observed.is_null() {
        status["observedGeneration"] = observed;
    }
    if !components.is_empty() {
        status["components"] = Value::Object(components);
    }
    if !findings.rollouts.is_empty() {
        let rollouts = findings.rollouts.iter().map(|(role, rollout)| (role.clone(), rollout.status()));
        status["rollouts"] = Value::Object(rollouts.collect());
    }
    Report { conditions, status, news: remarks(findings) }
}

/// What laying the service out has remarked, once for each edit.
fn remarks(findings: &Findings<'_>) -> Vec<Transition> {
    let told = findings.service["status"]["observedGeneration"] == generation(findings.service);
    let warnings = findings.plan.into_iter().filter(|_| !told).flat_map(|plan| &plan.warnings);
    let event = |warning: &Warning| Transition {
        warning: true,
        reason: warning.code.clone(),
        message: warning.message.clone(),
    };
    warnings.map(event).collect()
}
