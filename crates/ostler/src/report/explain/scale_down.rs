//! Which other services must run fewer replicas so that all pending Pods of a service can be scheduled.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::{Quantity, pod};
use embedded::SchedulingSnapshot;
use plan::labels;
use serde_json::{Value, json};

use super::deletions::{Workload, can_schedule_all, candidates};
use super::fewer_replicas::{Replicas, component_field};
use super::fields::text;

/// Maximum number of alternatives.
const MAX_ALTERNATIVES: usize = 2;
/// Maximum number of components whose reduction is tried.
const MAX_CANDIDATES: usize = 64;

/// A component or role that runs fewer replicas, at least one.
#[derive(Debug, Clone)]
pub(super) struct ScaleDown {
    service: Workload,
    /// Name of the component or role.
    component: String,
    /// The replicas in the form of `ostler scale`: `2`, or `1..2` for an autoscaler.
    assignment: String,
    replicas: usize,
    remaining_replicas: usize,
    /// Names of the Pods that stop.
    stopped_pods: Vec<String>,
    resource: String,
}

/// The replicas of a component or role.
struct ScalableComponent<'a> {
    service: &'a Workload,
    name: String,
    /// Replicas of an `ome.io` component, with its autoscaler; `None` for roles.
    bounds: Option<Replicas>,
    /// The Pods of each replica, in no particular order.
    replicas: Vec<Vec<&'a Arc<Value>>>,
}

/// Which of several ready replicas stops first. Kubernetes prefers nodes with several Pods of the ReplicaSet; the embedded
/// controllers do not.
#[derive(Clone, Copy)]
enum Preference {
    Youngest,
    SharedNode,
}

// === impl ScaleDown ===

impl ScaleDown {
    /// Returns `object` after the reduction: `None` for a Pod that stops, and the service with fewer replicas in its status.
    pub(super) fn apply(&self, object: &Value) -> Option<Value> {
        let is_pod = object["kind"] == "Pod" && Workload::from_pod(object) == self.service;
        if is_pod && self.stopped_pods.iter().any(|name| name == text(object, "/metadata/name")) {
            return None;
        }
        let mut object = object.clone();
        if self.service.is_service(&object) && object["status"]["components"][&self.component].is_object() {
            object["status"]["components"][&self.component]["replicas"] = json!(self.remaining_replicas);
        }
        Some(object)
    }
}

impl std::fmt::Display for ScaleDown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { service, component, assignment, replicas, remaining_replicas, stopped_pods, resource } = self;
        let (object, namespace) = (service.reference(), service.namespace());
        let pods = match stopped_pods.len() {
            1 => "1 Pod that uses".to_owned(),
            count => format!("{count} Pods that use"),
        };
        write!(
            f,
            "reduce {namespace}/{} from {replicas} to {remaining_replicas} {component} replicas: \
             `ostler scale {object} {component}={assignment} -n {namespace}`   (stops {pods} {resource})",
            service.name
        )
    }
}

/// Returns up to two alternatives, each of which lets all of `pods` run at the same time: a component of another service with
/// fewer replicas, but at least one. Reductions that respect the minimum of the component precede the others, and smaller
/// ones precede larger ones. `services` contains the `ome.io` services.
pub(super) fn sufficient_scale_downs(
    pods: &[&Value],
    snapshot: &SchedulingSnapshot,
    services: &[Value],
) -> Vec<ScaleDown> {
    let Some((resource, mut users)) = candidates(pods, snapshot) else { return Vec::new() };
    users.sort_by(|(a, used_a), (b, used_b): &(Workload, Quantity)| used_a.cmp(used_b).then_with(|| a.cmp(b)));
    let components = users.iter().flat_map(|(service, _)| components(service, snapshot, services));
    let alternative = |component: ScalableComponent<'_>| {
        let count = component.replicas.len();
        let remaining = (1..count).rev().find(|remaining| component.suffices(pods, snapshot, *remaining))?;
        let stopped = component.stopped_pods(remaining, Preference::Youngest);
        let assignment = match component.bounds {
            None => remaining.to_string(),
            Some(old) => old.reduced_to(remaining as u64)?.assignment(old.min < old.max),
        };
        let is_below_minimum = component.bounds.is_none_or(|bounds| (remaining as u64) < bounds.min);
        let scale_down = ScaleDown {
            service: component.service.clone(),
            component: component.name,
            assignment,
            replicas: count,
            remaining_replicas: remaining,
            stopped_pods: stopped.iter().map(|pod| text(pod, "/metadata/name").to_owned()).collect(),
            resource: resource.clone(),
        };
        Some((is_below_minimum, scale_down))
    };
    let mut alternatives: Vec<(bool, ScaleDown)> = components.take(MAX_CANDIDATES).filter_map(alternative).collect();
    alternatives.sort_by_key(|(is_below_minimum, scale_down)| (*is_below_minimum, scale_down.stopped_pods.len()));
    alternatives.into_iter().take(MAX_ALTERNATIVES).map(|(_, scale_down)| scale_down).collect()
}

/// Returns the components or roles of a service that have Pods.
fn components<'a>(
    service: &'a Workload,
    snapshot: &'a SchedulingSnapshot,
    services: &[Value],
) -> Vec<ScalableComponent<'a>> {
    let mut replicas: BTreeMap<String, BTreeMap<String, Vec<&Arc<Value>>>> = BTreeMap::new();
    let is_own = |pod: &&Arc<Value>| pod::is_active(pod) && Workload::from_pod(pod) == *service;
    for pod in snapshot.pods.iter().filter(is_own) {
        let labels = &pod["metadata"]["labels"];
        let component = labels[labels::ROLE_NAME].as_str().or_else(|| labels[labels::COMPONENT].as_str());
        let groups = [labels::REPLICA_INDEX, labels::GROUP_INDEX].iter().find_map(|label| labels[*label].as_str());
        let replica = groups.map_or_else(|| text(pod, "/metadata/name").to_owned(), |index| format!("{index:0>10}"));
        let Some(component) = component else { continue };
        replicas.entry(component.to_owned()).or_default().entry(replica).or_default().push(pod);
    }
    let object = services.iter().find(|object| service.is_service(object));
    let component = |(name, replicas): (String, BTreeMap<String, Vec<&'a Arc<Value>>>)| {
        let bounds = match service.is_role_based() {
            true => None,
            false => Some(Replicas::of_component(&object?["spec"][component_field(object?, &name)])),
        };
        Some(ScalableComponent { service, name, bounds, replicas: replicas.into_values().collect() })
    };
    replicas.into_iter().filter_map(component).collect()
}

// === impl ScalableComponent ===

impl<'a> ScalableComponent<'a> {
    /// Returns whether all of `pods` can run once `remaining` replicas are left, whichever of them Kubernetes stops.
    fn suffices(&self, pods: &[&Value], snapshot: &SchedulingSnapshot, remaining: usize) -> bool {
        [Preference::Youngest, Preference::SharedNode].into_iter().all(|preference| {
            let stopped = self.stopped_pods(remaining, preference);
            let is_stopped = |pod: &Arc<Value>| stopped.iter().any(|other| Arc::ptr_eq(pod, other));
            let pods_left = snapshot.pods.iter().filter(|pod| !is_stopped(pod)).cloned().collect();
            can_schedule_all(pods, &SchedulingSnapshot { pods: pods_left, ..snapshot.clone() })
        })
    }

    /// Returns the Pods that stop if `remaining` replicas are left: replicas without node or that are not ready first. The
    /// replicas of gangs are ordered by their index.
    fn stopped_pods(&self, remaining: usize, preference: Preference) -> Vec<&'a Arc<Value>> {
        let mut replicas: Vec<&Vec<&Arc<Value>>> = self.replicas.iter().collect();
        let is_gang = |replica: &[&Arc<Value>]| {
            let labels = replica.first().map(|pod| &pod["metadata"]["labels"]);
            labels.is_some_and(|labels| {
                [labels::REPLICA_INDEX, labels::GROUP_INDEX].iter().any(|label| labels[*label].is_string())
            })
        };
        let node = |replica: &[&Arc<Value>]| replica.first().map(|pod| text(pod, "/spec/nodeName").to_owned());
        let shared = |replica: &[&Arc<Value>]| match preference {
            Preference::Youngest => 0,
            Preference::SharedNode => self.replicas.iter().filter(|other| node(other) == node(replica)).count(),
        };
        let order = |replica: &[&Arc<Value>]| {
            let has_node = replica.iter().all(|pod| !text(pod, "/spec/nodeName").is_empty());
            let is_ready = replica.iter().all(|pod| pod::is_ready(pod));
            let created = replica.iter().map(|pod| text(pod, "/metadata/creationTimestamp").to_owned()).max();
            (has_node, is_ready, Reverse(shared(replica)), Reverse(created))
        };
        match replicas.first().is_some_and(|replica| is_gang(replica)) {
            true => replicas.reverse(),
            false => replicas.sort_by_cached_key(|replica| order(replica)),
        }
        let count = replicas.len().saturating_sub(remaining);
        replicas.into_iter().take(count).flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn node(name: &str) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"name": name},
            "status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    /// Returns an active Pod with `accelerators` of a service. Names of role-based services start with `role-`.
    fn pod(service: &str, node: Option<&str>, accelerators: u32, index: usize) -> Value {
        let labels = match service.starts_with("role-") {
            true => json!({"fusioninfer.io/service": service, "fusioninfer.io/role-name": "decode",
                "fusioninfer.io/replica-index": index.to_string()}),
            false => json!({"ome.io/inferenceservice": service, "component": "engine"}),
        };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{service}-{index}"), "namespace": "ns", "labels": labels,
                "creationTimestamp": format!("2026-01-01T00:00:{index:02}Z")},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": accelerators}}}]},
            "status": {"phase": if node.is_some() { "Running" } else { "Pending" },
                "conditions": [{"type": "Ready", "status": if node.is_some() { "True" } else { "False" }}]},
        })
    }

    fn service(name: &str, min: u32, max: u32) -> Value {
        json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name, "namespace": "ns"},
            "spec": {"engine": {"minReplicas": min, "maxReplicas": max}},
            "status": {"components": {"engine": {"replicas": max}}}})
    }

    /// Nodes `a` and `b` with eight accelerators each, running Pods as `service:node:accelerators`, the bounds of `ome.io`
    /// services, and a pending Pod of `chat` with these accelerators.
    #[rstest]
    #[case::fixed("sum:a:8 sum:b:8", &[("sum", 2, 2)], 8, &["ome.io/sum engine=1"])]
    #[case::as_many_replicas_as_possible_remain(
        "sum:a:4 sum:a:4 sum:b:4 sum:b:4", &[("sum", 4, 4)], 4, &["ome.io/sum engine=3"]
    )]
    #[case::autoscaled("sum:a:8 sum:b:8", &[("sum", 1, 4)], 8, &["ome.io/sum engine=1..1"])]
    #[case::bounds_first(
        "fixed:a:2 fixed:a:2 fixed:a:4 scaled:b:4 scaled:b:4", &[("fixed", 3, 3), ("scaled", 1, 3)], 4,
        &["ome.io/scaled engine=1..1", "ome.io/fixed engine=2"]
    )]
    #[case::single_replica("sum:a:8 one:b:8", &[("sum", 1, 1), ("one", 1, 1)], 8, &[])]
    #[case::larger_than_a_node("sum:a:8 sum:b:8", &[("sum", 2, 2)], 16, &[])]
    #[case::own_replicas("chat:a:8 chat:b:8", &[("chat", 3, 3)], 8, &[])]
    #[case::roles("role-pd:a:8 role-pd:b:8", &[], 8, &["fusioninfer.io/role-pd decode=1"])]
    #[case::unreadable_service("sum:a:8 sum:b:8", &[], 8, &[])]
    // The youngest Pod leaves node b, but Kubernetes might stop one of those that share node a.
    #[case::depends_on_the_stopped_pod(
        "sum:a:4 sum:a:4 sum:b:8", &[("sum", 3, 3)], 8, &["ome.io/sum engine=1"]
    )]
    fn proposes_fewer_replicas(
        #[case] running: &str,
        #[case] services: &[(&str, u32, u32)],
        #[case] pending: u32,
        #[case] expected: &[&str],
    ) {
        let running = running.split(' ').enumerate().map(|(index, text)| {
            let fields: Vec<&str> = text.split(':').collect();
            Arc::new(pod(fields[0], Some(fields[1]), fields[2].parse().unwrap(), index))
        });
        let snapshot = SchedulingSnapshot {
            nodes: ["a", "b"].map(node).into(),
            pods: running.collect(),
            ..SchedulingSnapshot::default()
        };
        let services: Vec<Value> = services.iter().map(|(name, min, max)| service(name, *min, *max)).collect();
        let scale_downs = sufficient_scale_downs(&[&pod("chat", None, pending, 99)], &snapshot, &services);
        let commands = scale_downs.iter().map(|scale_down| {
            let text = scale_down.to_string();
            let command = text.split('`').nth(1).unwrap().strip_prefix("ostler scale inferenceservice.").unwrap();
            command.strip_suffix(" -n ns").unwrap().to_owned()
        });
        assert_eq!(commands.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn describes_and_applies_the_reduction() {
        let pods = ["a", "b"].iter().enumerate().map(|(index, node)| Arc::new(pod("sum", Some(node), 8, index)));
        let snapshot = SchedulingSnapshot {
            nodes: ["a", "b"].map(node).into(),
            pods: pods.collect(),
            ..SchedulingSnapshot::default()
        };
        let services = [service("sum", 2, 2)];
        let scale_downs = sufficient_scale_downs(&[&pod("chat", None, 8, 9)], &snapshot, &services);
        let [scale_down] = scale_downs.as_slice() else { panic!("{scale_downs:?}") };
        assert_eq!(
            scale_down.to_string(),
            "reduce ns/sum from 2 to 1 engine replicas: `ostler scale inferenceservice.ome.io/sum engine=1 -n ns`   \
             (stops 1 Pod that uses nvidia.com/gpu)"
        );
        assert_eq!(scale_down.apply(&services[0]).unwrap()["status"]["components"]["engine"]["replicas"], 1);
        assert_eq!(scale_down.apply(&snapshot.pods[0]).as_ref(), Some(&*snapshot.pods[0]));
        assert_eq!(scale_down.apply(&snapshot.pods[1]), None);
    }
}
