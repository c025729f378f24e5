//! PodDisruptionBudgets, as preemption considers them.

use std::sync::Arc;

use apimachinery::disruption_budget::covers;
use apimachinery::object;
use serde_json::Value;

/// The number of disruptions that each PodDisruptionBudget still allows.
pub(super) struct DisruptionAllowance<'a> {
    budgets: Vec<(&'a Value, i64)>,
}

impl<'a> DisruptionAllowance<'a> {
    /// Reads the budgets. As in kube-scheduler, a budget whose selector is absent or empty protects no Pod from
    /// preemption.
    pub(super) fn new(budgets: &'a [Arc<Value>]) -> Self {
        let has_selector = |budget: &&Arc<Value>| {
            let selector = budget.pointer("/spec/selector").and_then(Value::as_object);
            selector.is_some_and(|selector| !selector.is_empty())
        };
        let allowed =
            |budget: &Value| budget.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0);
        Self { budgets: budgets.iter().filter(has_selector).map(|budget| (budget.as_ref(), allowed(budget))).collect() }
    }

    /// Subtracts one disruption per Pod from every budget that covers the Pod. Returns whether a budget is violated
    /// (`filterPodsWithPDBViolation`).
    pub(super) fn subtract_disruptions(&mut self, pods: &[Arc<Value>]) -> bool {
        let mut violated = false;
        for pod in pods.iter().filter(|pod| !object::is_deleting(pod)) {
            for (budget, allowed) in self.budgets.iter_mut().filter(|(budget, _)| covers(budget, pod)) {
                // The eviction API has already subtracted this Pod from `disruptionsAllowed`.
                if budget.pointer("/status/disruptedPods").is_some_and(|pods| pods.get(object::name(pod)).is_some()) {
                    continue;
                }
                *allowed = allowed.saturating_sub(1);
                violated |= *allowed < 0;
            }
        }
        violated
    }
}
