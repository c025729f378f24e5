//! Changes of the Pods or of the port that a route routes to.
//!
//! The Pods of the live route serve until the planned route has Pods that serve in their place: a route has one port, so it
//! changes once, in every component, as many Pods serve on the new port as on the old one.

use std::collections::{BTreeMap, BTreeSet};

use cluster::metadata_field;
use plan::labels::{COMPONENT, LEADER_WORKER_SET_NAME, ROLE_NAME, WORKER_INDEX};
use serde_json::{Map, Value, json};

use super::port_change::PortChange;
use super::route::{restrict, selects, target_port, unrestricted_selector, with_live_target};
use super::serving::{engine_pods, has_port};
use crate::kinds::LEADER_WORKER_SET;
use crate::readiness::is_pod_ready;
use crate::workloads::{GROUP_TEMPLATE_HASH, POD_TEMPLATE_HASH, PlannedWorkload, pod_template};

/// A planned route, the live one, and the Pods of both.
#[derive(Debug)]
pub(super) struct RouteChange<'a> {
    planned: &'a Value,
    live: &'a Value,
    /// The components of the planned route, by name.
    components: BTreeMap<&'a str, ComponentPods<'a>>,
    /// Pods of the live route that the planned one does not reach, of all planned workloads.
    left: Vec<&'a Value>,
}

/// The Pods of one component that serve requests.
#[derive(Debug, Default)]
struct ComponentPods<'a> {
    /// Names of its workloads, except the replicas of roles.
    workloads: Vec<&'a str>,
    /// Pods that the live route reaches, but not the planned one.
    old: Vec<&'a Value>,
    /// Pods that the planned route reaches.
    new: Vec<&'a Value>,
    /// Other Pods, which serve on a third port.
    others: Vec<&'a Value>,
}

// === impl ComponentPods ===

impl ComponentPods<'_> {
    /// Returns whether fewer Pods serve than the live route has.
    fn is_behind(&self) -> bool {
        self.new.is_empty() || self.old.len() > self.new.len()
    }
}

// === impl RouteChange ===

impl<'a> RouteChange<'a> {
    /// Compares a planned route with the live one. `workloads` are the planned workloads, and existing additional replicas.
    pub(super) fn new(
        planned: &'a Value,
        live: &'a Value,
        workloads: impl IntoIterator<Item = &'a PlannedWorkload>,
    ) -> RouteChange<'a> {
        let target = |route| (unrestricted_selector(route, planned), target_port(route));
        let ((live_selector, live_port), (selector, port)) = (target(live), target(planned));
        let reaches = |(selector, port): (&Map<String, Value>, &Value), pod: &Value| {
            selects(selector, &pod["metadata"]["labels"]) && has_port(pod, port)
        };
        let mut change = RouteChange { planned, live, components: BTreeMap::new(), left: Vec::new() };
        for workload in workloads {
            let is_planned = selects_pods_of(&selector, &workload.planned) && workload.planned["spec"]["replicas"] != 0;
            let mut component = match is_planned {
                true => Some(change.components.entry(component_name(&workload.planned)).or_default()),
                false => None,
            };
            let is_replica = workload.planned["metadata"]["labels"][ROLE_NAME].is_string();
            if let Some(component) = component.as_mut().filter(|_| !is_replica) {
                component.workloads.push(metadata_field(&workload.planned, "name"));
            }
            for pod in workload.live.iter().flat_map(engine_pods) {
                let is_new = reaches((&selector, port), pod);
                let is_old = !is_new && reaches((&live_selector, live_port), pod);
                change.left.extend(is_old.then_some(pod));
                let Some(component) = component.as_mut().filter(|_| is_pod_ready(pod)) else { continue };
                match () {
                    () if is_new => component.new.push(pod),
                    () if is_old => component.old.push(pod),
                    () => component.others.push(pod),
                }
            }
        }
        change
    }

    /// Returns whether the live route has the planned Pods and the planned port.
    fn is_complete(&self) -> bool {
        unrestricted_selector(self.live, self.planned) == unrestricted_selector(self.planned, self.planned)
            && target_port(self.live) == target_port(self.planned)
    }

    /// Returns whether the Pods of the live route serve until those of the planned one do.
    pub(super) fn is_retained(&self) -> bool {
        !self.is_complete() && !self.left.is_empty() && self.components.values().any(ComponentPods::is_behind)
    }

    /// Returns the route to apply. It is restricted to the Pods that serve on its port, as far as a label distinguishes them.
    pub(super) fn route(&self) -> Value {
        let is_retained = self.is_retained();
        let mut route = if is_retained { with_live_target(self.planned, self.live) } else { self.planned.clone() };
        let components = || self.components.values();
        let (old, new) = (components().flat_map(|pods| &pods.old), components().flat_map(|pods| &pods.new));
        let (old, new): (Vec<&Value>, Vec<&Value>) = (old.copied().collect(), new.copied().collect());
        let (routed, other) = if is_retained { (old, new) } else { (new, old) };
        let mut other = other.into_iter().chain(components().flat_map(|pods| pods.others.iter().copied()));
        // Pods of another component are not selected. New Pods may become ready while no operator runs.
        let selector = unrestricted_selector(&route, self.planned);
        let mut is_mixed = || other.any(|pod| selects(&selector, &pod["metadata"]["labels"]));
        let labels = (is_retained || is_mixed()).then(|| distinguishing_labels(&routed)).flatten();
        restrict(&mut route, self.planned, labels.unwrap_or_default());
        route
    }

    /// Returns the port change of each workload that is the only one of its component.
    pub(super) fn port_changes(&self) -> impl Iterator<Item = PortChange> {
        let has_switched = self.is_complete();
        self.components.values().filter_map(move |component| match component.workloads.as_slice() {
            [workload] if !component.old.is_empty() || !component.others.is_empty() => Some(PortChange {
                workload: (*workload).to_owned(),
                old: component.old.len(),
                new: component.new.len(),
                has_switched,
            }),
            _ => None,
        })
    }

    /// Returns the LeaderWorkerSets of the last Pods of the live route, one of each component whose other Pods serve on the
    /// planned port: they serve until the route has changed.
    pub(super) fn last_sets(&self) -> BTreeSet<String> {
        if self.is_complete() {
            return BTreeSet::new();
        }
        let components = self.components.values().filter(|component| !component.new.is_empty());
        let names = components.filter_map(|component| {
            component.old.last()?["metadata"]["labels"][LEADER_WORKER_SET_NAME].as_str().map(str::to_owned)
        });
        names.collect()
    }
}

/// Returns whether a selector matches the Pods of a planned workload that serve requests.
fn selects_pods_of(selector: &Map<String, Value>, workload: &Value) -> bool {
    let mut labels = pod_template(workload)["metadata"]["labels"].clone();
    if workload["kind"] == LEADER_WORKER_SET.kind {
        labels[WORKER_INDEX] = json!("0");
    }
    selects(selector, &labels)
}

/// Returns the role or the component of a workload.
fn component_name(workload: &Value) -> &str {
    let labels = &workload["metadata"]["labels"];
    labels[ROLE_NAME].as_str().or_else(|| labels[COMPONENT].as_str()).unwrap_or_default()
}

/// Returns the labels that only these Pods have: those of the Pod template of a Deployment with the most of them, or those of the
/// LeaderWorkerSet of all of them and of its template with the most of them.
fn distinguishing_labels(pods: &[&Value]) -> Option<Map<String, Value>> {
    if let Some(labels) = template_labels(pods.iter().copied()) {
        return Some(labels);
    }
    let set = |pod: &Value| pod["metadata"]["labels"][LEADER_WORKER_SET_NAME].as_str().map(str::to_owned);
    let name = set(pods.first()?)?;
    if pods.iter().any(|pod| set(pod).as_ref() != Some(&name)) {
        return None;
    }
    let mut labels = set_labels(&json!(name));
    labels.extend(most_common_label(pods.iter().copied(), GROUP_TEMPLATE_HASH));
    Some(labels)
}

/// Returns the labels of the leaders of a LeaderWorkerSet.
pub(super) fn set_labels(name: &Value) -> Map<String, Value> {
    Map::from_iter([(LEADER_WORKER_SET_NAME.to_owned(), name.clone()), (WORKER_INDEX.to_owned(), json!("0"))])
}

/// Returns the labels of the template of a Deployment with the most Pods among `pods`.
pub(super) fn template_labels<'a>(pods: impl IntoIterator<Item = &'a Value>) -> Option<Map<String, Value>> {
    most_common_label(pods, POD_TEMPLATE_HASH).map(|label| Map::from_iter([label]))
}

/// Returns the label with the value that most of the Pods have.
fn most_common_label<'a>(pods: impl IntoIterator<Item = &'a Value>, label: &str) -> Option<(String, Value)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for value in pods.into_iter().filter_map(|pod| pod["metadata"]["labels"][label].as_str()) {
        let count = counts.entry(value).or_default();
        *count = count.saturating_add(1);
    }
    let (value, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some((label.to_owned(), json!(value)))
}
