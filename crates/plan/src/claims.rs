//! Claims on accelerators by services that are planned but whose Pods do not run yet, so that two services do not select the
//! same ones. `plan` adds a claim for each planned service, in input order; the operator adds claims of services with a
//! decision in their status.

mod least_allocated;

use std::collections::BTreeMap;
use std::sync::Arc;

use decide::{Class, ComponentDecision, Decision, Inventory, NodeInfo, ServiceUsage, Warning, WarningSubject};
use serde_json::Value;

use crate::decision_record::{DecisionRecord, recorded_components};
use crate::labels;
use crate::names;
use least_allocated::LeastAllocatedNodes;

/// Code of the warning that a decision waits for capacity.
const NO_FREE_CAPACITY: &str = decide::code::warning::NO_FREE_CAPACITY.as_str();

/// Maximum number of Pods of a component that claim accelerators. More Pods would only fit on Nodes whose number of
/// accelerators is wrong.
const MAX_ASSIGNED_PODS: u32 = 10_000;

/// Accelerators that one service claims.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub service: String,
    /// Claimed Pods by component and class.
    pub pod_sets: Vec<PodSet>,
}

/// Identical Pods of one component on one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSet {
    /// Component of the service.
    pub component: String,
    /// Name of the accelerator class.
    pub class: String,
    /// Accelerators of one Pod.
    pub accelerators_per_pod: u32,
    /// Number of Pods of all replicas.
    pub count: u32,
}

// === impl Claim ===

impl Claim {
    /// Returns the claim of a decision; `None` if it needs no accelerators.
    pub fn new(namespace: &str, service: &str, components: &BTreeMap<String, ComponentDecision>) -> Option<Self> {
        // A decision read from a status may be invalid, with a class but no accelerators.
        let sets: Vec<PodSet> = components
            .iter()
            .flat_map(|(name, decision)| pod_sets(name, decision))
            .filter(|set| set.accelerators_per_pod > 0 && set.count > 0)
            .collect();
        let claim = Self { namespace: namespace.to_owned(), service: service.to_owned(), pod_sets: sets };
        (!claim.pod_sets.is_empty()).then_some(claim)
    }

    /// Returns the claim of a service whose status has a decision for its current generation. A service that waits for capacity
    /// claims nothing; otherwise the decisions of two services that wait for each other would alternate forever.
    pub fn from_status(service: &Value) -> Option<Self> {
        let (metadata, status) = (&service["metadata"], &service["status"]);
        let record = DecisionRecord::from_status(status).filter(|record| record.feasible)?;
        if waits_for_capacity(&record.warnings) || status["observedGeneration"] != metadata["generation"] {
            return None;
        }
        let components = recorded_components(status);
        Self::new(metadata["namespace"].as_str()?, metadata["name"].as_str()?, &components)
    }

    /// Returns whether some claimed Pods do not run yet. The inventory already contains running Pods.
    pub fn has_pending_pods(&self, inventory: &Inventory) -> bool {
        self.pod_sets.iter().any(|set| pending_pods(self, set, inventory) > 0)
    }

    /// Returns whether this is the claim of the given service.
    pub(crate) fn belongs_to(&self, namespace: &str, service: &str) -> bool {
        self.namespace == namespace && self.service == service
    }
}

fn pod_sets(component: &str, decision: &ComponentDecision) -> Vec<PodSet> {
    let set = |class: &str, per_node: u32, pods: u32| PodSet {
        component: component.to_owned(),
        class: class.to_owned(),
        accelerators_per_pod: per_node,
        count: pods,
    };
    if !decision.variants.is_empty() {
        let variants = decision.variants.iter();
        return variants
            .map(|variant| {
                let pods = variant.nodes.saturating_mul(variant.replicas);
                set(&variant.accelerator_class, variant.accelerators_per_node, pods)
            })
            .collect();
    }
    let Some(class) = &decision.accelerator_class else { return Vec::new() };
    vec![set(class, decision.accelerators_per_node, decision.nodes.saturating_mul(decision.replicas.max(1)))]
}

/// Returns whether a decision with these warnings waits for accelerators of other services, or for more nodes.
pub fn waits_for_capacity(warnings: &[Warning]) -> bool {
    warnings.iter().any(Warning::is_capacity_shortage)
}

/// Adds the claims of other services to the capacity warnings of a decision.
pub(crate) fn describe_claims(decision: &mut Decision, claims: &[Claim], inventory: &Inventory, service: (&str, &str)) {
    for warning in decision.warnings.iter_mut().filter(|warning| warning.code == NO_FREE_CAPACITY) {
        let Some(WarningSubject::Component(component)) = &warning.subject else { continue };
        let component = decision.components.get(component.as_str());
        let Some(class) = component.and_then(|component| component.accelerator_class.as_deref()) else { continue };
        let other_claims = claims.iter().filter(|claim| !claim.belongs_to(service.0, service.1));
        let descriptions: Vec<String> =
            other_claims.filter_map(|claim| describe_claim(claim, class, inventory)).collect();
        if !descriptions.is_empty() {
            warning.message = format!("{} ({})", warning.message, descriptions.join(", "));
        }
    }
}

/// Describes the accelerators of `class` that `claim` reserves for Pods that do not run yet: `8 claimed by default/chat`.
fn describe_claim(claim: &Claim, class: &str, inventory: &Inventory) -> Option<String> {
    let sets = claim.pod_sets.iter().filter(|set| set.class == class);
    let accelerators = sets
        .map(|set| pending_pods(claim, set, inventory).saturating_mul(set.accelerators_per_pod))
        .fold(0, u32::saturating_add);
    (accelerators > 0).then(|| format!("{accelerators} claimed by {}/{}", claim.namespace, claim.service))
}

/// Returns the Nodes of `inventory` without the Pods in `own_usage` and with the pending Pods of `claims` assigned to them;
/// `None` if no Pods are pending.
pub(crate) fn reserve_on_nodes(
    claims: &[&Claim],
    classes: &[Arc<Class>],
    inventory: &Inventory,
    own_usage: &ServiceUsage,
) -> Option<Vec<NodeInfo>> {
    let pod_sets =
        claims.iter().flat_map(|claim| claim.pod_sets.iter().map(|set| (set, pending_pods(claim, set, inventory))));
    let pending: Vec<(&PodSet, u32)> = pod_sets.filter(|(_, count)| *count > 0).collect();
    if pending.is_empty() {
        return None;
    }
    let mut nodes = inventory.nodes_excluding(own_usage);
    let mut nodes_by_class: BTreeMap<&str, Option<LeastAllocatedNodes>> = BTreeMap::new();
    for (set, count) in pending {
        let nodes_of_class =
            || LeastAllocatedNodes::for_class(classes.iter().find(|class| class.name == set.class)?, &nodes);
        let Some(class_nodes) = nodes_by_class.entry(&set.class).or_insert_with(nodes_of_class) else { continue };
        let assigned = (0..count.min(MAX_ASSIGNED_PODS))
            .take_while(|_| class_nodes.assign_pod(set.accelerators_per_pod, &mut nodes));
        assigned.for_each(drop);
    }
    Some(nodes)
}

/// Returns whether any of `claims` claims accelerators of `class`.
pub(crate) fn claims_class(claims: &[&Claim], class: &str) -> bool {
    claims.iter().flat_map(|claim| &claim.pod_sets).any(|set| set.class == class)
}

/// Reduces the free capacity in the status of a class by `claims`, for snapshots without Nodes.
pub(crate) fn reserve_on_status(claims: &[&Claim], class: &mut Class) {
    let Some(availability) = class.availability.as_mut() else { return };
    let pod_sets = claims.iter().flat_map(|claim| &claim.pod_sets).filter(|set| set.class == class.name);
    for set in pod_sets {
        for _ in 0..set.count.min(MAX_ASSIGNED_PODS) {
            let candidates = availability.nodes.iter_mut().filter(|node| node.free >= set.accelerators_per_pod);
            let Some(node) = candidates.reduce(|best, node| if node.free > best.free { node } else { best }) else {
                break;
            };
            node.free -= set.accelerators_per_pod;
        }
    }
}

/// Returns the number of Pods of the set that do not run yet.
fn pending_pods(claim: &Claim, set: &PodSet, inventory: &Inventory) -> u32 {
    let class = names::label_value(&set.class);
    let belongs_to_set = |pod: &&BTreeMap<String, String>| {
        let has_class = pod.get(labels::ACCELERATOR_CLASS).is_none_or(|label| *label == class);
        pod.get(labels::COMPONENT) == Some(&set.component) && has_class
    };
    let service = names::label_value(&claim.service);
    let pods = inventory.pod_labels(&claim.namespace, &service);
    set.count.saturating_sub(u32::try_from(pods.filter(belongs_to_set).count()).unwrap_or(u32::MAX))
}
