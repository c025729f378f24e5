//! Accelerators on the nodes that a component may use. Nodes are known by their place among their class's.

use std::sync::Arc;

use crate::nodes::{Availability, ClassNode};

/// What one node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    /// Its place among the class's nodes.
    node: usize,
    total: u32,
    free: u32,
}

/// Some nodes of one class, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    spots: Vec<Spot>,
    /// The nodes' labels are known, and with them what each has.
    seen: bool,
}

impl Room {
    /// The nodes that `accepts` takes, by place and node.
    pub(crate) fn of(known: &Availability, accepts: impl Fn(usize) -> bool) -> Self {
        let nodes = || known.nodes.iter().enumerate().filter(|(place, _)| accepts(*place));
        let spot = |(node, known): (usize, &ClassNode)| {
            (Spot { node, total: known.total, free: known.free }, known.labels.is_some())
        };
        let (spots, seen): (Vec<Spot>, Vec<bool>) = nodes().map(spot).unzip();
        Self { spots, seen: seen.into_iter().all(|seen| seen) }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }

    #[must_use]
    pub fn free(&self) -> u32 {
        self.spots.iter().fold(0, |sum, spot| sum.saturating_add(spot.free))
    }

    #[must_use]
    pub fn total(&self) -> u32 {
        self.spots.iter().fold(0, |sum, spot| sum.saturating_add(spot.total))
    }

    /// Accelerators of the largest node.
    #[must_use]
    pub fn largest_node(&self) -> Option<u32> {
        self.spots.iter().map(|spot| spot.total).max()
    }

    /// The most that one node may have. Where only names and totals are known, nobody knows how these are spread.
    #[must_use]
    pub fn most_on_a_node(&self) -> Option<u32> {
        if self.seen { self.largest_node() } else { Some(self.total()) }
    }

    /// How many groups of `per_node` free accelerators on one node there are.
    fn slots(&self, per_node: u32) -> u32 {
        self.spots.iter().map(|spot| spot.free / per_node.max(1)).sum()
    }

    /// Takes the accelerators of `pods` Pods away, each from the node on which it leaves the least behind.
    pub(crate) fn hold(&mut self, per_node: u32, pods: u32) {
        for _ in 0..pods.min(MOST_HELD) {
            let fitting = self.spots.iter_mut().filter(|spot| spot.free >= per_node.max(1));
            let Some(spot) = fitting.min_by_key(|spot| spot.free) else { return };
            spot.free -= per_node;
        }
    }
}

/// Pods that are accounted for one by one; more than this no fleet has free.
const MOST_HELD: u32 = 10_000;

impl Default for Room {
    fn default() -> Self {
        Self { spots: Vec::new(), seen: true }
    }
}

/// Nodes for the Pods of a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Nodes {
    /// Those that some Pod of it may use.
    pub all: Room,
    /// Where leader and workers have nodes of their own: those of the leader, and those of the workers.
    split: Option<(Room, Room)>,
}

/// Nodes of a class that satisfy the merged placement; `None` if nothing is known of its nodes.
pub type Usable = Option<Arc<Nodes>>;

impl Nodes {
    pub(crate) fn alike(all: Room) -> Self {
        Self { all, split: None }
    }

    /// Of those that leaders and those that workers may use; a node may be among both.
    pub(crate) fn split(leaders: Room, workers: Room) -> Self {
        let is_new = |spot: &&Spot| leaders.spots.iter().all(|known| known.node != spot.node);
        let spots = leaders.spots.iter().chain(workers.spots.iter().filter(is_new)).copied().collect();
        Self { all: Room { spots, seen: leaders.seen && workers.seen }, split: Some((leaders, workers)) }
    }

    fn parts(&self) -> impl Iterator<Item = &Room> {
        let (alike, split) = match &self.split {
            None => (Some(&self.all), None),
            Some((leaders, workers)) => (None, Some([leaders, workers])),
        };
        alike.into_iter().chain(split.into_iter().flatten())
    }

    /// The nodes that limit what one Pod may take: those of the place with the smaller ones.
    #[must_use]
    pub fn smallest(&self) -> &Room {
        self.parts().min_by_key(|part| part.most_on_a_node()).unwrap_or(&self.all)
    }

    /// Whether some Pod of a replica has no node at all.
    #[must_use]
    pub fn lacks_a_place(&self) -> bool {
        self.parts().any(Room::is_empty)
    }

    /// Whether `replicas` of `nodes` Pods with `per_node` accelerators have room now: all together, and those of each
    /// place (Hall's condition for two places).
    #[must_use]
    pub fn have_room(&self, per_node: u32, nodes: u32, replicas: u32) -> bool {
        let has = |part: &Room, pods: u32| part.slots(per_node) >= pods;
        let workers_of = nodes.saturating_sub(1);
        let places = self.split.as_ref().is_none_or(|(leaders, workers)| {
            has(leaders, replicas) && has(workers, workers_of.saturating_mul(replicas))
        });
        places && has(&self.all, nodes.saturating_mul(replicas))
    }
}

/// The nodes that count for a replica of `nodes` Pods: one alone is its leader.
#[must_use]
pub fn for_replica(usable: Usable, nodes: u32) -> Usable {
    let usable = usable?;
    Some(match &usable.split {
        Some((leaders, _)) if nodes <= 1 => Arc::new(Nodes::alike(leaders.clone())),
        _ => usable,
    })
}
