//! Leader and workers of a component: which parts of runtime and service are for which Pods of a replica.

use api::ome::{Component, NodeGroup};
use decide::demand::ComponentDemand;
use decide::places;
use decide::supply::RuntimeComponent;
use serde_json::{Map, Value, json};

use super::Granted;
use crate::launch::native::Place;
use crate::pod;

/// One component as the runtime and as the service state it.
pub(super) struct Stated {
    pub runtime: Component,
    pub service: Component,
}

/// Where the Pods of a place may run, as `decide` reads it.
pub(super) struct Placement {
    pub offer: RuntimeComponent,
    pub demand: ComponentDemand,
}

impl Stated {
    fn layers(&self) -> [&Component; 2] {
        [&self.runtime, &self.service]
    }

    /// Whether a replica is a leader with workers, on however many nodes.
    pub(super) fn has_workers(&self) -> bool {
        self.layers().iter().any(|layer| layer.worker.is_some())
    }

    /// Whether workers are what the leader is, told of their place: nobody states what they start.
    pub(super) fn workers_are_twins(&self) -> bool {
        let starts = |layer: &&Component| {
            let runner = layer.worker.as_ref().and_then(|worker| worker.runner.as_ref());
            runner.is_some_and(|runner| ["command", "args"].iter().any(|line| !runner[*line].is_null()))
        };
        !self.layers().iter().any(starts)
    }

    /// Pods of one replica where no class decides it: the service's word counts more.
    pub(super) fn nodes(&self) -> u32 {
        if !self.has_workers() {
            return 1;
        }
        let sizes = [&self.service, &self.runtime].map(|layer| layer.worker.as_ref().and_then(|worker| worker.size));
        let workers = sizes.into_iter().flatten().next().unwrap_or(1);
        workers.max(0).unsigned_abs().saturating_add(1)
    }

    /// The component as the Pods of `place` see it: what stands at `leader` or `worker` over what is for all.
    pub(super) fn at(&self, place: Place) -> Self {
        let twins = self.workers_are_twins();
        let seen = |layer: &Component| {
            let mut seen = Component { leader: None, worker: None, ..layer.clone() };
            groups(layer, place, twins).for_each(|group| lay(&mut seen, group));
            seen
        };
        Self { runtime: seen(&self.runtime), service: seen(&self.service) }
    }

    /// Where the Pods of `place` may run.
    pub(super) fn placement(&self, granted: &Granted, place: Place) -> Placement {
        let place = match place {
            Place::Leader => places::Place::Leader,
            Place::Worker => places::Place::Worker,
        };
        let (offer, demand) = places::seen(&granted.offer, &granted.demand, place);
        Placement { offer, demand }
    }
}

/// What one layer states for the Pods of `place` alone, the stronger last.
fn groups(layer: &Component, place: Place, twins: bool) -> impl Iterator<Item = &NodeGroup> {
    let (leader, worker) = match place {
        Place::Leader => (true, false),
        Place::Worker => (twins, true),
    };
    layer.leader.iter().filter(move |_| leader).chain(layer.worker.iter().filter(move |_| worker))
}

/// `group` over the fields that it shares with a component, by the rules of pod fields. Node selector and affinity are
/// [`Placement`]'s.
fn lay(seen: &mut Component, group: &NodeGroup) {
    if let Some(runner) = &group.runner {
        pod::overlay(seen.runner.get_or_insert_with(|| json!({})), runner);
    }
    let mut lists = Map::from_iter([
        ("tolerations".to_owned(), Value::Array(std::mem::take(&mut seen.tolerations))),
        ("volumes".to_owned(), Value::Array(std::mem::take(&mut seen.volumes))),
    ]);
    let over = Map::from_iter([
        ("tolerations".to_owned(), Value::Array(group.tolerations.clone())),
        ("volumes".to_owned(), Value::Array(group.volumes.clone())),
    ]);
    pod::overlay_map(&mut lists, &over);
    let mut list = |name: &str| match lists.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    seen.tolerations = list("tolerations");
    seen.volumes = list("volumes");
    pod::overlay_map(&mut seen.pod, &group.pod);
}
