//! Accelerators that decided services will take although their pods do not run yet: two services do not choose the same
//! ones. `plan` counts the services before one in its input, the operator those whose status holds a decision.

mod emptiest;

use std::collections::BTreeMap;
use std::sync::Arc;

use decide::decision::{ComponentDecision, Decision};
use decide::inventory::{Holdings, Index, NodeFacts};
use decide::reason::Warning;
use decide::supply::Class;
use serde_json::Value;

use crate::labels;
use crate::names;
use emptiest::Emptiest;

/// The warning of a decision that waits until others let go.
const NO_FREE_CAPACITY: &str = "NoFreeCapacity";

/// What one decided service needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub namespace: String,
    pub service: String,
    pub sets: Vec<ClaimedSet>,
}

/// Equal pods of one component on one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedSet {
    pub component: String,
    pub class: String,
    /// Accelerators of one pod.
    pub per_node: u32,
    /// Pods of all replicas.
    pub pods: u32,
}

impl Claim {
    /// What a decision about a service takes; None if that is nothing.
    pub fn new(namespace: &str, service: &str, components: &BTreeMap<String, ComponentDecision>) -> Option<Self> {
        // A record that somebody wrote may name a class and ask for nothing of it.
        let sets: Vec<ClaimedSet> = components
            .iter()
            .flat_map(|(name, decision)| sets(name, decision))
            .filter(|set| set.per_node > 0 && set.pods > 0)
            .collect();
        let claim = Self { namespace: namespace.to_owned(), service: service.to_owned(), sets };
        (!claim.sets.is_empty()).then_some(claim)
    }

    /// The claim of a service object whose status records a decision for what it asks for now. One that waits for
    /// others claims nothing: two that wait for each other would swap places for ever.
    pub fn recorded(service: &Value) -> Option<Self> {
        let (metadata, status) = (&service["metadata"], &service["status"]);
        let decision = &status["decision"];
        if decision["feasible"] != true
            || recorded_wait(decision)
            || status["observedGeneration"] != metadata["generation"]
        {
            return None;
        }
        let components = serde_json::from_value(decision["components"].clone()).ok()?;
        Self::new(metadata["namespace"].as_str()?, metadata["name"].as_str()?, &components)
    }

    /// Whether Pods of it are still to come: a claim whose Pods all run takes nothing that nodes do not tell.
    pub fn is_open(&self, inventory: &Index) -> bool {
        self.sets.iter().any(|set| missing(self, set, inventory) > 0)
    }

    /// Whether it is the claim of that service.
    pub fn is_of(&self, namespace: &str, service: &str) -> bool {
        self.namespace == namespace && self.service == service
    }
}

fn sets(component: &str, decision: &ComponentDecision) -> Vec<ClaimedSet> {
    let set = |class: &str, per_node: u32, pods: u32| ClaimedSet {
        component: component.to_owned(),
        class: class.to_owned(),
        per_node,
        pods,
    };
    if !decision.variants.is_empty() {
        let variants = decision.variants.iter();
        return variants
            .map(|one| set(&one.accelerator_class, one.accelerators_per_node, one.nodes.saturating_mul(one.replicas)))
            .collect();
    }
    let Some(class) = &decision.accelerator_class else { return Vec::new() };
    vec![set(class, decision.accelerators_per_node, decision.nodes.saturating_mul(decision.replicas.max(1)))]
}

/// Whether a decision with these warnings waits for accelerators that others hold.
pub fn waits(warnings: &[Warning]) -> bool {
    warnings.iter().any(|warning| warning.code == NO_FREE_CAPACITY)
}

/// Whether the decision that a status records does.
pub fn recorded_wait(decision: &Value) -> bool {
    let mut warnings = decision["warnings"].as_array().into_iter().flatten();
    warnings.any(|warning| warning["code"] == NO_FREE_CAPACITY)
}

/// Says in the warning of a decision that waits who was promised what looks free.
pub(crate) fn explain(decision: &mut Decision, claims: &[Claim], inventory: &Index, own: (&str, &str)) {
    for (name, component) in &decision.components {
        let about = format!("{name} needs ");
        let warning = decision
            .warnings
            .iter_mut()
            .find(|warning| warning.code == NO_FREE_CAPACITY && warning.message.starts_with(&about));
        let (Some(warning), Some(class)) = (warning, &component.accelerator_class) else { continue };
        let others = claims.iter().filter(|claim| !claim.is_of(own.0, own.1));
        let promised: Vec<String> = others.filter_map(|claim| promised(claim, class, inventory)).collect();
        if !promised.is_empty() {
            warning.message = format!("{} ({})", warning.message, promised.join(", "));
        }
    }
}

/// `8 promised to default/one`: what a claim still lacks of a class.
fn promised(claim: &Claim, class: &str, inventory: &Index) -> Option<String> {
    let sets = claim.sets.iter().filter(|set| set.class == class);
    let units: u32 = sets.map(|set| missing(claim, set, inventory).saturating_mul(set.per_node)).sum();
    (units > 0).then(|| format!("{units} promised to {}/{}", claim.namespace, claim.service))
}

/// The nodes of `inventory` with `own` given back and what claims still lack booked onto them; None if they lack
/// nothing.
pub(crate) fn book(
    claims: &[&Claim],
    classes: &[Arc<Class>],
    inventory: &Index,
    own: &Holdings,
) -> Option<Vec<NodeFacts>> {
    let all = claims.iter().flat_map(|claim| claim.sets.iter().map(|set| (set, missing(claim, set, inventory))));
    let missing: Vec<(&ClaimedSet, u32)> = all.filter(|(_, count)| *count > 0).collect();
    if missing.is_empty() {
        return None;
    }
    let mut nodes = inventory.nodes_without(own);
    let mut by_class: BTreeMap<&str, Option<Emptiest>> = BTreeMap::new();
    for (set, count) in missing {
        let of_class = || Emptiest::of(classes.iter().find(|class| class.name == set.class)?, &nodes);
        let Some(emptiest) = by_class.entry(&set.class).or_insert_with(of_class) else { continue };
        let booked = (0..count).take_while(|_| emptiest.book(set.per_node, &mut nodes));
        booked.for_each(drop);
    }
    Some(nodes)
}

/// Whether any of them takes accelerators of the class.
pub(crate) fn takes(claims: &[&Claim], class: &str) -> bool {
    claims.iter().flat_map(|claim| &claim.sets).any(|set| set.class == class)
}

/// The same without nodes to look at: what a class's status counts as free is less by what is claimed of it.
pub(crate) fn book_on_status(claims: &[&Claim], class: &mut Class) {
    let Some(known) = class.availability.as_mut() else { return };
    let ours = claims.iter().flat_map(|claim| &claim.sets).filter(|set| set.class == class.name);
    for set in ours {
        for _ in 0..set.pods {
            let fits = known.nodes.iter_mut().filter(|node| node.free >= set.per_node);
            let Some(node) = fits.reduce(|best, node| if node.free > best.free { node } else { best }) else { break };
            node.free -= set.per_node;
        }
    }
}

/// Pods of the set that no node runs yet.
fn missing(claim: &Claim, set: &ClaimedSet, inventory: &Index) -> u32 {
    let class = names::label_value(&set.class);
    let is_one = |pod: &&BTreeMap<String, String>| {
        let on_class = pod.get(labels::ACCELERATOR_CLASS).is_none_or(|label| *label == class);
        pod.get(labels::COMPONENT) == Some(&set.component) && on_class
    };
    let service = names::label_value(&claim.service);
    let pods = inventory.pods_of(&claim.namespace, &service);
    set.pods.saturating_sub(u32::try_from(pods.filter(is_one).count()).unwrap_or(u32::MAX))
}
