//! Nodes that a component may use, class by class, and what of them earlier choices hold.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::eligibility::Case;
use crate::inventory::{Availability, ClassNode};
use crate::merge::placement;
use crate::supply::{Class, Supply};

/// Nodes of a class that satisfy the merged placement; `None` if nothing is known of its nodes.
pub type Usable = Option<Rc<Availability>>;

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
        let plain = case.offer.node_selector.is_empty() && case.offer.affinities.is_empty();
        match self.plain.get(index).filter(|_| plain) {
            Some(known) => known.get_or_init(|| self.placed(case, class)).clone(),
            None => self.placed(case, class),
        }
    }

    fn placed(&self, case: &Case<'_>, class: &Class) -> Usable {
        let known = class.availability.as_ref()?;
        let placement = placement::merge(class, case.offer, case.component);
        let fits = |node: &&ClassNode| node.labels.as_ref().is_none_or(|labels| placement.accepts(&node.name, labels));
        let nodes = known.nodes.iter().filter(fits).cloned().collect();
        let mut usable = Availability { nodes };
        for held in self.held.iter().filter(|held| held.class == class.name) {
            hold(&mut usable, held.per_node, held.pods);
        }
        Some(Rc::new(usable))
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
