//! The status of an accelerator class: its nodes, and what is free of them. Written only when a number changes.

use cluster::conditions::render;
use cluster::object::generation;
use cluster::{Condition, Error, Key, Tone};
use decide::inventory::Numbers;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::accounting::read;
use crate::code;
use crate::kinds::{CLASS, NODE, POD};
use crate::reason::Reason;
use crate::{Operator, flavors};

/// Names in `status.nodes`; the numbers count all. A status of 5,000 names would be sent with every Pod that moves.
const MOST_NAMES: usize = 500;

impl Operator {
    /// Tells one class what it has. Numbers from incomplete lists would be wrong, and are not told.
    pub(crate) async fn reconcile_class(&self, name: &str) -> Result<(), Error> {
        if !self.accounts.complete(&[CLASS, NODE, POD]) {
            return Ok(());
        }
        let counted = self.counted(name);
        let Some(class) = self.stores.get(CLASS, &Key::new("", name)) else {
            self.metrics.forget_class(name);
            return Ok(());
        };
        let now = self.clock.now();
        let (conditions, status) = match read(&class) {
            Ok(_) => {
                self.metrics.count_class(name, counted.numbers);
                let mut conditions = first_told(&class["status"], conditions(name, counted.numbers));
                conditions.extend(flavors::condition(&self.stores, &class));
                available(&class, counted, conditions, now)
            }
            Err(problem) => unreadable(&class, &problem, now),
        };
        self.tell(CLASS, &class, &conditions, &status).await
    }

    /// Copied: whoever holds the inventory while a request is under way has it copied with the next Pod that moves.
    fn counted(&self, name: &str) -> Counted {
        let index = self.accounts.index();
        let nodes = index.node_names(name, MOST_NAMES).map(str::to_owned).collect();
        Counted { nodes, numbers: index.numbers_of(name) }
    }
}

struct Counted {
    nodes: Vec<String>,
    numbers: Numbers,
}

fn unreadable(class: &Value, problem: &str, now: Timestamp) -> (Vec<Condition>, Value) {
    let message = format!("the class cannot be read: {problem}");
    let conditions = vec![Reason::InvalidSpec.condition("Ready", false, message)];
    let status = json!({"conditions": render(&class["status"]["conditions"], &conditions, generation(class), now)});
    (conditions, status)
}

fn available(class: &Value, counted: Counted, conditions: Vec<Condition>, now: Timestamp) -> (Vec<Condition>, Value) {
    let old = &class["status"];
    let numbers = counted.numbers;
    let mut status = json!({
        "nodes": counted.nodes,
        "availableNodes": small(numbers.available_nodes as u64),
        "totalAccelerators": small(numbers.total),
        "availableAccelerators": small(numbers.free),
        "conditions": render(&old["conditions"], &conditions, generation(class), now),
    });
    let same = ["nodes", "availableNodes", "totalAccelerators", "availableAccelerators", "conditions"]
        .iter()
        .all(|field| old[field] == status[field] || (old[field].is_null() && status[field] == json!([])));
    let time = old["lastUpdated"].as_str().filter(|_| same).map(str::to_owned);
    status["lastUpdated"] = time.unwrap_or_else(|| cluster::clock::seconds(now)).into();
    (conditions, status)
}

/// The fields are `int32`.
fn small(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn conditions(name: &str, numbers: Numbers) -> Vec<Condition> {
    let matched = match numbers.nodes {
        0 => Condition::new(
            "NodesMatched",
            false,
            decide::code::class::NO_MATCHING_NODES,
            format!("no node matches the discovery of {name}"),
        ),
        nodes => {
            Condition::new("NodesMatched", true, code::NODES_MATCHED, count(nodes, "matches", "match") + &listed(nodes))
        }
    };
    let ready = match (numbers.nodes, numbers.available_nodes) {
        (0, _) => Condition::new("Ready", false, decide::code::class::NO_MATCHING_NODES, matched.message.clone()),
        (_, 0) => {
            Condition::new("Ready", false, code::NO_AVAILABLE_NODES, "every node of the class is unready or cordoned")
        }
        (_, usable) => Condition::new("Ready", true, code::AVAILABLE, count(usable, "is available", "are available")),
    };
    vec![matched, ready]
}

/// A class that never had a node is no problem, most of the shipped ones have none: its condition says so, no event does.
fn first_told(old: &Value, conditions: Vec<Condition>) -> Vec<Condition> {
    let is_new = old["conditions"].as_array().is_none_or(Vec::is_empty);
    let quiet = |one: Condition| {
        if is_new && one.reason == decide::code::class::NO_MATCHING_NODES.as_str() {
            one.told_as(Tone::Consequence)
        } else {
            one
        }
    };
    conditions.into_iter().map(quiet).collect()
}

fn listed(nodes: usize) -> String {
    if nodes > MOST_NAMES { format!("; status.nodes lists the first {MOST_NAMES}") } else { String::new() }
}

fn count(nodes: usize, one: &str, many: &str) -> String {
    if nodes == 1 { format!("1 node {one}") } else { format!("{nodes} nodes {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(nodes: usize, available_nodes: usize, free: u64) -> Numbers {
        Numbers { nodes, available_nodes, total: 8 * nodes as u64, free }
    }

    fn status(class: &Value, numbers: Numbers, second: i64) -> Value {
        let now = Timestamp::from_second(second).unwrap();
        available(class, Counted { nodes: vec!["a".to_owned()], numbers }, conditions("h100", numbers), now).1
    }

    // spec: ACC-30
    #[test]
    fn last_updated_moves_only_with_the_numbers() {
        let mut class = json!({"metadata": {"name": "h100", "generation": 1}});
        class["status"] = status(&class, numbers(1, 1, 8), 0);
        assert_eq!(class["status"]["availableAccelerators"], 8);
        assert_eq!(status(&class, numbers(1, 1, 8), 60), class["status"]);
        assert_eq!(status(&class, numbers(1, 1, 7), 60)["lastUpdated"], "1970-01-01T00:01:00Z");
    }

    #[test]
    fn why_a_class_is_not_ready() {
        let reasons = |numbers| conditions("h100", numbers).into_iter().map(|one| one.reason).collect::<Vec<_>>();
        assert_eq!(reasons(Numbers::default()), ["NoMatchingNodes", "NoMatchingNodes"]);
        assert_eq!(reasons(numbers(1, 0, 0)), ["NodesMatched", "NoAvailableNodes"]);
        assert_eq!(reasons(numbers(1, 1, 0)), ["NodesMatched", "Available"]);
    }

    #[test]
    fn a_class_that_lost_its_nodes_is_told_and_one_that_never_had_any_is_not() {
        let told = |old: &Value| {
            let conditions = first_told(old, conditions("h100", Numbers::default()));
            cluster::conditions::transitions(&old["conditions"], &conditions).len()
        };
        assert_eq!(told(&Value::Null), 0);
        let class = json!({"metadata": {"name": "h100", "generation": 1}});
        assert_eq!(told(&status(&class, numbers(1, 1, 8), 0)), 1);
        assert_eq!(told(&status(&class, Numbers::default(), 0)), 0);
    }

    #[test]
    fn a_large_class_says_how_many_nodes_it_names() {
        let matched = &conditions("h100", numbers(5000, 5000, 40_000))[0];
        assert_eq!(matched.message, "5000 nodes match; status.nodes lists the first 500");
    }
}
