//! Nodes that a component may use, class by class, and what of them earlier choices hold.

use std::sync::{Arc, OnceLock};

use crate::demand::ComponentDemand;
use crate::merge::placement::{self, OfClass, Wanted};
use crate::places::{self, Place};
use crate::room::{Nodes, Room, Usable};
use crate::supply::{Class, RuntimeComponent};

/// The classes' nodes for one component of one service. What no runtime changes is worked out once.
#[derive(Debug)]
pub struct Fleet {
    grounds: Vec<OnceLock<Ground>>,
}

/// Accelerators that another component of the same replica set has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    pub class: &'a str,
    pub per_node: u32,
    pub pods: u32,
}

/// One class's nodes before any runtime says where it may run.
#[derive(Debug)]
struct Ground {
    of_class: OfClass,
    /// Whether the class's own terms accept the node, by place.
    within_terms: Vec<bool>,
    whole: Usable,
    /// Where runtimes say nothing of placement, which are most.
    plain: Usable,
}

impl Fleet {
    #[must_use]
    pub fn new(classes: usize) -> Self {
        Self { grounds: std::iter::repeat_with(OnceLock::new).take(classes).collect() }
    }

    /// Nodes of the class at `index` that Pods of `offer` and `component` may use, less what is `held` of it.
    #[must_use]
    pub fn usable(
        &self,
        (index, class): (usize, &Class),
        offer: &RuntimeComponent,
        component: &ComponentDemand,
        held: &[Held<'_>],
    ) -> Usable {
        let ground = self.ground(index, class, component)?;
        let plain = offer.node_selector.is_empty() && offer.affinities.is_empty() && !offer.groups.are_placed();
        let taken: Vec<&Held<'_>> = held.iter().filter(|held| held.class == class.name).collect();
        if plain && taken.is_empty() {
            return ground.plain.clone();
        }
        Some(Arc::new(ground.placed(class, offer, component, &taken)))
    }

    /// All nodes of the class; `None` if nothing is known of them.
    #[must_use]
    pub fn whole(&self, index: usize, class: &Class, component: &ComponentDemand) -> Usable {
        self.ground(index, class, component)?.whole.clone()
    }

    fn ground(&self, index: usize, class: &Class, component: &ComponentDemand) -> Option<&Ground> {
        class.availability.as_ref()?;
        self.grounds.get(index).map(|ground| ground.get_or_init(|| Ground::new(class, component)))
    }
}

// === impl Ground ===

impl Ground {
    fn new(class: &Class, component: &ComponentDemand) -> Self {
        let of_class = placement::of_class(class);
        let nodes = class.availability.iter().flat_map(|known| &known.nodes);
        let within_terms = nodes.map(|node| of_class.has(node)).collect();
        let whole = class.availability.as_ref().map(|known| Arc::new(Nodes::alike(Room::of(known, |_| true))));
        let mut ground = Self { of_class, within_terms, whole, plain: None };
        ground.plain = Some(Arc::new(ground.placed(class, &RuntimeComponent::default(), component, &[])));
        ground
    }

    fn placed(
        &self,
        class: &Class,
        offer: &RuntimeComponent,
        component: &ComponentDemand,
        held: &[&Held<'_>],
    ) -> Nodes {
        if !offer.groups.are_placed() && !component.groups.are_placed() {
            return Nodes::alike(self.accepted(class, offer, component, held));
        }
        let [leaders, workers] = [Place::Leader, Place::Worker].map(|place| {
            let (offer, component) = places::seen(offer, component, place);
            self.accepted(class, &offer, &component, held)
        });
        Nodes::split(leaders, workers)
    }

    /// The nodes that the merged placement accepts, less what earlier choices hold.
    fn accepted(
        &self,
        class: &Class,
        offer: &RuntimeComponent,
        component: &ComponentDemand,
        held: &[&Held<'_>],
    ) -> Room {
        let Some(known) = &class.availability else { return Room::default() };
        let wanted = Wanted::new(&self.of_class, offer, component);
        let within = |place: usize| self.within_terms.get(place).is_some_and(|within| *within);
        let fits = |place: usize| within(place) && known.nodes.get(place).is_some_and(|node| wanted.accepts(node));
        let mut accepted = Room::of(known, fits);
        held.iter().for_each(|held| accepted.hold(held.per_node, held.pods));
        accepted
    }
}
