//! Status of an accelerator class: its nodes and their free capacity. It is written only if a value changes.

use cluster::{Condition, Error, EventPolicy, NamespacedName, generation, render_conditions};
use decide::ClassTotals;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition_reason::ConditionReason;
use crate::context::Context;
use crate::inventory::parse_class;
use crate::kinds::{ACCELERATOR_CLASS, NODE, POD};
use crate::managed_class::managed_condition;
use crate::resource_flavors;
use crate::status_report::StatusReport;

/// Maximum number of names in `status.nodes`; the counts include all nodes. The status is written whenever a Pod is
/// scheduled, so it must not contain thousands of names.
const MAX_NODE_NAMES: usize = 500;

/// Nodes of a class and their totals.
struct ClassUsage {
    nodes: Vec<String>,
    totals: ClassTotals,
}

// === impl ClassUsage ===

impl ClassUsage {
    /// Copies the usage of a class: if a request held the shared inventory, every concurrent change would copy the
    /// whole inventory.
    fn read(context: &Context, name: &str) -> ClassUsage {
        let inventory = context.state.inventory.current();
        let nodes = inventory.node_names(name, MAX_NODE_NAMES).map(str::to_owned).collect();
        ClassUsage { nodes, totals: inventory.totals_of(name) }
    }
}

/// Updates the status of one class. Does nothing until all lists are complete, because the counts would be wrong.
pub(crate) async fn reconcile_class(context: &Context, name: &str) -> Result<(), Error> {
    if !context.state.inventory.has_synced(&[ACCELERATOR_CLASS, NODE, POD]) {
        return Ok(());
    }
    let usage = ClassUsage::read(context, name);
    let Some(class) = context.stores.get(ACCELERATOR_CLASS, &NamespacedName::new("", name)) else {
        context.cluster_gauges.remove_class(name);
        return Ok(());
    };
    let now = context.now();
    let report = match parse_class(&class) {
        Ok(_) => {
            context.cluster_gauges.set_class(name, usage.totals);
            let mut conditions = suppress_initial_events(&class["status"], conditions(name, usage.totals));
            conditions.extend(resource_flavors::flavor_condition(&context.stores, &class));
            conditions.extend(managed_condition(&class));
            report(&class, usage, conditions, now)
        }
        Err(error) => invalid_class_report(&class, &error, now),
    };
    context.publish_report(ACCELERATOR_CLASS, &class, &report).await
}

fn invalid_class_report(class: &Value, error: &str, now: Timestamp) -> StatusReport {
    let message = format!("The AcceleratorClass is invalid: {error}");
    let conditions = vec![ConditionReason::InvalidSpec.condition("Ready", false, message)];
    let rendered_conditions = render_conditions(&class["status"]["conditions"], &conditions, generation(class), now);
    StatusReport { conditions, status: json!({"conditions": rendered_conditions}), events: Vec::new() }
}

fn report(class: &Value, usage: ClassUsage, conditions: Vec<Condition>, now: Timestamp) -> StatusReport {
    let old_status = &class["status"];
    let totals = usage.totals;
    let mut status = json!({
        "nodes": usage.nodes,
        "availableNodes": to_int32(totals.available_nodes as u64),
        "totalAccelerators": to_int32(totals.total),
        "availableAccelerators": to_int32(totals.free),
        "conditions": render_conditions(&old_status["conditions"], &conditions, generation(class), now),
    });
    let is_unchanged = ["nodes", "availableNodes", "totalAccelerators", "availableAccelerators", "conditions"]
        .iter()
        .all(|field| old_status[field] == status[field] || (old_status[field].is_null() && status[field] == json!([])));
    let last_updated = old_status["lastUpdated"].as_str().filter(|_| is_unchanged).map(str::to_owned);
    status["lastUpdated"] = last_updated.unwrap_or_else(|| cluster::rfc3339_seconds(now)).into();
    StatusReport { conditions, status, events: Vec::new() }
}

/// Converts a count to the `int32` of the API, saturating.
fn to_int32(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn conditions(name: &str, totals: ClassTotals) -> Vec<Condition> {
    let nodes_matched = match totals.nodes {
        0 => Condition::new(
            "NodesMatched",
            false,
            decide::code::class::NO_MATCHING_NODES,
            format!("No node matches the discovery rules of AcceleratorClass {name}"),
        ),
        nodes => {
            let message = node_count(nodes, "matches", "match") + &truncation_note(nodes);
            ConditionReason::NodesMatched.condition("NodesMatched", true, message)
        }
    };
    let ready = match (totals.nodes, totals.available_nodes) {
        (0, _) => Condition::new("Ready", false, decide::code::class::NO_MATCHING_NODES, nodes_matched.message.clone()),
        (_, 0) => {
            let message = "No node of the class is ready and schedulable";
            ConditionReason::NoAvailableNodes.condition("Ready", false, message)
        }
        (_, available) => {
            let message = node_count(available, "is available", "are available");
            ConditionReason::Available.condition("Ready", true, message)
        }
    };
    vec![nodes_matched, ready]
}

/// Suppresses the events of a new class without nodes: most of the shipped classes have none.
fn suppress_initial_events(old_status: &Value, conditions: Vec<Condition>) -> Vec<Condition> {
    let is_new = old_status["conditions"].as_array().is_none_or(Vec::is_empty);
    let suppress = |condition: Condition| {
        if is_new && condition.reason == decide::code::class::NO_MATCHING_NODES.as_str() {
            condition.with_event_policy(EventPolicy::Suppressed)
        } else {
            condition
        }
    };
    conditions.into_iter().map(suppress).collect()
}

fn truncation_note(nodes: usize) -> String {
    if nodes > MAX_NODE_NAMES { format!("; status.nodes lists the first {MAX_NODE_NAMES}") } else { String::new() }
}

fn node_count(nodes: usize, singular_verb: &str, plural_verb: &str) -> String {
    if nodes == 1 { format!("1 node {singular_verb}") } else { format!("{nodes} nodes {plural_verb}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(nodes: usize, available_nodes: usize, free: u64) -> ClassTotals {
        ClassTotals { nodes, available_nodes, total: 8 * nodes as u64, free }
    }

    fn status(class: &Value, totals: ClassTotals, second: i64) -> Value {
        let now = Timestamp::from_second(second).unwrap();
        report(class, ClassUsage { nodes: vec!["a".to_owned()], totals }, conditions("h100", totals), now).status
    }

    // spec: ACC-30
    #[test]
    fn last_updated_changes_only_with_the_counts() {
        let mut class = json!({"metadata": {"name": "h100", "generation": 1}});
        class["status"] = status(&class, totals(1, 1, 8), 0);
        assert_eq!(class["status"]["availableAccelerators"], 8);
        assert_eq!(status(&class, totals(1, 1, 8), 60), class["status"]);
        assert_eq!(status(&class, totals(1, 1, 7), 60)["lastUpdated"], "1970-01-01T00:01:00Z");
    }

    #[test]
    fn reports_why_a_class_is_not_ready() {
        let reasons =
            |totals| conditions("h100", totals).into_iter().map(|condition| condition.reason).collect::<Vec<_>>();
        assert_eq!(reasons(ClassTotals::default()), ["NoMatchingNodes", "NoMatchingNodes"]);
        assert_eq!(reasons(totals(1, 0, 0)), ["NodesMatched", "NoAvailableNodes"]);
        assert_eq!(reasons(totals(1, 1, 0)), ["NodesMatched", "Available"]);
    }

    #[test]
    fn emits_an_event_for_a_class_that_lost_its_nodes_but_not_for_a_new_class() {
        let events = |old_status: &Value| {
            let conditions = suppress_initial_events(old_status, conditions("h100", ClassTotals::default()));
            cluster::condition_transitions(&old_status["conditions"], &conditions).len()
        };
        assert_eq!(events(&Value::Null), 0);
        let class = json!({"metadata": {"name": "h100", "generation": 1}});
        assert_eq!(events(&status(&class, totals(1, 1, 8), 0)), 1);
        assert_eq!(events(&status(&class, ClassTotals::default(), 0)), 0);
    }

    #[test]
    fn message_of_a_large_class_mentions_the_truncated_node_list() {
        let nodes_matched = &conditions("h100", totals(5000, 5000, 40_000))[0];
        assert_eq!(nodes_matched.message, "5000 nodes match; status.nodes lists the first 500");
    }
}
