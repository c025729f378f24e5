//! Specifications of leader and workers of a component.

use api::ome::{Component, NodeGroup};
use decide::{ComponentDemand, PodRole, RuntimeComponent};
use serde_json::{Map, Value, json};

use super::layout_input::ComponentSelection;
use crate::pod;

/// Specifications of one component in the runtime and the service.
pub(super) struct ComponentSpecs {
    pub runtime: Component,
    pub service: Component,
}

/// Parsed placement constraints of leader or workers.
pub(super) struct Placement {
    pub runtime_component: RuntimeComponent,
    pub demand: ComponentDemand,
}

// === impl ComponentSpecs ===

impl ComponentSpecs {
    /// Returns runtime and service, in order of increasing precedence.
    fn layers(&self) -> [&Component; 2] {
        [&self.runtime, &self.service]
    }

    /// Returns whether a replica consists of a leader and workers.
    pub(super) fn has_workers(&self) -> bool {
        self.layers().iter().any(|layer| layer.worker.is_some())
    }

    /// Returns whether workers inherit the leader's container because they have no command of their own.
    pub(super) fn workers_inherit_leader(&self) -> bool {
        let has_command = |layer: &&Component| {
            let runner = layer.worker.as_ref().and_then(|worker| worker.runner.as_ref());
            runner.is_some_and(|runner| ["command", "args"].iter().any(|field| !runner[*field].is_null()))
        };
        !self.layers().iter().any(has_command)
    }

    /// Returns the number of Pods of a replica without a selected class. The service takes precedence over the runtime.
    pub(super) fn nodes(&self) -> u32 {
        if !self.has_workers() {
            return 1;
        }
        let sizes = [&self.service, &self.runtime].map(|layer| layer.worker.as_ref().and_then(|worker| worker.size));
        let workers = sizes.into_iter().flatten().next().unwrap_or(1);
        workers.max(0).unsigned_abs().saturating_add(1)
    }

    /// Returns the specifications for Pods of `role`: `leader` or `worker` overlaid on the common fields.
    pub(super) fn for_role(&self, role: PodRole) -> Self {
        let inherit = self.workers_inherit_leader();
        let resolve = |layer: &Component| {
            let mut component = Component { leader: None, worker: None, ..layer.clone() };
            role_groups(layer, role, inherit).for_each(|group| overlay_group(&mut component, group));
            component
        };
        Self { runtime: resolve(&self.runtime), service: resolve(&self.service) }
    }

    /// Returns the placement constraints for Pods of `role`.
    pub(super) fn placement(&self, selection: &ComponentSelection, role: PodRole) -> Placement {
        let (runtime_component, demand) =
            decide::apply_role_placement(&selection.runtime_component, &selection.demand, role);
        Placement { runtime_component, demand }
    }
}

/// Returns the node groups of `layer` that apply to Pods of `role`, in order of increasing precedence.
fn role_groups(layer: &Component, role: PodRole, inherit: bool) -> impl Iterator<Item = &NodeGroup> {
    let (leader, worker) = match role {
        PodRole::Leader => (true, false),
        PodRole::Worker => (inherit, true),
    };
    layer.leader.iter().filter(move |_| leader).chain(layer.worker.iter().filter(move |_| worker))
}

/// Overlays `group` on the Pod fields of a component. [`Placement`] contains node selector and affinity.
fn overlay_group(component: &mut Component, group: &NodeGroup) {
    if let Some(runner) = &group.runner {
        pod::overlay(component.runner.get_or_insert_with(|| json!({})), runner);
    }
    let mut lists = Map::from_iter([
        ("tolerations".to_owned(), Value::Array(std::mem::take(&mut component.tolerations))),
        ("volumes".to_owned(), Value::Array(std::mem::take(&mut component.volumes))),
    ]);
    let overlay = Map::from_iter([
        ("tolerations".to_owned(), Value::Array(group.tolerations.clone())),
        ("volumes".to_owned(), Value::Array(group.volumes.clone())),
    ]);
    pod::overlay_map(&mut lists, &overlay);
    let mut list = |name: &str| match lists.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    component.tolerations = list("tolerations");
    component.volumes = list("volumes");
    pod::overlay_map(&mut component.pod, &group.pod);
}
