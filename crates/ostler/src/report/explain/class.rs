//! Why an accelerator class is empty, or who holds what of it.

use std::collections::BTreeMap;

use decide::inventory::{self, Discovery, NodeFacts};
use decide::nearest::nearest;
use decide::supply::Class;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Explanation, text, text_of};
use crate::live::Live;
use crate::report::tree::{Branch, counted, grouped};

const LINES: usize = 12;

/// An AcceleratorClass, against every node.
pub(crate) fn explain(object: &Value, live: &Live, now: Timestamp) -> Explanation {
    let mut found = Explanation::of(object, now);
    let read = api::ome::AcceleratorClass::deserialize(object).map_err(|error| error.to_string());
    let class = match read.and_then(|class| Class::from_api(&class, None).map_err(|error| error.to_string())) {
        Ok(class) => class,
        Err(problem) => {
            found.subject = format!("{} cannot be read", found.subject);
            found.message = problem;
            return found;
        }
    };
    let facts = inventory::observe(&live.nodes, &live.pods);
    let availability = inventory::availability(&class, &facts);
    let resource = class.resource_name().unwrap_or("accelerator").to_owned();
    if availability.nodes.is_empty() {
        found.subject = format!("{} is empty", found.subject);
        found.message = format!("its discovery matches none of {}", counted(facts.len(), "node"));
        found.tree = wants(&class.discovery);
        found.tree.extend(grouped("node", misses(&class, &facts, live), LINES));
        found.remedies = labels_to_use(&class, &facts, live);
    } else {
        let (free, total) = (availability.free(), availability.total());
        found.subject = format!("{} has {}", found.subject, counted(availability.nodes.len(), "node"));
        found.message = format!("{free} of {total} × {resource} free");
        let node = |node: &inventory::ClassNode| {
            let state = if node.schedulable { "" } else { ", cordoned or not ready" };
            (node.name.clone(), format!("{} of {} free{state}", node.free, node.total))
        };
        found.tree = grouped("node", availability.nodes.iter().map(node), LINES);
    }
    found.tree.extend(users(live, &found.name));
    found
}

/// What the class looks for.
fn wants(discovery: &Discovery) -> Vec<Branch> {
    let selector = discovery.node_selector.iter().map(|(key, value)| format!("{key}={value}"));
    let terms = discovery.terms.iter().map(|term| {
        let expressions = term["matchExpressions"].as_array().into_iter().flatten().map(expression);
        expressions.collect::<Vec<_>>().join(" and ")
    });
    let selector: Vec<String> = selector.collect();
    let mut ways: Vec<String> =
        (!selector.is_empty()).then(|| selector.join(" and ")).into_iter().chain(terms).collect();
    if let Some(vendor) = &discovery.pci_vendor {
        ways.push(format!("PCI device {vendor}:{}", discovery.device_ids.join("|")));
    }
    match ways.is_empty() {
        true => vec![Branch::leaf("spec.discovery says nothing, and so matches no node")],
        false => vec![Branch::leaf(format!("looks for nodes with {}", ways.join(", or ")))],
    }
}

fn expression(expression: &Value) -> String {
    let values: Vec<String> = expression["values"].as_array().into_iter().flatten().map(spoken).collect();
    let (key, operator) = (text(expression, "/key"), text(expression, "/operator"));
    match (operator, values.as_slice()) {
        ("In", [only]) => format!("{key}={only}"),
        ("Exists" | "DoesNotExist", _) => format!("{key} {operator}"),
        _ => format!("{key} {operator} {}", values.join("|")),
    }
}

fn spoken(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Every node with accelerators, and why it is not of the class; the others are counted.
fn misses(class: &Class, facts: &[NodeFacts], live: &Live) -> Vec<(String, String)> {
    let miss = |node: &NodeFacts| {
        let why = match accelerators(node) {
            None => "has no accelerators".to_owned(),
            Some((name, count)) => {
                let owner = class_of(live, &node.name).map(|class| format!(", is of {class}")).unwrap_or_default();
                format!("{count} × {name}{owner}: {}", first_miss(&class.discovery, &node.labels))
            }
        };
        (node.name.clone(), why)
    };
    facts.iter().map(miss).collect()
}

fn accelerators(node: &NodeFacts) -> Option<(&String, &u32)> {
    node.allocatable.iter().find(|(name, count)| name.contains('/') && **count > 0)
}

fn class_of(live: &Live, node: &str) -> Option<String> {
    let classes = live.offered.iter().filter(|object| object["kind"] == "AcceleratorClass");
    let lists = |class: &&Value| class["status"]["nodes"].as_array().is_some_and(|nodes| nodes.contains(&json!(node)));
    classes.filter(lists).map(|class| text(class, "/metadata/name").to_owned()).next()
}

/// The first label that differs from what the selector, or else the first term, asks for.
fn first_miss(discovery: &Discovery, labels: &BTreeMap<String, String>) -> String {
    let told = |key: &str| match labels.get(key) {
        Some(label) => format!("{key} is {label}"),
        None => format!("has no label {key}"),
    };
    let of_selector = discovery
        .node_selector
        .iter()
        .find(|(key, value)| !inventory::has_all(labels, &BTreeMap::from([((*key).clone(), (*value).clone())])));
    if let Some((key, _)) = of_selector {
        return told(key);
    }
    let expressions = discovery.terms.iter().flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten());
    let failing =
        expressions.into_iter().find(|one| !inventory::term_matches(&json!({"matchExpressions": [one]}), labels));
    failing.map_or_else(|| "is another device".to_owned(), |one| told(text(one, "/key")))
}

/// Products on nodes that no class claims: a class that selects them would have those nodes.
fn labels_to_use(class: &Class, facts: &[NodeFacts], live: &Live) -> Vec<String> {
    let mut ways = Vec::new();
    for node in facts.iter().filter(|node| accelerators(node).is_some() && class_of(live, &node.name).is_none()) {
        let product = node.labels.iter().find(|(key, _)| key.ends_with(".product") || key.ends_with("/product"));
        let Some((key, value)) = product else { continue };
        let mut changed = class.clone();
        changed.discovery =
            Discovery { node_selector: BTreeMap::from([(key.clone(), value.clone())]), ..Discovery::default() };
        let found = inventory::availability(&changed, facts);
        let what = format!(
            "{} with {} that no class has yet",
            counted(found.nodes.len(), "node"),
            counted(found.total() as usize, "accelerator")
        );
        let way = match nearest(value, values(&class.discovery)) {
            Some(slip) => format!("write {value} instead of {slip} in spec.discovery: it finds {what}"),
            None => format!("a class with discovery.nodeSelector {{{key}: {value}}} would find {what}"),
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

/// Every label value that the class looks for.
fn values(discovery: &Discovery) -> impl Iterator<Item = &str> {
    let expressions = discovery.terms.iter().flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten());
    let of_terms = expressions.flat_map(|one| one["values"].as_array().into_iter().flatten()).filter_map(Value::as_str);
    discovery.node_selector.values().map(String::as_str).chain(of_terms)
}

/// Services that were put on the class.
fn users(live: &Live, class: &str) -> Option<Branch> {
    let on_it = |service: &&Value| {
        let components = service["status"]["decision"]["components"].as_object().into_iter().flatten();
        components.into_iter().any(|(_, component)| component["acceleratorClass"] == class)
    };
    let row = |service: &Value| {
        let ready = cluster::conditions::find(&service["status"]["conditions"], "Ready");
        let state = match ready.map(|ready| ready["status"] == "True") {
            Some(true) => "ready".to_owned(),
            _ => ready.map_or_else(|| "waits".to_owned(), |ready| format!("waits: {}", text_of(&ready["reason"]))),
        };
        (format!("{}/{}", text(service, "/metadata/namespace"), text(service, "/metadata/name")), state)
    };
    let users = grouped("", live.services.iter().filter(on_it).map(row), LINES);
    (!users.is_empty()).then(|| Branch::new("services on it", users))
}
