//! Leader and workers of a component: where the Pods of each may run.

use crate::demand::ComponentDemand;
pub use crate::groups::{Group, Groups, Place};
use crate::supply::RuntimeComponent;

/// Runtime and service as the Pods of `place` see them: what stands there over what is for all.
#[must_use]
pub fn seen(offer: &RuntimeComponent, demand: &ComponentDemand, place: Place) -> (RuntimeComponent, ComponentDemand) {
    let starts = |groups: &Groups| groups.worker.as_ref().is_some_and(|worker| worker.starts);
    let twins = !starts(&offer.groups) && !starts(&demand.groups);
    let (mut offer, mut demand) = (offer.clone(), demand.clone());
    for group in offer.groups.clone().at(place, twins) {
        offer.node_selector.extend(group.node_selector.clone());
        offer.affinities.extend(group.affinity.clone());
    }
    for group in demand.groups.clone().at(place, twins) {
        demand.node_selector.extend(group.node_selector.clone());
        demand.affinity = group.affinity.clone().or(demand.affinity);
    }
    (offer, demand)
}
