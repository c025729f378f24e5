//! Explains why an accelerator class has no nodes, or which services use it.

use std::collections::BTreeMap;

use decide::{Class, Discovery, NodeInfo, nearest_name};
use jiff::Timestamp;
use operator::kinds;
use plan::recorded_components;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::conditions::unmet_conditions;
use super::explanation::Explanation;
use super::fields::{namespaced_name, text, text_of};
use crate::cluster_objects::ClusterObjects;
use crate::report::names::format_count;
use crate::report::tree::{Reason, TreeNode, group_by_reason};

/// Maximum number of lines of a list.
const MAX_LINES: usize = 12;

/// Explains an AcceleratorClass by comparing it with all nodes.
pub(crate) fn explain(object: &Value, objects: &ClusterObjects, now: Timestamp) -> Explanation {
    let mut explanation = Explanation::new(object, now);
    let parsed = api::ome::AcceleratorClass::deserialize(object).map_err(|error| error.to_string());
    let class = match parsed.and_then(|class| Class::from_api(&class, None).map_err(|error| error.to_string())) {
        Ok(class) => class,
        Err(error) => {
            explanation.subject = format!("{} is invalid", explanation.subject);
            explanation.message = error;
            return explanation;
        }
    };
    explanation.tree = unmet_conditions(&explanation, Vec::new());
    let resource = class.resource_name().unwrap_or("accelerator").to_owned();
    if !objects.is_readable(kinds::NODE) {
        explanation.message = reported_capacity(&object["status"], &resource);
        explanation.tree.extend(services_on(objects, &explanation.name));
        return explanation;
    }
    let node_infos = decide::node_infos(&objects.nodes, &objects.pods);
    let availability = decide::class_availability(&class, &node_infos);
    if availability.nodes.is_empty() {
        explanation.subject = format!("{} is empty", explanation.subject);
        explanation.message = format!("spec.discovery matches none of {}", format_count(node_infos.len(), "node"));
        explanation.tree.extend(discovery_branch(&class.discovery));
        explanation.tree.extend(group_by_reason("node", mismatches(&class, &node_infos, objects), MAX_LINES));
        explanation.remedies = discovery_remedies(&class, &node_infos, objects);
    } else {
        let (free, total) = (availability.available(), availability.total());
        explanation.subject = format!("{} has {}", explanation.subject, format_count(availability.nodes.len(), "node"));
        explanation.message = format!("{free} of {total} × {resource} free");
        let row = |node: &decide::ClassNode| {
            let state = match (node.cordoned, node.not_ready) {
                (false, false) => "",
                (true, false) => ", cordoned",
                (false, true) => ", not ready",
                (true, true) => ", cordoned and not ready",
            };
            (node.name.clone(), Reason::message(format!("{} of {} free{state}", node.available(), node.total)))
        };
        explanation.tree.extend(group_by_reason("node", availability.nodes.iter().map(row), MAX_LINES));
    }
    explanation.tree.extend(services_on(objects, &explanation.name));
    explanation
}

/// Describes the capacity that the operator reported in the status of a class.
fn reported_capacity(status: &Value, resource: &str) -> String {
    let count = |field: &str| status[field].as_u64();
    match (count("availableNodes"), count("availableAccelerators"), count("totalAccelerators")) {
        (Some(nodes), Some(free), Some(total)) => {
            let nodes = format_count(usize::try_from(nodes).unwrap_or(usize::MAX), "available node");
            format!("the status reports {nodes} and {free} of {total} × {resource} free")
        }
        _ => "the status reports no capacity".to_owned(),
    }
}

/// Describes the nodes that the class matches.
fn discovery_branch(discovery: &Discovery) -> Vec<TreeNode> {
    let selector = discovery.node_selector.iter().map(|(key, value)| format!("{key}={value}"));
    let terms = discovery.terms.iter().map(|term| {
        let expressions = term["matchExpressions"].as_array().into_iter().flatten().map(format_expression);
        expressions.collect::<Vec<_>>().join(" and ")
    });
    let selector: Vec<String> = selector.collect();
    let mut alternatives: Vec<String> =
        (!selector.is_empty()).then(|| selector.join(" and ")).into_iter().chain(terms).collect();
    if let Some(vendor) = &discovery.pci_vendor {
        alternatives.push(format!("PCI device {vendor}:{}", discovery.device_ids.join("|")));
    }
    match alternatives.is_empty() {
        true => vec![TreeNode::leaf("spec.discovery is empty and matches no nodes")],
        false => vec![TreeNode::leaf(format!("matches nodes with {}", alternatives.join(", or ")))],
    }
}

fn format_expression(expression: &Value) -> String {
    let values: Vec<String> = expression["values"].as_array().into_iter().flatten().map(format_value).collect();
    let (key, operator) = (text(expression, "/key"), text(expression, "/operator"));
    match (operator, values.as_slice()) {
        ("In", [value]) => format!("{key}={value}"),
        ("Exists" | "DoesNotExist", _) => format!("{key} {operator}"),
        _ => format!("{key} {operator} {}", values.join("|")),
    }
}

fn format_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns for each node why the class does not match it.
fn mismatches(class: &Class, node_infos: &[NodeInfo], objects: &ClusterObjects) -> Vec<(String, Reason)> {
    let mismatch = |node: &NodeInfo| {
        let reason = match accelerators(node) {
            None => "has no accelerators".to_owned(),
            Some((name, count)) => {
                let other_class =
                    node_class(objects, &node.name).map(|class| format!(", in class {class}")).unwrap_or_default();
                format!("{count} × {name}{other_class}: {}", first_mismatch(&class.discovery, &node.labels))
            }
        };
        (node.name.clone(), Reason::message(reason))
    };
    node_infos.iter().map(mismatch).collect()
}

/// Returns an extended resource of the node, and its quantity.
fn accelerators(node: &NodeInfo) -> Option<(&String, &u32)> {
    node.allocatable.iter().find(|(name, count)| name.contains('/') && **count > 0)
}

/// Returns the class that lists the node in its status.
fn node_class(objects: &ClusterObjects, node: &str) -> Option<String> {
    let classes = objects.supply.iter().filter(|object| object["kind"] == "AcceleratorClass");
    let lists_node =
        |class: &&Value| class["status"]["nodes"].as_array().is_some_and(|nodes| nodes.contains(&json!(node)));
    classes.filter(lists_node).map(|class| text(class, "/metadata/name").to_owned()).next()
}

/// Describes the first label that does not match the selector, or else the terms.
fn first_mismatch(discovery: &Discovery, labels: &BTreeMap<String, String>) -> String {
    let describe_label = |key: &str| match labels.get(key) {
        Some(label) => format!("{key} is {label}"),
        None => format!("has no label {key}"),
    };
    let selector_mismatch = discovery.node_selector.iter().find(|(key, value)| {
        !decide::labels_match_selector(labels, &BTreeMap::from([((*key).clone(), (*value).clone())]))
    });
    if let Some((key, _)) = selector_mismatch {
        return describe_label(key);
    }
    let expressions = discovery.terms.iter().flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten());
    let term_mismatch = expressions
        .into_iter()
        .find(|expression| !decide::term_matches(&json!({"matchExpressions": [expression]}), labels));
    term_mismatch
        .map_or_else(|| "has a different PCI device".to_owned(), |expression| describe_label(text(expression, "/key")))
}

/// Returns changes of spec.discovery that match nodes with accelerators that belong to no class.
fn discovery_remedies(class: &Class, node_infos: &[NodeInfo], objects: &ClusterObjects) -> Vec<String> {
    let mut remedies = Vec::new();
    for node in
        node_infos.iter().filter(|node| accelerators(node).is_some() && node_class(objects, &node.name).is_none())
    {
        let product = node.labels.iter().find(|(key, _)| key.ends_with(".product") || key.ends_with("/product"));
        let Some((key, value)) = product else { continue };
        let mut changed_class = class.clone();
        changed_class.discovery =
            Discovery { node_selector: BTreeMap::from([(key.clone(), value.clone())]), ..Discovery::default() };
        let availability = decide::class_availability(&changed_class, node_infos);
        let match_summary = format!(
            "{} with {} that belong to no class",
            format_count(availability.nodes.len(), "node"),
            format_count(availability.total() as usize, "accelerator")
        );
        let remedy = match nearest_name(value, discovery_values(&class.discovery)) {
            Some(typo) => format!("replace {typo} with {value} in spec.discovery: this matches {match_summary}"),
            None => format!("a class with discovery.nodeSelector {{{key}: {value}}} would match {match_summary}"),
        };
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    remedies
}

/// Returns the label values of the discovery.
fn discovery_values(discovery: &Discovery) -> impl Iterator<Item = &str> {
    let expressions = discovery.terms.iter().flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten());
    let term_values = expressions
        .flat_map(|expression| expression["values"].as_array().into_iter().flatten())
        .filter_map(Value::as_str);
    discovery.node_selector.values().map(String::as_str).chain(term_values)
}

/// Returns the services that run on the class, each with its state.
fn services_on(objects: &ClusterObjects, class: &str) -> Option<TreeNode> {
    let uses_class = |service: &&Value| {
        recorded_components(&service["status"])
            .into_values()
            .any(|component| component.accelerator_class.as_deref() == Some(class))
    };
    let row = |service: &Value| {
        let ready = cluster::find_condition(&service["status"]["conditions"], "Ready");
        let reason = match ready {
            Some(ready) if ready["status"] == "True" => Reason::message("ready"),
            Some(ready) => Reason::new("not ready", text_of(&ready["reason"])),
            None => Reason::message("not ready"),
        };
        (namespaced_name(service), reason)
    };
    let services = group_by_reason("", objects.services.iter().filter(uses_class).map(row), MAX_LINES);
    TreeNode::branch("services that use it", services)
}
