//! Eligible nodes of each class for one component, excluding accelerators that earlier components reserve.

use std::sync::{Arc, OnceLock};

use crate::capacity::{EligibleNodes, PoolCapacity, ReplicaNodes};
use crate::demand::ComponentDemand;
use crate::leader_worker::apply_role_placement;
use crate::merge::placement::{self, ClassPlacement, PlacementFilter};
use crate::role_placement::PodRole;
use crate::supply::{Class, RuntimeComponent};

/// The nodes of all classes for one component of one service. Values that do not depend on the runtime are computed once.
#[derive(Debug)]
pub(crate) struct NodePool {
    classes: Vec<OnceLock<ClassPool>>,
}

/// Accelerators reserved by another component of the same service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation<'a> {
    pub(crate) class: &'a str,
    /// Accelerators per Pod.
    pub(crate) per_node: u32,
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
        if is_unconstrained && reserved.is_empty() {
            return pool.unconstrained.clone();
        }
        Some(Arc::new(pool.replica_nodes(class, runtime, demand, &reserved)))
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
        let mut pool = Self { placement, accepted_by_class, all, unconstrained: None };
        pool.unconstrained = Some(Arc::new(pool.replica_nodes(class, &RuntimeComponent::default(), demand, &[])));
        pool
    }

    fn replica_nodes(
        &self,
        class: &Class,
        runtime: &RuntimeComponent,
        demand: &ComponentDemand,
        reserved: &[&Reservation<'_>],
    ) -> ReplicaNodes {
        if !runtime.roles.constrain_nodes() && !demand.roles.constrain_nodes() {
            return ReplicaNodes::shared(self.accepted_nodes(class, runtime, demand, reserved));
        }
        let [leaders, workers] = [PodRole::Leader, PodRole::Worker].map(|role| {
            let (runtime, demand) = apply_role_placement(runtime, demand, role);
            self.accepted_nodes(class, &runtime, &demand, reserved)
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
    ) -> PoolCapacity {
        let Some(availability) = &class.availability else { return PoolCapacity::default() };
        let filter = PlacementFilter::new(&self.placement, runtime, demand);
        let accepts = |index: usize| {
            self.accepted_by_class.get(index).is_some_and(|accepted| *accepted)
                && availability.nodes.get(index).is_some_and(|node| filter.accepts(node))
        };
        let mut accepted = PoolCapacity::for_nodes(availability, accepts);
        reserved.iter().for_each(|reservation| accepted.reserve(reservation.per_node, reservation.pods));
        accepted
    }
}
