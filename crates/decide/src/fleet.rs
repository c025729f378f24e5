//! Nodes that a component may use, class by class, and what of them earlier choices hold.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::demand::ComponentDemand;
use crate::eligibility::Case;
use crate::inventory::{Availability, ClassNode};
use crate::merge::placement;
use crate::places::{self, Place};
use crate::supply::{Class, RuntimeComponent, Supply};

/// Nodes of a class that satisfy the merged placement; `None` if nothing is known of its nodes.
pub type Usable = Option<Rc<Nodes>>;

/// Nodes for the Pods of a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Nodes {
    /// Those that some Pod of it may use.
    pub all: Availability,
    /// Where leader and workers have nodes of their own: those of the leader, and those of the workers.
    split: Option<(Availability, Availability)>,
}

impl Nodes {
    fn alike(all: Availability) -> Self {
        Self { all, split: None }
    }

    /// Of those that leaders and those that workers may use; a node may be among both.
    fn split(leaders: Availability, workers: Availability) -> Self {
        let named: BTreeSet<&str> = leaders.nodes.iter().map(|node| node.name.as_str()).collect();
        let others = workers.nodes.iter().filter(|node| !named.contains(node.name.as_str())).cloned();
        let nodes = leaders.nodes.iter().cloned().chain(others).collect();
        Self { all: Availability { nodes }, split: Some((leaders, workers)) }
    }

    fn parts(&self) -> impl Iterator<Item = &Availability> {
        let (alike, split) = match &self.split {
            None => (Some(&self.all), None),
            Some((leaders, workers)) => (None, Some([leaders, workers])),
        };
        alike.into_iter().chain(split.into_iter().flatten())
    }

    /// The nodes that limit what one Pod may take: those of the place with the smaller ones.
    #[must_use]
    pub fn smallest(&self) -> &Availability {
        self.parts().min_by_key(|part| part.most_on_a_node()).unwrap_or(&self.all)
    }

    /// Whether some Pod of a replica has no node at all.
    #[must_use]
    pub fn lacks_a_place(&self) -> bool {
        self.parts().any(|part| part.nodes.is_empty())
    }

    /// Whether `replicas` of `nodes` Pods with `per_node` accelerators have room now: all together, and those of each
    /// place (Hall's condition for two places).
    #[must_use]
    pub fn have_room(&self, per_node: u32, nodes: u32, replicas: u32) -> bool {
        let has = |part: &Availability, pods: u32| part.slots(per_node) >= pods;
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
        Some((leaders, _)) if nodes <= 1 => Rc::new(Nodes::alike(leaders.clone())),
        _ => usable,
    })
}

/// The classes' nodes for one component of one service. Most runtimes say nothing about placement, so that their answer
/// is the same and worked out once.
pub struct Fleet<'a> {
    held: Vec<Held<'a>>,
    plain: Vec<OnceCell<Usable>>,
}

/// Accelerators that another component of the same replica set has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    pub class: &'a str,
    pub per_node: u32,
    pub pods: u32,
}

impl<'a> Fleet<'a> {
    #[must_use]
    pub fn new(supply: &Supply, held: Vec<Held<'a>>) -> Self {
        Self { held, plain: supply.classes.iter().map(|_| OnceCell::new()).collect() }
    }

    /// Nodes of the class at `index` that the component may use.
    #[must_use]
    pub fn usable(&self, case: &Case<'_>, index: usize, class: &Class) -> Usable {
        let offer = case.offer;
        let plain = offer.node_selector.is_empty() && offer.affinities.is_empty() && !offer.groups.are_placed();
        match self.plain.get(index).filter(|_| plain) {
            Some(known) => known.get_or_init(|| self.placed(case, class)).clone(),
            None => self.placed(case, class),
        }
    }

    fn placed(&self, case: &Case<'_>, class: &Class) -> Usable {
        let known = class.availability.as_ref()?;
        let apart = case.offer.groups.are_placed() || case.component.groups.are_placed();
        Some(Rc::new(match apart {
            false => Nodes::alike(self.accepted(class, known, case.offer, case.component)),
            true => {
                let [leaders, workers] = [Place::Leader, Place::Worker].map(|place| {
                    let (offer, component) = places::seen(case.offer, case.component, place);
                    self.accepted(class, known, &offer, &component)
                });
                Nodes::split(leaders, workers)
            }
        }))
    }

    /// The nodes that the merged placement accepts, less what earlier choices hold.
    fn accepted(
        &self,
        class: &Class,
        known: &Availability,
        offer: &RuntimeComponent,
        component: &ComponentDemand,
    ) -> Availability {
        let placement = placement::merge(class, offer, component);
        let fits = |node: &&ClassNode| node.labels.as_ref().is_none_or(|labels| placement.accepts(&node.name, labels));
        let mut accepted = Availability { nodes: known.nodes.iter().filter(fits).cloned().collect() };
        for held in self.held.iter().filter(|held| held.class == class.name) {
            hold(&mut accepted, held.per_node, held.pods);
        }
        accepted
    }
}

/// Takes the accelerators of `pods` Pods away, each from the node on which it leaves the least behind.
pub fn hold(availability: &mut Availability, per_node: u32, pods: u32) {
    for _ in 0..pods.min(MOST_HELD) {
        let fitting = availability.nodes.iter_mut().filter(|node| node.free >= per_node.max(1));
        let Some(node) = fitting.min_by_key(|node| node.free) else { return };
        node.free -= per_node;
    }
}

/// Pods that are accounted for one by one; more than this no fleet has free.
const MOST_HELD: u32 = 10_000;
