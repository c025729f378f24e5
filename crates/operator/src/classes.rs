//! The status of accelerator classes: their nodes, and what is free of them. Written only when a number changes.

use cluster::conditions::render;
use cluster::object::{generation, meta};
use cluster::{Condition, Error};
use decide::inventory::{Availability, NodeFacts};
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::Operator;
use crate::kinds::{CLASS, NODE, POD};

impl Operator {
    /// Reads nodes and Pods once and tells every class what it has.
    pub(crate) async fn reconcile_classes(&self) -> Result<(), Error> {
        let values = |kind| self.stores.list(kind).iter().map(|object| (**object).clone()).collect::<Vec<Value>>();
        let facts = decide::inventory::observe(&values(NODE), &values(POD));
        for class in self.stores.list(CLASS) {
            let (conditions, status) = think(&class, &facts, self.clock.now());
            self.tell(CLASS, &class, &conditions, &status).await?;
        }
        Ok(())
    }
}

/// Conditions and status of one class; a class that cannot be read says so.
fn think(class: &Value, facts: &[NodeFacts], now: Timestamp) -> (Vec<Condition>, Value) {
    match read(class) {
        Ok(read) => available(class, &decide::inventory::availability(&read, facts), now),
        Err(problem) => {
            let conditions =
                vec![Condition::new("Ready", false, "InvalidSpec", format!("the class cannot be read: {problem}"))];
            let status =
                json!({"conditions": render(&class["status"]["conditions"], &conditions, generation(class), now)});
            (conditions, status)
        }
    }
}

fn read(class: &Value) -> Result<decide::Class, String> {
    let typed = api::ome::AcceleratorClass::deserialize(class).map_err(|error| error.to_string())?;
    decide::Class::from_api(&typed, None).map_err(|error| error.to_string())
}

fn available(class: &Value, availability: &Availability, now: Timestamp) -> (Vec<Condition>, Value) {
    let conditions = conditions(meta(class, "name"), availability);
    let old = &class["status"];
    let mut status = json!({
        "nodes": availability.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>(),
        "availableNodes": availability.available_nodes(),
        "totalAccelerators": availability.total(),
        "availableAccelerators": availability.free(),
        "conditions": render(&old["conditions"], &conditions, generation(class), now),
    });
    let mut before = old.clone();
    let time = before.as_object_mut().and_then(|before| before.remove("lastUpdated"));
    let same = ["nodes", "availableNodes", "totalAccelerators", "availableAccelerators", "conditions"]
        .iter()
        .all(|field| before[field] == status[field] || (before[field].is_null() && status[field] == json!([])));
    status["lastUpdated"] = time.filter(|_| same).unwrap_or_else(|| cluster::clock::seconds(now).into());
    (conditions, status)
}

fn conditions(name: &str, availability: &Availability) -> Vec<Condition> {
    let (nodes, usable) = (availability.nodes.len(), availability.available_nodes());
    let matched = match nodes {
        0 => {
            Condition::new("NodesMatched", false, "NoMatchingNodes", format!("no node matches the discovery of {name}"))
        }
        _ => Condition::new("NodesMatched", true, "NodesMatched", count(nodes, "matches", "match")),
    };
    let ready = match (nodes, usable) {
        (0, _) => Condition::new("Ready", false, "NoMatchingNodes", matched.message.clone()),
        (_, 0) => Condition::new("Ready", false, "NoAvailableNodes", "every node of the class is unready or cordoned"),
        _ => Condition::new("Ready", true, "Available", count(usable, "is available", "are available")),
    };
    vec![matched, ready]
}

fn count(nodes: usize, one: &str, many: &str) -> String {
    if nodes == 1 { format!("1 node {one}") } else { format!("{nodes} nodes {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use decide::inventory::ClassNode;

    fn availability(free: u32, schedulable: bool) -> Availability {
        Availability { nodes: vec![ClassNode { name: "a".to_owned(), labels: None, schedulable, total: 8, free }] }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    // spec: ACC-30
    #[test]
    fn last_updated_moves_only_with_the_numbers() {
        let mut class = json!({"metadata": {"name": "h100", "generation": 1}});
        class["status"] = available(&class, &availability(8, true), at(0)).1;
        assert_eq!(class["status"]["availableAccelerators"], 8);
        assert_eq!(available(&class, &availability(8, true), at(60)).1, class["status"]);
        assert_eq!(available(&class, &availability(7, true), at(60)).1["lastUpdated"], "1970-01-01T00:01:00Z");
    }

    #[test]
    fn why_a_class_is_not_ready() {
        let reasons = |availability: &Availability| {
            conditions("h100", availability).into_iter().map(|one| one.reason).collect::<Vec<_>>()
        };
        assert_eq!(reasons(&Availability::default()), ["NoMatchingNodes", "NoMatchingNodes"]);
        assert_eq!(reasons(&availability(0, false)), ["NodesMatched", "NoAvailableNodes"]);
        assert_eq!(reasons(&availability(0, true)), ["NodesMatched", "Available"]);
    }
}
