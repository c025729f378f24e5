//! Eligible nodes of each class for one component, excluding accelerators that earlier components reserve.

use std::sync::{Arc, OnceLock};

use crate::capacity::{EligibleNodes, PodShape, PoolCapacity, ReplicaNodes};
use crate::demand::ComponentDemand;
use crate::leader_worker::apply_role_placement;
use crate::merge::placement::{self, ClassPlacement, PlacementFilter};
use crate::nodes::ClassNode;
use crate::role_placement::PodRole;
use crate::supply::{Class, RuntimeComponent};
use crate::taint::Taint;

/// The nodes of all classes for one component of one service. Values that do not depend on the runtime are computed once.
#[derive(Debug)]
pub(crate) struct NodePool {
    classes: Vec<OnceLock<ClassPool>>,
}

/// Accelerators reserved by another component of the same service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation<'a> {
    pub(crate) class: &'a str,
    /// What each Pod requests.
    pub(crate) pod: PodShape,
    pub(crate) pods: u32,
}

/// The nodes of one class, before the placement of a runtime is applied.
#[derive(Debug)]
struct ClassPool {
    placement: ClassPlacement,
    /// Whether the class's own terms accept each node, by node index.
    accepted_by_class: Vec<bool>,
    all: EligibleNodes,
    /// Eligible nodes for runtimes without placement constraints, which is the common case.
    unconstrained: EligibleNodes,
    /// Whether a node has a taint, so that tolerations of the runtime matter.
    has_taints: bool,
}

/// Whether taints of nodes are considered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taints {
    Considered,
    Ignored,
}

// === impl NodePool ===

impl NodePool {
    pub(crate) fn new(classes: usize) -> Self {
        Self { classes: std::iter::repeat_with(OnceLock::new).take(classes).collect() }
    }

    /// Returns the nodes of the class at `index` that Pods of the component may use, after subtracting the
    /// `reservations`.
    pub(crate) fn eligible_nodes(
        &self,
        (index, class): (usize, &Class),
        runtime: &RuntimeComponent,
        demand: &ComponentDemand,
        reservations: &[Reservation<'_>],
    ) -> EligibleNodes {
        let pool = self.class_pool(index, class, demand)?;
        let is_unconstrained =
            runtime.node_selector.is_empty() && runtime.affinities.is_empty() && !runtime.roles.constrain_nodes();
        let reserved: Vec<&Reservation<'_>> =
            reservations.iter().filter(|reservation| reservation.class == class.name).collect();
        if is_unconstrained && reserved.is_empty() && (!pool.has_taints || runtime.tolerations.is_empty()) {
            return pool.unconstrained.clone();
        }
        Some(Arc::new(pool.replica_nodes(class, runtime, demand, &reserved, Taints::Considered)))
    }

    /// Returns a taint that Pods of the component do not tolerate, and the names of the nodes that they would otherwise use; `None`
    /// if no taint keeps them off.
    pub(crate) fn untolerated_taint(
        &self,
        (index, class): (usize, &Class),
        runtime: &RuntimeComponent,
        demand: &ComponentDemand,
    ) -> Option<(Taint, Vec<String>)> {
        let pool = self.class_pool(index, class, demand).filter(|pool| pool.has_taints)?;
        let nodes = pool.replica_nodes(class, runtime, demand, &[], Taints::Ignored);
        let resource = class.resource_name().unwrap_or_default();
        let filter = PlacementFilter::new(&pool.placement, runtime, demand).with_taints(runtime, demand, resource);
        let nodes: Vec<&ClassNode> = nodes.all.nodes_of(class.availability.as_ref()?).collect();
        let taint = nodes.iter().flat_map(|node| node.taints.iter()).find(|taint| !filter.tolerates(taint))?;
        let tainted = nodes.iter().filter(|node| node.taints.contains(taint));
        Some((taint.clone(), tainted.map(|node| node.name.clone()).collect()))
    }

    /// Returns all nodes of the class; `None` if they are unknown.
    pub(crate) fn all_nodes(&self, index: usize, class: &Class, demand: &ComponentDemand) -> EligibleNodes {
        self.class_pool(index, class, demand)?.all.clone()
    }

    fn class_pool(&self, index: usize, class: &Class, demand: &ComponentDemand) -> Option<&ClassPool> {
        class.availability.as_ref()?;
        self.classes.get(index).map(|pool| pool.get_or_init(|| ClassPool::new(class, demand)))
    }
}

// === impl ClassPool ===

impl ClassPool {
    fn new(class: &Class, demand: &ComponentDemand) -> Self {
        let placement = placement::class_placement(class);
        let nodes = class.availability.iter().flat_map(|availability| &availability.nodes);
        let accepted_by_class = nodes.map(|node| placement.accepts(node)).collect();
        let all =
            class.availability.as_ref().map(|known| Arc::new(ReplicaNodes::shared(PoolCapacity::all_nodes(known))));
        let has_taints = class.availability.iter().flat_map(|known| &known.nodes).any(|node| !node.taints.is_empty());
        let mut pool = Self { placement, accepted_by_class, all, unconstrained: None, has_taints };
        let nodes = pool.replica_nodes(class, &RuntimeComponent::default(), demand, &[], Taints::Considered);
        pool.unconstrained = Some(Arc::new(nodes));
        pool
    }

    fn replica_nodes(
        &self,
        class: &Class,
        runtime: &RuntimeComponent,
        demand: &ComponentDemand,
        reserved: &[&Reservation<'_>],
        taints: Taints,
    ) -> ReplicaNodes {
        if !runtime.roles.constrain_nodes() && !demand.roles.constrain_nodes() {
            return ReplicaNodes::shared(self.accepted_nodes(class, runtime, demand, reserved, taints));
        }
        let [leaders, workers] = [PodRole::Leader, PodRole::Worker].map(|role| {
            let (runtime, demand) = apply_role_placement(runtime, demand, role);
            self.accepted_nodes(class, &runtime, &demand, reserved, taints)
        });
        ReplicaNodes::by_role(leaders, workers)
    }

    /// Returns the nodes that the merged placement accepts, after subtracting the reservations.
    fn accepted_nodes(
        &self,
        class: &Class,
        runtime: &RuntimeComponent,
        demand: &ComponentDemand,
        reserved: &[&Reservation<'_>],
        taints: Taints,
    ) -> PoolCapacity {
        let Some(availability) = &class.availability else { return PoolCapacity::default() };
        let filter = PlacementFilter::new(&self.placement, runtime, demand);
        let filter = match taints {
            Taints::Considered if self.has_taints => {
                filter.with_taints(runtime, demand, class.resource_name().unwrap_or_default())
            }
            Taints::Considered | Taints::Ignored => filter,
        };
        let accepts = |index: usize| {
            self.accepted_by_class.get(index).is_some_and(|accepted| *accepted)
                && availability.nodes.get(index).is_some_and(|node| filter.accepts(node))
        };
        let mut accepted = PoolCapacity::for_nodes(availability, accepts);
        reserved.iter().for_each(|reservation| accepted.reserve(&reservation.pod, reservation.pods));
        accepted
    }
}
