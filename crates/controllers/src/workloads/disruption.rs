//! PodDisruptionBudgets: publishes in the status how many Pods may currently be evicted.

use std::sync::Arc;

use apimachinery::condition::{self, Condition};
use apimachinery::disruption_budget::{self, ExpectedScale};
use serde_json::{Value, json};

use super::action::Plan;

/// Updates the status of one budget.
pub(crate) fn plan(
    budget: &Value,
    pods: &[Arc<Value>],
    expected_scale: impl Fn(&Value) -> Option<ExpectedScale>,
    now: &str,
) -> Plan {
    let mut plan = Plan::default();
    let mut desired_status = disruption_budget::compute_status(budget, pods, expected_scale);
    let allowed = desired_status["disruptionsAllowed"] != 0;
    desired_status["conditions"] = budget.pointer("/status/conditions").cloned().unwrap_or_else(|| json!([]));
    let reason = if allowed { "SufficientPods" } else { "InsufficientPods" };
    let condition = Condition { type_: "DisruptionAllowed", status: allowed, reason, message: "" };
    condition::set(&mut desired_status, condition, now);
    plan.update_status(disruption_budget::RESOURCE, budget, desired_status);
    plan
}
