//! PodDisruptionBudgets, as preemption weighs them.

use std::sync::Arc;

use serde_json::Value;

use crate::object;
use crate::workloads::disruption::covers;

/// How many Pods every budget still lets go.
pub(super) struct Allowance<'a> {
    budgets: Vec<(&'a Value, i64)>,
}

impl<'a> Allowance<'a> {
    /// Budgets without a selector, or with an empty one, protect nobody here: so does kube-scheduler read them.
    pub(super) fn of(budgets: &'a [Arc<Value>]) -> Self {
        let selects = |budget: &&Arc<Value>| {
            let selector = budget.pointer("/spec/selector").and_then(Value::as_object);
            selector.is_some_and(|selector| !selector.is_empty())
        };
        let allowed =
            |budget: &Value| budget.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0);
        Self { budgets: budgets.iter().filter(selects).map(|budget| (budget.as_ref(), allowed(budget))).collect() }
    }

    /// Takes the Pods from every budget that is about them; whether one did not allow it.
    pub(super) fn is_exceeded_by(&mut self, pods: &[Arc<Value>]) -> bool {
        let mut exceeded = false;
        for pod in pods.iter().filter(|pod| !object::is_deleting(pod)) {
            for (budget, allowed) in self.budgets.iter_mut().filter(|(budget, _)| covers(budget, pod)) {
                // Its eviction was counted when it was asked for.
                if budget.pointer("/status/disruptedPods").is_some_and(|pods| pods.get(object::name(pod)).is_some()) {
                    continue;
                }
                *allowed -= 1;
                exceeded |= *allowed < 0;
            }
        }
        exceeded
    }
}
