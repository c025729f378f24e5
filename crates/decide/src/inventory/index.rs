//! Accelerators of every class, maintained incrementally from changes of nodes, Pods and classes.
//!
//! The cost of a change is proportional to what it affects: a heartbeat is free, a Pod updates the classes of its node,
//! changed node labels are matched once per class, and a class is matched with its nodes. Nodes, Pods and classes may
//! arrive in any order. A property test compares the index with a full recount after random changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::node_info;
use super::pod_usage::{PodUsageIndex, ServiceUsage};
use super::{Availability, ClassNode, NodeInfo, class_node, is_member};
use crate::supply::{Class, NodeResources};

/// Nodes, the resources that their Pods use, and the classes that the nodes belong to.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    nodes: BTreeMap<String, Node>,
    pods: PodUsageIndex,
    classes: BTreeMap<String, ClassMembers>,
    /// Classes whose totals may have changed.
    changed: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    info: NodeInfo,
    classes: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct ClassMembers {
    class: Class,
    nodes: BTreeMap<String, ClassNode>,
    totals: ClassTotals,
}

/// Totals of the nodes of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTotals {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of nodes that are ready and not cordoned.
    pub available_nodes: usize,
    /// Allocatable accelerators.
    pub total: u64,
    /// Free accelerators.
    pub free: u64,
}

// === impl Inventory ===

impl Inventory {
    /// Adds, updates or (with `None`) removes a node. Returns whether information that decisions use changed.
    pub fn set_node(&mut self, name: &str, node: Option<&Value>) -> bool {
        let Some(node) = node else { return self.remove_node(name) };
        let mut info = node_info::node_info(node);
        info.requested = self.pods.requested(name);
        let known = self.nodes.get(name);
        if known.is_some_and(|known| known.info == info) {
            return false;
        }
        let matches_same_classes = known
            .is_some_and(|known| (&known.info.labels, &known.info.allocatable) == (&info.labels, &info.allocatable));
        self.nodes.entry(name.to_owned()).or_default().info = info;
        if matches_same_classes {
            self.recount(name);
        } else {
            self.rematch(name);
        }
        true
    }

    /// Adds, updates or (with `None`) removes a Pod. Terminal and unbound Pods use no resources.
    pub fn set_pod(&mut self, namespace: &str, name: &str, pod: Option<&Value>) {
        for node in self.pods.set(namespace, name, pod) {
            let requested = self.pods.requested(&node);
            if let Some(known) = self.nodes.get_mut(&node) {
                known.info.requested = requested;
                self.recount(&node);
            }
        }
    }

    /// Adds, updates or (with `None`) removes a class. Updates its previous and current nodes and, if it names their
    /// product, the discovered classes of the same resource.
    pub fn set_class(&mut self, name: &str, class: Option<Class>) {
        let previous = self.classes.get(name).map(|members| members.class.clone());
        let explicit: Vec<Class> =
            previous.into_iter().chain(class.clone()).filter(|class| !class.is_discovered).collect();
        let this_class = BTreeSet::from([name.to_owned()]);
        let class_and_alternatives = &self.discovered_alternatives(&explicit) | &this_class;
        let mut affected = self.remove_class(name);
        if let Some(class) = class {
            affected.extend(self.add_class(name, class));
        }
        self.changed.insert(name.to_owned());
        for node in &affected {
            let Some(labels) = self.nodes.get(node).map(|node| Arc::clone(&node.info.labels)) else { continue };
            let names_product = explicit.iter().any(|class| super::products::names_product(class, &labels));
            self.rematch_classes(node, if names_product { &class_and_alternatives } else { &this_class });
        }
    }

    /// Returns the names of the classes whose totals may have changed since the last call, including removed classes.
    pub fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// Whether any node is known.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Whether the index contains this version of the class.
    #[must_use]
    pub fn is_current(&self, class: &Class) -> bool {
        self.classes.get(&class.name).is_some_and(|members| {
            let known = &members.class;
            known.discovery == class.discovery
                && known.resources == class.resources
                && known.is_discovered == class.is_discovered
                && known.is_created_from_flavor == class.is_created_from_flavor
        })
    }

    /// Returns all nodes, ordered by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values().map(|node| &node.info)
    }

    /// Returns the classes of a node, ordered by name.
    pub(crate) fn classes_for_node(&self, node: &str) -> impl Iterator<Item = &Class> {
        let names = self.nodes.get(node).into_iter().flat_map(|node| &node.classes);
        names.filter_map(|name| self.classes.get(name)).map(|members| &members.class)
    }

    /// Returns the totals of all classes, ordered by name.
    pub fn class_totals(&self) -> impl Iterator<Item = (&str, ClassTotals)> {
        self.classes.iter().map(|(name, members)| (name.as_str(), members.totals))
    }

    /// Returns the totals of a class; zero for an unknown class.
    #[must_use]
    pub fn totals_of(&self, class: &str) -> ClassTotals {
        self.classes.get(class).map(|members| members.totals).unwrap_or_default()
    }

    /// Returns the names of at most `limit` nodes of a class.
    pub fn node_names(&self, class: &str, limit: usize) -> impl Iterator<Item = &str> {
        self.classes.get(class).into_iter().flat_map(|members| members.nodes.keys()).take(limit).map(String::as_str)
    }

    /// Returns the resources that the Pods of a service use.
    #[must_use]
    pub fn service_usage(&self, namespace: &str, service: &str) -> ServiceUsage {
        self.pods.service_usage(namespace, service)
    }

    /// Returns the labels of the Pods of a service that use extended resources on a node.
    pub fn pod_labels<'a>(
        &'a self,
        namespace: &'a str,
        service: &'a str,
    ) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
        self.pods.pod_labels(namespace, service)
    }

    /// Returns all nodes without the requests in `usage`, ordered by name.
    #[must_use]
    pub fn nodes_excluding(&self, usage: &ServiceUsage) -> Vec<NodeInfo> {
        self.nodes().map(|node| usage.exclude_from(node)).collect()
    }

    /// Returns the availability of `class` on `nodes`, which are nodes of this inventory with other requests.
    #[must_use]
    pub fn availability_on(&self, class: &Class, nodes: &[NodeInfo]) -> Availability {
        let Some(members) = self.classes.get(&class.name).filter(|_| self.is_current(class)) else {
            return super::class_availability(class, nodes);
        };
        let member_nodes = nodes.iter().filter(|node| members.nodes.contains_key(&node.name));
        Availability { nodes: member_nodes.map(|node| class_node(class, node)).collect() }
    }

    /// Returns the availability of `class` without the requests in `usage`. An unknown class is matched with every node.
    #[must_use]
    pub fn availability(&self, class: &Class, usage: &ServiceUsage) -> Availability {
        let Some(members) = self.classes.get(&class.name).filter(|_| self.is_current(class)) else {
            let members = self.nodes().filter(|node| is_member(class, node));
            return Availability { nodes: members.map(|node| class_node(class, &usage.exclude_from(node))).collect() };
        };
        let node_without_usage =
            |(name, known): (&String, &ClassNode)| match self.nodes.get(name).filter(|_| usage.uses_node(name)) {
                Some(node) => class_node(class, &usage.exclude_from(&node.info)),
                None => known.clone(),
            };
        Availability { nodes: members.nodes.iter().map(node_without_usage).collect() }
    }

    fn remove_node(&mut self, name: &str) -> bool {
        let Some(removed) = self.nodes.remove(name) else { return false };
        for class in removed.classes {
            self.set_member(&class, name, None);
        }
        true
    }

    /// Updates a node in all its classes.
    fn recount(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        for class in node.classes.clone() {
            self.recount_in_class(name, &class);
        }
    }

    fn recount_in_class(&mut self, name: &str, class: &str) {
        let (Some(node), Some(members)) = (self.nodes.get(name), self.classes.get(class)) else { return };
        let member = class_node(&members.class, &node.info);
        self.set_member(class, name, Some(member));
    }

    /// Matches a node with all classes.
    fn rematch(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let labels = Arc::clone(&node.info.labels);
        let matching = self.classes.iter().filter(|(_, members)| is_member(&members.class, &node.info));
        let matching: BTreeSet<String> = matching.map(|(class, _)| class.clone()).collect();
        let remaining = self.exclude_replaced_classes(matching, &labels);
        let Some(node) = self.nodes.get_mut(name) else { return };
        let previous = std::mem::replace(&mut node.classes, remaining.clone());
        for class in previous.difference(&remaining) {
            self.set_member(class, name, None);
        }
        self.recount(name);
    }

    /// Removes discovered classes if another class of the same resource names the product of the node. A class that was created
    /// from a flavor removes none: a new flavor must not move the services of the discovered class.
    fn exclude_replaced_classes(
        &self,
        mut classes: BTreeSet<String>,
        labels: &BTreeMap<String, String>,
    ) -> BTreeSet<String> {
        let class = |name: &String| self.classes.get(name).map(|members| &members.class);
        let is_discovered = |name: &&String| class(name).is_some_and(|class| class.is_discovered);
        let discovered: Vec<String> = classes.iter().filter(is_discovered).cloned().collect();
        for name in discovered {
            let resource = class(&name).and_then(|class| class.resource_name());
            let is_replaced = classes.iter().filter_map(class).any(|other| {
                !other.is_discovered
                    && !other.is_created_from_flavor
                    && other.resource_name() == resource
                    && super::products::names_product(other, labels)
            });
            if is_replaced {
                classes.remove(&name);
            }
        }
        classes
    }

    fn set_member(&mut self, class: &str, node: &str, member: Option<ClassNode>) {
        let Some(members) = self.classes.get_mut(class) else { return };
        let previous = match &member {
            Some(member) => members.nodes.insert(node.to_owned(), member.clone()),
            None => members.nodes.remove(node),
        };
        if previous == member {
            return;
        }
        previous.iter().for_each(|previous| members.totals.subtract(previous));
        member.iter().for_each(|member| members.totals.add(member));
        self.changed.insert(class.to_owned());
    }

    /// Removes a class and returns its nodes.
    fn remove_class(&mut self, name: &str) -> BTreeSet<String> {
        let Some(removed) = self.classes.remove(name) else { return BTreeSet::new() };
        for node in removed.nodes.keys() {
            if let Some(node) = self.nodes.get_mut(node) {
                node.classes.remove(name);
            }
        }
        removed.nodes.into_keys().collect()
    }

    /// Adds a class without nodes and returns the nodes that match it.
    fn add_class(&mut self, name: &str, class: Class) -> BTreeSet<String> {
        let matches = |node: &&Node| is_member(&class, &node.info);
        let nodes: BTreeSet<String> = self.nodes.values().filter(matches).map(|node| node.info.name.clone()).collect();
        let members = ClassMembers { class, nodes: BTreeMap::new(), totals: ClassTotals::default() };
        self.classes.insert(name.to_owned(), members);
        nodes
    }

    /// Returns the discovered classes that share a resource with one of `explicit`: they may gain or lose nodes when it
    /// changes.
    fn discovered_alternatives(&self, explicit: &[Class]) -> BTreeSet<String> {
        let has_same_resource =
            |class: &Class| explicit.iter().any(|explicit| explicit.resource_name() == class.resource_name());
        let discovered =
            self.classes.iter().filter(|(_, members)| members.class.is_discovered && has_same_resource(&members.class));
        discovered.map(|(name, _)| name.clone()).collect()
    }

    /// Matches a node with `classes` again; its other classes are retained.
    fn rematch_classes(&mut self, name: &str, classes: &BTreeSet<String>) {
        let Some(node) = self.nodes.get(name) else { return };
        let labels = Arc::clone(&node.info.labels);
        let matches =
            |class: &&String| self.classes.get(*class).is_some_and(|members| is_member(&members.class, &node.info));
        let matching = classes.iter().filter(matches);
        let matching = node.classes.iter().chain(matching).cloned().collect();
        let remaining = self.exclude_replaced_classes(matching, &labels);
        let Some(node) = self.nodes.get_mut(name) else { return };
        let previous = std::mem::replace(&mut node.classes, remaining.clone());
        for class in classes.intersection(&previous).filter(|class| !remaining.contains(*class)) {
            self.set_member(class, name, None);
        }
        for class in classes.intersection(&remaining) {
            self.recount_in_class(name, class);
        }
    }
}

impl NodeResources for Inventory {
    fn largest_node(&self, resource: &str) -> u32 {
        self.nodes().filter_map(|node| node.allocatable.get(resource)).copied().max().unwrap_or(0)
    }
}

// === impl ClassTotals ===

impl ClassTotals {
    fn add(&mut self, node: &ClassNode) {
        self.nodes += 1;
        self.available_nodes += usize::from(node.is_schedulable());
        self.total += u64::from(node.total);
        self.free += u64::from(node.available());
    }

    fn subtract(&mut self, node: &ClassNode) {
        self.nodes -= 1;
        self.available_nodes -= usize::from(node.is_schedulable());
        self.total -= u64::from(node.total);
        self.free -= u64::from(node.available());
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
