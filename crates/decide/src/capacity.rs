//! Total and free accelerators, CPU and memory on sets of nodes of one class.

use std::sync::Arc;

use crate::compute_request::{ComputeRequest, ComputeShortage, NodeCompute};
use crate::nodes::{Availability, ClassNode, UnschedulableNodes};

/// What one Pod of a replica requests of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodShape {
    /// Accelerators.
    pub(crate) accelerators: u32,
    /// CPU and memory.
    pub(crate) compute: ComputeRequest,
}

/// Accelerators, CPU and memory of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeCapacity {
    /// Index of the node among the nodes of its class.
    index: usize,
    total: u32,
    /// Free accelerators that new Pods can use.
    free: u32,
    /// Free accelerators that new Pods cannot use because the node is unschedulable.
    withheld: u32,
    /// Accelerators that running Pods of the service use although new Pods could not.
    used_beyond_available: u32,
    /// Allocatable CPU and memory.
    compute: NodeCompute,
    /// CPU and memory that no Pod requests.
    free_compute: NodeCompute,
}

/// Accelerators of a subset of one class's nodes, in the class's node order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolCapacity {
    nodes: Vec<NodeCapacity>,
    /// Whether the accelerator counts of the individual nodes are known. For nodes without labels only names and totals
    /// are known, and each node is assigned an even share of the totals.
    is_exact: bool,
}

/// Maximum number of Pods that [`PoolCapacity::reserve`] places.
const MAX_RESERVED_PODS: u32 = 10_000;

/// Nodes that the Pods of a replica may use; none by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReplicaNodes {
    /// Nodes that at least one Pod of the replica may use.
    pub(crate) all: PoolCapacity,
    /// Nodes of the leader and of the workers, if their placements differ.
    by_role: Option<(PoolCapacity, PoolCapacity)>,
}

/// Nodes of a class that satisfy the merged placement; `None` if the nodes of the class are unknown.
pub(crate) type EligibleNodes = Option<Arc<ReplicaNodes>>;

// === impl PoolCapacity ===

impl PoolCapacity {
    /// Returns the capacity of all nodes of a class.
    pub(crate) fn all_nodes(availability: &Availability) -> Self {
        Self::for_nodes(availability, |_| true)
    }

    /// Returns the capacity of the nodes for which `accepts` returns true; its argument is the index of the node.
    pub(crate) fn for_nodes(availability: &Availability, accepts: impl Fn(usize) -> bool) -> Self {
        let accepted = availability.nodes.iter().enumerate().filter(|(index, _)| accepts(*index));
        let capacity = |(index, node): (usize, &ClassNode)| {
            let free = node.available();
            let withheld = node.free.saturating_sub(free);
            let used_beyond_available = node.used_beyond_available();
            let (compute, free_compute) = (node.compute, node.free_compute);
            let capacity =
                NodeCapacity { index, total: node.total, free, withheld, used_beyond_available, compute, free_compute };
            (capacity, node.labels.is_some())
        };
        let (nodes, exact): (Vec<NodeCapacity>, Vec<bool>) = accepted.map(capacity).unzip();
        Self { nodes, is_exact: exact.into_iter().all(|exact| exact) }
    }

    /// Returns the nodes among those of the class.
    pub(crate) fn nodes_of<'a>(&self, availability: &'a Availability) -> impl Iterator<Item = &'a ClassNode> {
        self.nodes.iter().filter_map(|node| availability.nodes.get(node.index))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of free accelerators.
    pub(crate) fn free(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.free))
    }

    /// Returns the total number of accelerators, both free and in use.
    pub(crate) fn total(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.total))
    }

    /// Returns the accelerators of the largest node; `None` without nodes.
    pub(crate) fn largest_node(&self) -> Option<u32> {
        self.nodes.iter().map(|node| node.total).max()
    }

    /// Returns an upper bound of the accelerators of one node: the total of all nodes if their distribution is unknown.
    pub(crate) fn max_per_node(&self) -> Option<u32> {
        if self.is_exact { self.largest_node() } else { Some(self.total()) }
    }

    /// Returns how many Pods fit on what is free on the nodes.
    pub(crate) fn slots(&self, pod: &PodShape) -> u32 {
        self.nodes.iter().map(|node| pod.pods_in(node.free, node.free_compute)).fold(0, u32::saturating_add)
    }

    /// Returns the resource of which no node that has the accelerators has enough for a Pod, if there is one.
    pub(crate) fn compute_shortage(&self, pod: &PodShape) -> Option<ComputeShortage> {
        let nodes = self.nodes.iter().filter(|node| node.total >= pod.accelerators);
        pod.compute.shortage(nodes.map(|node| node.compute))
    }

    /// Returns the same nodes as if all of them were schedulable.
    fn if_schedulable(&self) -> Self {
        self.with_more_free(|node| node.withheld)
    }

    /// Returns the same nodes with the accelerators that Pods of the service use although new Pods could not.
    fn with_running_pods(&self) -> Self {
        self.with_more_free(|node| node.used_beyond_available)
    }

    fn with_more_free(&self, additional: impl Fn(&NodeCapacity) -> u32) -> Self {
        let node = |node: &NodeCapacity| {
            let free = node.free.saturating_add(additional(node));
            NodeCapacity { free, withheld: 0, used_beyond_available: 0, ..*node }
        };
        Self { nodes: self.nodes.iter().map(node).collect(), is_exact: self.is_exact }
    }

    /// Returns how many Pods fit on the nodes if nothing on them is in use.
    fn slots_when_empty(&self, pod: &PodShape) -> u32 {
        self.nodes.iter().map(|node| pod.pods_in(node.total, node.compute)).fold(0, u32::saturating_add)
    }

    /// Reserves what each of `pods` Pods requests, using best fit: on the node with the fewest free accelerators that suffice.
    pub(crate) fn reserve(&mut self, pod: &PodShape, pods: u32) {
        for _ in 0..pods.min(MAX_RESERVED_PODS) {
            let fitting = self.nodes.iter_mut().filter(|node| pod.pods_in(node.free, node.free_compute) > 0);
            let Some(node) = fitting.min_by_key(|node| node.free) else { return };
            node.free = node.free.saturating_sub(pod.accelerators);
            node.free_compute = node.free_compute.without(&pod.compute);
        }
    }
}

// === impl PodShape ===

impl PodShape {
    /// Returns a Pod that requests accelerators only.
    pub(crate) fn accelerators(accelerators: u32) -> Self {
        Self { accelerators, compute: ComputeRequest::default() }
    }

    /// Returns how many such Pods fit into these accelerators, CPU and memory.
    fn pods_in(&self, accelerators: u32, compute: NodeCompute) -> u32 {
        (accelerators / self.accelerators.max(1)).min(self.compute.pods_in(compute))
    }
}

impl Default for PoolCapacity {
    fn default() -> Self {
        Self { nodes: Vec::new(), is_exact: true }
    }
}

// === impl ReplicaNodes ===

impl ReplicaNodes {
    /// Returns nodes that leader and workers share.
    pub(crate) fn shared(all: PoolCapacity) -> Self {
        Self { all, by_role: None }
    }

    /// Returns separate nodes for leader and workers; a node may be in both sets.
    pub(crate) fn by_role(leaders: PoolCapacity, workers: PoolCapacity) -> Self {
        let is_worker_only = |node: &&NodeCapacity| leaders.nodes.iter().all(|known| known.index != node.index);
        let nodes = leaders.nodes.iter().chain(workers.nodes.iter().filter(is_worker_only)).copied().collect();
        let all = PoolCapacity { nodes, is_exact: leaders.is_exact && workers.is_exact };
        Self { all, by_role: Some((leaders, workers)) }
    }

    fn pools(&self) -> impl Iterator<Item = &PoolCapacity> {
        let (shared, by_role) = match &self.by_role {
            None => (Some(&self.all), None),
            Some((leaders, workers)) => (None, Some([leaders, workers])),
        };
        shared.into_iter().chain(by_role.into_iter().flatten())
    }

    /// Returns the pool with the smallest nodes, which limits the accelerators of one Pod.
    pub(crate) fn smallest_pool(&self) -> &PoolCapacity {
        self.pools().min_by_key(|pool| pool.max_per_node()).unwrap_or(&self.all)
    }

    /// Whether a Pod of the replica has no eligible node, regardless of free capacity.
    pub(crate) fn is_missing_nodes(&self) -> bool {
        self.pools().any(PoolCapacity::is_empty)
    }

    /// Returns the resource of which no node of a Pod has enough, if there is one.
    pub(crate) fn compute_shortage(&self, pod: &PodShape) -> Option<ComputeShortage> {
        self.pools().find_map(|pool| pool.compute_shortage(pod))
    }

    /// Whether `replicas` replicas of `nodes` Pods each fit on what is free. Leaders, workers and both together must fit, which
    /// by Hall's theorem suffices for two roles.
    pub(crate) fn has_capacity(&self, pod: &PodShape, nodes: u32, replicas: u32) -> bool {
        let fits = |pool: &PoolCapacity, pods: u32| pool.slots(pod) >= pods;
        let workers_per_replica = nodes.saturating_sub(1);
        let roles_fit = self.by_role.as_ref().is_none_or(|(leaders, workers)| {
            fits(leaders, replicas) && fits(workers, workers_per_replica.saturating_mul(replicas))
        });
        roles_fit && fits(&self.all, nodes.saturating_mul(replicas))
    }

    /// Whether `replicas` replicas fit if the accelerators of running Pods of the service count as free.
    pub(crate) fn has_capacity_with_running_pods(&self, pod: &PodShape, nodes: u32, replicas: u32) -> bool {
        self.map_pools(PoolCapacity::with_running_pods).has_capacity(pod, nodes, replicas)
    }

    fn map_pools(&self, change: impl Fn(&PoolCapacity) -> PoolCapacity) -> Self {
        let by_role = self.by_role.as_ref().map(|(leaders, workers)| (change(leaders), change(workers)));
        Self { all: change(&self.all), by_role }
    }

    /// Returns the nodes that accept no new Pods, if more Pods would fit without that restriction. `availability` contains all
    /// nodes of the class.
    pub(crate) fn unschedulable_nodes(
        &self,
        availability: &Availability,
        (pod, nodes, replicas): (&PodShape, u32, u32),
    ) -> Option<UnschedulableNodes> {
        let schedulable = self.map_pools(PoolCapacity::if_schedulable);
        if schedulable.all.slots(pod) <= self.all.slots(pod) {
            return None;
        }
        let eligible: Vec<&ClassNode> = self.all.nodes_of(availability).collect();
        let names = |is_listed: &dyn Fn(&ClassNode) -> bool| {
            eligible.iter().filter(|node| is_listed(node)).map(|node| node.name.clone()).collect()
        };
        Some(UnschedulableNodes {
            eligible: eligible.len(),
            cordoned: names(&|node| node.cordoned && !node.not_ready),
            not_ready: names(&|node| node.not_ready),
            would_suffice: schedulable.has_capacity(pod, nodes, replicas),
        })
    }

    /// Returns for how many Pods of `replicas` replicas the nodes have no room, even if nothing on them is in use.
    pub(crate) fn pods_without_room(&self, pod: &PodShape, nodes: u32, replicas: u32) -> u32 {
        let missing = |pool: &PoolCapacity, pods: u32| pods.saturating_sub(pool.slots_when_empty(pod));
        let missing_by_role = self.by_role.as_ref().map_or(0, |(leaders, workers)| {
            let worker_count = nodes.saturating_sub(1).saturating_mul(replicas);
            missing(leaders, replicas).saturating_add(missing(workers, worker_count))
        });
        missing_by_role.max(missing(&self.all, nodes.saturating_mul(replicas)))
    }
}

/// Returns the eligible nodes of a replica of `nodes` Pods. A single Pod is a leader, so only the leader's nodes are
/// eligible.
pub(crate) fn nodes_for_replica(eligible: EligibleNodes, nodes: u32) -> EligibleNodes {
    let eligible = eligible?;
    Some(match &eligible.by_role {
        Some((leaders, _)) if nodes <= 1 => Arc::new(ReplicaNodes::shared(leaders.clone())),
        _ => eligible,
    })
}
