//! Built-in PriorityClasses and limits of user-defined ones.

use serde_json::{Value, json};

/// Default of `preemptionPolicy`.
pub(super) const PREEMPT_LOWER_PRIORITY: &str = "PreemptLowerPriority";

/// Maximum value of a user-defined PriorityClass. Higher values are reserved for system classes.
pub(super) const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

/// Returns the built-in PriorityClasses.
pub(crate) fn system_classes() -> [Value; 2] {
    let class = |name: &str, value: i64, description: &str| json!({"metadata": {"name": name}, "value": value, "description": description, "preemptionPolicy": PREEMPT_LOWER_PRIORITY});
    let description_prefix = "Used for system critical pods that must";
    [
        class(
            "system-cluster-critical",
            2 * HIGHEST_USER_PRIORITY,
            &format!("{description_prefix} run in the cluster, but can be moved to another node if necessary."),
        ),
        class(
            "system-node-critical",
            2 * HIGHEST_USER_PRIORITY + 1000,
            &format!("{description_prefix} not be moved from their current node."),
        ),
    ]
}
