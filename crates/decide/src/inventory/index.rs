//! What every class has, kept right by deltas of nodes, Pods and classes.
//!
//! A change costs what it touches: a heartbeat nothing, a Pod the classes of its node, a label one look at each class, a
//! class its nodes.
//! Nodes, Pods and classes may come in any order. A test compares with a full recount after random changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::node_info;
use super::pod_usage::{Pods, ServiceUsage};
use super::{Availability, ClassNode, NodeInfo, class_node, matches_discovery};
use crate::supply::Class;

/// Nodes, the Pods on them, and the classes that they belong to.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    nodes: BTreeMap<String, Node>,
    pods: Pods,
    classes: BTreeMap<String, ClassMembers>,
    changed: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    facts: NodeInfo,
    classes: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct ClassMembers {
    class: Class,
    nodes: BTreeMap<String, ClassNode>,
    numbers: ClassTotals,
}

/// The sums of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTotals {
    pub nodes: usize,
    /// Ready and not cordoned.
    pub available_nodes: usize,
    pub total: u64,
    pub free: u64,
}

// === impl Index ===

impl Inventory {
    /// Takes a node in, or out with `None`. Returns whether anything that counts has changed.
    pub fn set_node(&mut self, name: &str, node: Option<&Value>) -> bool {
        let Some(node) = node else { return self.remove_node(name) };
        let mut facts = node_info::node_info(node);
        facts.requested = self.pods.requested(name);
        let known = self.nodes.get(name);
        if known.is_some_and(|known| known.facts == facts) {
            return false;
        }
        let same_labels = known.is_some_and(|known| known.facts.labels == facts.labels);
        self.nodes.entry(name.to_owned()).or_default().facts = facts;
        if same_labels {
            self.recount(name);
        } else {
            self.rematch(name);
        }
        true
    }

    /// Takes a Pod in, or out with `None`. One that has ended or has no node holds nothing.
    pub fn set_pod(&mut self, namespace: &str, name: &str, pod: Option<&Value>) {
        for node in self.pods.set(namespace, name, pod) {
            let requested = self.pods.requested(&node);
            if let Some(known) = self.nodes.get_mut(&node) {
                known.facts.requested = requested;
                self.recount(&node);
            }
        }
    }

    /// Takes a class in, or out with `None`. Costs the nodes that it had or has; where it names their product, also one look
    /// at each class that yields to it.
    pub fn set_class(&mut self, name: &str, class: Option<Class>) {
        let before = self.classes.get(name).map(|members| members.class.clone());
        let rivals: Vec<Class> = before.into_iter().chain(class.clone()).filter(|one| !one.is_discovered).collect();
        let itself = BTreeSet::from([name.to_owned()]);
        let with_yielding = &self.yielding_to(&rivals) | &itself;
        let mut touched = self.drop_class(name);
        if let Some(class) = class {
            touched.extend(self.add_class(name, class));
        }
        self.changed.insert(name.to_owned());
        for node in &touched {
            let Some(labels) = self.nodes.get(node).map(|node| Arc::clone(&node.facts.labels)) else { continue };
            let contested = rivals.iter().any(|rival| super::products::pins(rival, &labels));
            self.reconsider(node, if contested { &with_yielding } else { &itself });
        }
    }

    /// Names of the classes whose numbers may have moved since the last call, gone ones included.
    pub fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// Whether nothing has moved since [`Self::take_changed`].
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether any node is known.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Whether this very class has been taken in.
    #[must_use]
    pub fn is_current(&self, class: &Class) -> bool {
        self.classes.get(&class.name).is_some_and(|members| {
            let known = &members.class;
            known.discovery == class.discovery
                && known.resources == class.resources
                && known.is_discovered == class.is_discovered
        })
    }

    /// Every node, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values().map(|node| &node.facts)
    }

    /// Classes of a node, by name.
    pub fn classes_of(&self, node: &str) -> impl Iterator<Item = &Class> {
        let names = self.nodes.get(node).into_iter().flat_map(|node| &node.classes);
        names.filter_map(|name| self.classes.get(name)).map(|members| &members.class)
    }

    /// The sums of every class, by name.
    pub fn class_totals(&self) -> impl Iterator<Item = (&str, ClassTotals)> {
        self.classes.iter().map(|(name, members)| (name.as_str(), members.numbers))
    }

    /// The sums of a class; zero for one that is not known.
    #[must_use]
    pub fn totals_of(&self, class: &str) -> ClassTotals {
        self.classes.get(class).map(|members| members.numbers).unwrap_or_default()
    }

    /// The first `most` names of a class's nodes.
    pub fn node_names(&self, class: &str, most: usize) -> impl Iterator<Item = &str> {
        self.classes.get(class).into_iter().flat_map(|members| members.nodes.keys()).take(most).map(String::as_str)
    }

    /// What the Pods of a service hold.
    #[must_use]
    pub fn service_usage(&self, namespace: &str, service: &str) -> ServiceUsage {
        self.pods.service_usage(namespace, service)
    }

    /// Labels of the Pods of a service that hold accelerators on a node.
    pub fn pod_labels<'a>(
        &'a self,
        namespace: &'a str,
        service: &'a str,
    ) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
        self.pods.pod_labels(namespace, service)
    }

    /// Every node with `own` given back, by name.
    #[must_use]
    pub fn nodes_excluding(&self, own: &ServiceUsage) -> Vec<NodeInfo> {
        self.nodes().map(|node| own.given_back(node)).collect()
    }

    /// What `class` has on `nodes`, which are this index's with other requests.
    #[must_use]
    pub fn availability_on(&self, class: &Class, nodes: &[NodeInfo]) -> Availability {
        let Some(members) = self.classes.get(&class.name).filter(|_| self.is_current(class)) else {
            return super::class_availability(class, nodes);
        };
        let counted = nodes.iter().filter(|node| members.nodes.contains_key(&node.name));
        Availability { nodes: counted.map(|node| class_node(class, node)).collect() }
    }

    /// What `class` has if `own` is given back. A class that was not taken in is counted from scratch.
    #[must_use]
    pub fn availability(&self, class: &Class, own: &ServiceUsage) -> Availability {
        let Some(members) = self.classes.get(&class.name).filter(|_| self.is_current(class)) else {
            let members = self.nodes().filter(|node| matches_discovery(&class.discovery, &node.name, &node.labels));
            return Availability { nodes: members.map(|node| class_node(class, &own.given_back(node))).collect() };
        };
        let counted = |(name, known): (&String, &ClassNode)| match self.nodes.get(name).filter(|_| own.has_on(name)) {
            Some(node) => class_node(class, &own.given_back(&node.facts)),
            None => known.clone(),
        };
        Availability { nodes: members.nodes.iter().map(counted).collect() }
    }

    fn remove_node(&mut self, name: &str) -> bool {
        let Some(gone) = self.nodes.remove(name) else { return false };
        for class in gone.classes {
            self.put_member(&class, name, None);
        }
        true
    }

    /// Counts a node again in the classes it is in.
    fn recount(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        for class in node.classes.clone() {
            self.recount_in(name, &class);
        }
    }

    fn recount_in(&mut self, name: &str, class: &str) {
        let (Some(node), Some(members)) = (self.nodes.get(name), self.classes.get(class)) else { return };
        let counted = class_node(&members.class, &node.facts);
        self.put_member(class, name, Some(counted));
    }

    /// Finds the classes of a node anew.
    fn rematch(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let labels = Arc::clone(&node.facts.labels);
        let all = self.classes.iter().filter(|(_, members)| matches_discovery(&members.class.discovery, name, &labels));
        let found: BTreeSet<String> = all.map(|(class, _)| class.clone()).collect();
        let remaining = self.without_yielding(found, &labels);
        let Some(node) = self.nodes.get_mut(name) else { return };
        let before = std::mem::replace(&mut node.classes, remaining.clone());
        for class in before.difference(&remaining) {
            self.put_member(class, name, None);
        }
        self.recount(name);
    }

    /// Where a person's class pins the product, a discovered one that nobody edited gives way.
    fn without_yielding(&self, mut found: BTreeSet<String>, labels: &BTreeMap<String, String>) -> BTreeSet<String> {
        let class = |name: &String| self.classes.get(name).map(|members| &members.class);
        let yielding: Vec<String> =
            found.iter().filter(|name| class(name).is_some_and(|one| one.is_discovered)).cloned().collect();
        for name in yielding {
            let resource = class(&name).and_then(|one| one.resource_name());
            let pinned = found.iter().filter_map(class).any(|other| {
                !other.is_discovered && other.resource_name() == resource && super::products::pins(other, labels)
            });
            if pinned {
                found.remove(&name);
            }
        }
        found
    }

    fn put_member(&mut self, class: &str, node: &str, counted: Option<ClassNode>) {
        let Some(members) = self.classes.get_mut(class) else { return };
        let before = match &counted {
            Some(counted) => members.nodes.insert(node.to_owned(), counted.clone()),
            None => members.nodes.remove(node),
        };
        if before == counted {
            return;
        }
        before.iter().for_each(|before| members.numbers.subtract(before));
        counted.iter().for_each(|counted| members.numbers.add(counted));
        self.changed.insert(class.to_owned());
    }

    fn drop_class(&mut self, name: &str) -> BTreeSet<String> {
        let Some(gone) = self.classes.remove(name) else { return BTreeSet::new() };
        for node in gone.nodes.keys() {
            if let Some(node) = self.nodes.get_mut(node) {
                node.classes.remove(name);
            }
        }
        gone.nodes.into_keys().collect()
    }

    fn add_class(&mut self, name: &str, class: Class) -> BTreeSet<String> {
        let fits = |node: &&Node| matches_discovery(&class.discovery, &node.facts.name, &node.facts.labels);
        let nodes: BTreeSet<String> = self.nodes.values().filter(fits).map(|node| node.facts.name.clone()).collect();
        let members = ClassMembers { class, nodes: BTreeMap::new(), numbers: ClassTotals::default() };
        self.classes.insert(name.to_owned(), members);
        nodes
    }

    /// Classes that may come or go where one of `rivals` comes or goes: those that yield, for the same resource.
    fn yielding_to(&self, rivals: &[Class]) -> BTreeSet<String> {
        let contested = |class: &Class| rivals.iter().any(|rival| rival.resource_name() == class.resource_name());
        let yielding =
            self.classes.iter().filter(|(_, members)| members.class.is_discovered && contested(&members.class));
        yielding.map(|(name, _)| name.clone()).collect()
    }

    /// Finds anew which of `reconsidered` have the node; all its other classes stay.
    fn reconsider(&mut self, name: &str, reconsidered: &BTreeSet<String>) {
        let Some(node) = self.nodes.get(name) else { return };
        let labels = Arc::clone(&node.facts.labels);
        let fits = |class: &&String| {
            self.classes.get(*class).is_some_and(|members| matches_discovery(&members.class.discovery, name, &labels))
        };
        let fitting = reconsidered.iter().filter(fits);
        let found = node.classes.iter().chain(fitting).cloned().collect();
        let remaining = self.without_yielding(found, &labels);
        let Some(node) = self.nodes.get_mut(name) else { return };
        let before = std::mem::replace(&mut node.classes, remaining.clone());
        for class in reconsidered.intersection(&before).filter(|class| !remaining.contains(*class)) {
            self.put_member(class, name, None);
        }
        for class in reconsidered.intersection(&remaining) {
            self.recount_in(name, class);
        }
    }
}

// === impl Numbers ===

impl ClassTotals {
    fn add(&mut self, node: &ClassNode) {
        self.nodes += 1;
        self.available_nodes += usize::from(node.schedulable);
        self.total += u64::from(node.total);
        self.free += u64::from(node.free);
    }

    fn subtract(&mut self, node: &ClassNode) {
        self.nodes -= 1;
        self.available_nodes -= usize::from(node.schedulable);
        self.total -= u64::from(node.total);
        self.free -= u64::from(node.free);
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
