//! Which services must be deleted so that all pending Pods of another service can be scheduled.
//!
//! A deletion is proposed only if nothing else that was found works: neither a change of the service, nor nodes to uncordon or
//! to add, nor fewer replicas of this or another service. Nodes can be added wherever Pods do not require certain nodes, so
//! in practice only Pods that are bound to the name or a volume of a full node lead to a deletion.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::Quantity;
use cluster::Kind;
use embedded::{SchedulingSnapshot, UnschedulableReason, filter_nodes};
use operator::kinds;
use serde_json::Value;

use super::fields::text;
use super::service_pods::service_of;

/// Maximum number of alternatives.
const MAX_ALTERNATIVES: usize = 2;
/// Maximum number of services whose deletion is tried.
const MAX_CANDIDATES: usize = 64;

/// A service, or a Pod without a service, that uses resources of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Workload {
    kind: WorkloadKind,
    namespace: String,
    pub(super) name: String,
}

/// The kind of a [`Workload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WorkloadKind {
    /// A service of this kind.
    Service(Kind),
    /// A Pod without a service.
    Pod,
}

/// Services whose deletion frees enough of a resource. All of them must be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deletion {
    pub(super) services: Vec<Workload>,
    resource: String,
    freed_quantity: Quantity,
}

// === impl Workload ===

impl Workload {
    /// Returns the service of the Pod, or the Pod itself.
    pub(super) fn from_pod(pod: &Value) -> Self {
        let (kind, name) = match service_of(pod) {
            Some((kind, name)) => (WorkloadKind::Service(kind), name),
            None => (WorkloadKind::Pod, text(pod, "/metadata/name")),
        };
        Self { kind, namespace: text(pod, "/metadata/namespace").to_owned(), name: name.to_owned() }
    }

    /// Returns whether `object` is this service.
    pub(super) fn is_service(&self, object: &Value) -> bool {
        let WorkloadKind::Service(kind) = self.kind else { return false };
        let is_kind = text(object, "/kind") == kind.kind
            && text(object, "/apiVersion").split('/').next().is_some_and(|group| group == kind.group);
        is_kind
            && text(object, "/metadata/namespace") == self.namespace
            && plan::label_value(text(object, "/metadata/name")) == self.name
    }

    /// Returns whether this is a role-based service.
    pub(super) fn is_role_based(&self) -> bool {
        self.kind == WorkloadKind::Service(kinds::FUSIONINFER_SERVICE)
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns `KIND/NAME`, as commands accept it.
    pub(super) fn reference(&self) -> String {
        let kind = match self.kind {
            WorkloadKind::Service(kind) => format!("{}.{}", kind.kind.to_lowercase(), kind.group),
            WorkloadKind::Pod => "pod".to_owned(),
        };
        format!("{kind}/{}", self.name)
    }

    fn delete_command(&self) -> String {
        format!("kubectl delete {} -n {}", self.reference().replace('/', " "), self.namespace)
    }
}

// === impl Deletion ===

impl Deletion {
    /// Returns whether the object is one of the services, or one of their Pods.
    pub(super) fn includes(&self, object: &Value) -> bool {
        let workload = Workload::from_pod(object);
        self.services.iter().any(|service| *service == workload || service.is_service(object))
    }
}

impl std::fmt::Display for Deletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let commands: Vec<String> = self.services.iter().map(Workload::delete_command).collect();
        let names: Vec<String> =
            self.services.iter().map(|service| format!("{}/{}", service.namespace, service.name)).collect();
        let (commands, names) = (commands.join(" && "), names.join(" and "));
        write!(f, "{commands}   (destructive: deletes {names}; frees {} × {})", self.freed_quantity, self.resource)
    }
}

/// Returns up to two alternatives, each of which lets all of `pods` run at the same time: single services, the smallest first,
/// or a set of services of which none can be retained. Each is verified by scheduling all Pods without the deleted services.
pub(super) fn sufficient_deletions(pods: &[&Value], snapshot: &SchedulingSnapshot) -> Vec<Deletion> {
    let Some((resource, mut candidates)) = candidates(pods, snapshot) else { return Vec::new() };
    candidates.sort_by(|(a, used_a), (b, used_b)| used_a.cmp(used_b).then_with(|| a.cmp(b)));
    let deletion = |services: &[(Workload, Quantity)]| Deletion {
        services: services.iter().map(|(service, _)| service.clone()).collect(),
        resource: resource.clone(),
        freed_quantity: services.iter().fold(Quantity::ZERO, |sum, (_, quantity)| sum + *quantity),
    };
    let suffices = |services: &[(Workload, Quantity)]| can_schedule_all(pods, &without(snapshot, &deletion(services)));
    let single = candidates.iter().take(MAX_CANDIDATES).map(std::slice::from_ref).filter(|service| suffices(service));
    let single: Vec<Deletion> = single.take(MAX_ALTERNATIVES).map(deletion).collect();
    if !single.is_empty() {
        return single;
    }
    let mut services = candidates;
    services.drain(..services.len().saturating_sub(MAX_CANDIDATES));
    if !suffices(&services) {
        return Vec::new();
    }
    let mut index = 0;
    while index < services.len() {
        let retained = services.remove(index);
        if !suffices(&services) {
            services.insert(index, retained);
            index += 1;
        }
    }
    vec![deletion(&services)]
}

/// Returns the first resource that the Pods lack, and the quantity that each other service uses on nodes that lack only
/// resources. `None` if nothing but resources of a node would have to change.
pub(super) fn candidates(
    pods: &[&Value],
    snapshot: &SchedulingSnapshot,
) -> Option<(String, Vec<(Workload, Quantity)>)> {
    let first = pods.first()?;
    let own_workload = Workload::from_pod(first);
    let mut missing_resource = None;
    let mut quantities: BTreeMap<Workload, Quantity> = BTreeMap::new();
    for (node, reasons) in filter_nodes(first, snapshot) {
        let lacks_resources_only =
            reasons.iter().all(|reason| matches!(reason, UnschedulableReason::InsufficientResource { .. }));
        let Some(UnschedulableReason::InsufficientResource { resource, .. }) =
            reasons.first().filter(|_| lacks_resources_only)
        else {
            continue;
        };
        for (workload, quantity) in workloads(snapshot, &node, resource) {
            if workload.kind != WorkloadKind::Pod && workload != own_workload {
                *quantities.entry(workload).or_insert(Quantity::ZERO) += quantity;
            }
        }
        missing_resource.get_or_insert_with(|| resource.clone());
    }
    Some((missing_resource?, quantities.into_iter().collect()))
}

/// Returns the workloads that use a resource of a node, largest quantity first.
pub(super) fn workloads(snapshot: &SchedulingSnapshot, node: &str, resource: &str) -> Vec<(Workload, Quantity)> {
    let mut quantities: BTreeMap<Workload, Quantity> = BTreeMap::new();
    for pod in snapshot.pods.iter().filter(|pod| is_running_on(pod, node)) {
        if let Some(quantity) = apimachinery::pod_requests(pod).get(resource).filter(|quantity| !quantity.is_zero()) {
            *quantities.entry(Workload::from_pod(pod)).or_insert(Quantity::ZERO) += *quantity;
        }
    }
    let mut workloads: Vec<_> = quantities.into_iter().collect();
    workloads.sort_by(|(a, quantity_a), (b, quantity_b)| quantity_b.cmp(quantity_a).then_with(|| a.cmp(b)));
    workloads
}

/// Returns whether all Pods can run at the same time. Each Pod is bound to the first node that fits, those with the largest
/// requests first, so Pods that could run only in another arrangement do not count.
pub(super) fn can_schedule_all(pods: &[&Value], snapshot: &SchedulingSnapshot) -> bool {
    let mut snapshot = snapshot.clone();
    let largest_request = |pod: &Value| {
        let requests = apimachinery::pod_requests(pod);
        let extended = requests.iter().filter(|(resource, _)| resource.contains('/'));
        extended.map(|(_, quantity)| *quantity).max().unwrap_or(Quantity::ZERO)
    };
    let mut pods: Vec<&Value> = pods.to_vec();
    pods.sort_by_key(|pod| std::cmp::Reverse(largest_request(pod)));
    pods.into_iter().all(|pod| {
        let nodes = filter_nodes(pod, &snapshot);
        let Some((node, _)) = nodes.iter().find(|(_, reasons)| reasons.is_empty()) else { return false };
        let mut bound_pod = pod.clone();
        bound_pod["spec"]["nodeName"] = node.as_str().into();
        snapshot.pods.push(Arc::new(bound_pod));
        true
    })
}

fn without(snapshot: &SchedulingSnapshot, deletion: &Deletion) -> SchedulingSnapshot {
    let pods = snapshot.pods.iter().filter(|pod| !deletion.includes(pod)).cloned().collect();
    SchedulingSnapshot { pods, ..snapshot.clone() }
}

/// Returns whether the Pod is bound to the node and not terminated.
fn is_running_on(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == node && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn pod(service: &str, node: Option<&str>, accelerators: u32, index: usize) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{service}-{index}"), "namespace": "ns", "labels": {"ome.io/inferenceservice": service}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": accelerators}}}]},
            "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
        })
    }

    fn node(name: &str) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"name": name},
            "status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    /// Nodes with eight accelerators each; the running Pods as `service:node:accelerators`; pending Pods of `chat` with these
    /// accelerators; the services to delete per alternative.
    #[rstest]
    #[case::larger_than_the_fleet(1, "sum:a:4", &[8, 8], "")]
    #[case::only_one_of_four_would_fit(1, "chat:a:4 sum:a:4", &[4, 4, 4], "")]
    #[case::single_service(1, "sum:a:4", &[8], "sum")]
    #[case::smallest_services_first(1, "large:a:4 small:a:2 tiny:a:1", &[3], "small, large")]
    #[case::several_services_are_one_proposal(1, "one:a:4 two:a:4", &[8], "one and two")]
    #[case::small_service_is_retained(1, "one:a:1 two:a:3 three:a:4", &[7], "three and two")]
    #[case::gang_on_two_nodes(2, "one:a:4 two:b:4", &[8, 8], "one and two")]
    #[case::service_on_two_nodes(2, "one:a:4 one:b:4", &[8, 8], "one")]
    #[case::own_pods_are_retained(1, "chat:a:8", &[4], "")]
    fn proposes_deletions_that_let_all_pods_run(
        #[case] node_count: usize,
        #[case] running: &str,
        #[case] pending: &[u32],
        #[case] expected: &str,
    ) {
        let running = running.split_whitespace().enumerate().map(|(index, text)| {
            let fields: Vec<&str> = text.split(':').collect();
            Arc::new(pod(fields[0], Some(fields[1]), fields[2].parse().unwrap(), index))
        });
        let snapshot = SchedulingSnapshot {
            nodes: ["a", "b"].into_iter().take(node_count).map(node).collect(),
            pods: running.collect(),
            ..SchedulingSnapshot::default()
        };
        let pending: Vec<Value> =
            pending.iter().enumerate().map(|(index, count)| pod("chat", None, *count, index + 100)).collect();
        let deletions = sufficient_deletions(&pending.iter().collect::<Vec<_>>(), &snapshot);
        let names = |deletion: &Deletion| {
            let mut names: Vec<&str> = deletion.services.iter().map(|service| service.name.as_str()).collect();
            names.sort_unstable();
            names.join(" and ")
        };
        assert_eq!(deletions.iter().map(names).collect::<Vec<_>>().join(", "), expected);
    }

    #[test]
    fn marks_the_proposal_as_destructive() {
        let snapshot = SchedulingSnapshot {
            nodes: vec![node("a")],
            pods: vec![Arc::new(pod("one", Some("a"), 4, 0)), Arc::new(pod("two", Some("a"), 4, 1))],
            ..SchedulingSnapshot::default()
        };
        let texts: Vec<String> =
            sufficient_deletions(&[&pod("chat", None, 8, 9)], &snapshot).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["kubectl delete inferenceservice.ome.io one -n ns && kubectl delete inferenceservice.ome.io two -n ns   \
              (destructive: deletes ns/one and ns/two; frees 8 × nvidia.com/gpu)"]
        );
    }
}
