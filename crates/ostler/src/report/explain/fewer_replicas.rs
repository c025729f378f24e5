//! Proposes as many replicas as run already, if the others cannot be scheduled.

use std::collections::BTreeMap;

use plan::{Service, ServicePlan, labels};
use serde_json::{Value, json};

use super::fields::text;
use super::service_pods::workload_of;
use crate::cluster_objects::{self, ClusterObjects};

/// The replicas of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replicas {
    pub(super) min: u64,
    pub(super) max: u64,
}

// === impl Replicas ===

impl Replicas {
    /// Returns the replicas that the service sets for a component.
    pub(super) fn of_component(spec: &Value) -> Self {
        let min = spec["minReplicas"].as_u64().unwrap_or(1);
        Self { min, max: spec["maxReplicas"].as_u64().unwrap_or(min).max(min) }
    }

    /// Returns the replicas in the form of `ostler scale`: `2`, or `1..2` for an autoscaler.
    pub(super) fn assignment(self, is_autoscaled: bool) -> String {
        if is_autoscaled { format!("{}..{}", self.min, self.max) } else { self.max.to_string() }
    }

    /// Returns the replicas with the maximum reduced to `running`; `None` if that is no reduction.
    pub(super) fn reduced_to(self, running: u64) -> Option<Self> {
        let is_reduction = running > 0 && running < self.max;
        is_reduction.then(|| Self { min: self.min.min(running), max: running })
    }
}

/// Returns a command for each component of an `ome.io` service that has Pods without a node: it reduces the replicas to
/// those whose Pods all have one. Each is verified by planning the service with fewer replicas.
pub(super) fn fewer_replicas_remedies(
    service: &Value,
    pods: &[&Value],
    plan: Option<&ServicePlan>,
    objects: &ClusterObjects,
) -> Vec<String> {
    let Some(plan) = plan.filter(|_| text(service, "/apiVersion") == api::ome::API_VERSION) else { return Vec::new() };
    let remedy = |component: &String| {
        // With several workloads, the replicas of the component are shared among classes.
        let mut workloads = plan.objects.iter().filter(|object| is_workload_of(object, component));
        let (Some(workload), None) = (workloads.next(), workloads.next()) else { return None };
        let field = component_field(service, component);
        let current = Replicas::of_component(&service["spec"][field]);
        let replicas = current.reduced_to(complete_replicas_of_waiting(workload, pods)?)?;
        let mut reduced_service = service.clone();
        reduced_service["spec"][field]["minReplicas"] = json!(replicas.min);
        reduced_service["spec"][field]["maxReplicas"] = json!(replicas.max);
        let parsed = Service::from_document(&cluster_objects::document(reduced_service)).ok().flatten()?;
        let reduced_plan = plan::plan_service(&objects.snapshot(), &parsed);
        let can_run = reduced_plan.feasible && !plan::waits_for_capacity(&reduced_plan.warnings);
        let (name, namespace) = (text(service, "/metadata/name"), text(service, "/metadata/namespace"));
        can_run.then(|| {
            format!(
                "reduce the {component} to the replicas that have nodes: `ostler scale isvc/{name} {component}={} -n {namespace}`",
                replicas.assignment(current.min < current.max)
            )
        })
    };
    plan.components.keys().filter_map(remedy).collect()
}

/// Returns a command for each role that has Pods without a node: it reduces the replicas to those whose Pods all have one.
pub(super) fn fewer_role_replicas_remedies(service: &Value, pods: &[&Value]) -> Vec<String> {
    let (name, namespace) = (text(service, "/metadata/name"), text(service, "/metadata/namespace"));
    let remedy = |role: &Value| {
        let role_name = role["name"].as_str()?;
        let running = complete_replicas_of_role(role_name, role["multinode"]["nodeCount"].as_u64().unwrap_or(1), pods)?;
        let replicas = role["replicas"].as_u64().unwrap_or(1);
        let replicas = Replicas { min: replicas, max: replicas }.reduced_to(running)?.assignment(false);
        Some(format!(
            "reduce role {role_name} to the replicas that have nodes: `ostler scale fisvc/{name} {role_name}={replicas} -n {namespace}`"
        ))
    };
    service["spec"]["roles"].as_array().into_iter().flatten().filter_map(remedy).collect()
}

/// Returns the number of replicas of a role whose Pods all have a node; `None` if no Pod of the role lacks one.
fn complete_replicas_of_role(role: &str, pods_per_replica: u64, pods: &[&Value]) -> Option<u64> {
    let label = |pod: &Value, name: &str| pod["metadata"]["labels"][name].as_str().map(str::to_owned);
    let is_own = |pod: &&&Value| label(pod, labels::ROLE_NAME).as_deref() == Some(role);
    let own: Vec<(Option<String>, &Value)> =
        pods.iter().filter(is_own).map(|pod| (label(pod, labels::REPLICA_INDEX), *pod)).collect();
    complete_replicas(own.iter().map(|(replica, pod)| (replica.as_deref().unwrap_or_default(), *pod)), pods_per_replica)
}

/// Returns the field of a component. `predictor` is the deprecated name of the engine.
pub(super) fn component_field<'a>(service: &Value, component: &'a str) -> &'a str {
    let spec = &service["spec"];
    let is_predictor = component == "engine" && spec["engine"].is_null() && spec["predictor"].is_object();
    if is_predictor { "predictor" } else { component }
}

/// Returns whether the object is the workload that runs the replicas of `component`.
fn is_workload_of(object: &Value, component: &str) -> bool {
    matches!(text(object, "/kind"), "Deployment" | "LeaderWorkerSet")
        && text(object, &format!("/metadata/labels/{}", labels::COMPONENT)) == component
}

/// Returns the number of replicas of the workload whose Pods all have a node; `None` if no Pod of it lacks one. Pods of
/// other workloads do not count: a replaced workload stops.
fn complete_replicas_of_waiting<'a>(workload: &Value, pods: &[&'a Value]) -> Option<u64> {
    let is_own = |pod: &&&Value| workload_of(pod) == Some((text(workload, "/kind"), text(workload, "/metadata/name")));
    let replica = |pod: &'a Value| {
        pod["metadata"]["labels"][labels::GROUP_INDEX].as_str().unwrap_or_else(|| text(pod, "/metadata/name"))
    };
    let pods_per_replica = workload["spec"]["leaderWorkerTemplate"]["size"].as_u64().unwrap_or(1);
    complete_replicas(pods.iter().filter(is_own).map(|pod| (replica(pod), *pod)), pods_per_replica)
}

/// Returns the number of replicas whose Pods all have a node; `None` if no Pod lacks one. `pods` are in pairs with their replica.
fn complete_replicas<'a>(pods: impl Iterator<Item = (&'a str, &'a Value)>, pods_per_replica: u64) -> Option<u64> {
    let (scheduled, waiting): (Vec<_>, Vec<_>) = pods.partition(|(_, pod)| pod["spec"]["nodeName"].is_string());
    if waiting.is_empty() {
        return None;
    }
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (replica, _) in scheduled.into_iter().filter(|(_, pod)| pod["metadata"]["deletionTimestamp"].is_null()) {
        *counts.entry(replica).or_default() += 1;
    }
    u64::try_from(counts.values().filter(|count| **count >= pods_per_replica).count()).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Pods as `workload:replica`, with a trailing `!` if they have no node. Names of LeaderWorkerSets start with `lws`.
    #[rstest]
    #[case::every_pod_has_a_node("Deployment", "chat", "chat:a chat:b", None)]
    #[case::some_pods_have_nodes("Deployment", "chat", "chat:a chat:b chat:c!", Some(2))]
    #[case::no_pod_has_a_node("Deployment", "chat", "chat:a! chat:b!", Some(0))]
    #[case::pods_of_the_replaced_workload_do_not_count("LeaderWorkerSet", "lws", "chat:a lws:0! lws:0!", Some(0))]
    #[case::only_the_replaced_workload_waits("LeaderWorkerSet", "lws", "chat:a! lws:0 lws:0", None)]
    #[case::incomplete_gangs_do_not_count("LeaderWorkerSet", "lws", "lws:0 lws:0 lws:1 lws:1!", Some(1))]
    #[case::one_pod_of_each_gang("LeaderWorkerSet", "lws", "lws:0 lws:0! lws:1 lws:1!", Some(0))]
    fn counts_complete_replicas(
        #[case] kind: &str,
        #[case] name: &str,
        #[case] pods: &str,
        #[case] expected: Option<u64>,
    ) {
        let pod = |(index, text): (usize, &str)| {
            let (workload, replica) = text.trim_end_matches('!').split_once(':').unwrap();
            let node = (!text.ends_with('!')).then_some("n");
            let metadata = if workload.starts_with("lws") {
                json!({"name": format!("p{index}"), "labels": {
                    "leaderworkerset.sigs.k8s.io/name": workload, "leaderworkerset.sigs.k8s.io/group-index": replica}})
            } else {
                json!({"name": format!("p{index}"), "labels": {"pod-template-hash": "x"},
                    "ownerReferences": [{"kind": "ReplicaSet", "name": format!("{workload}-x")}]})
            };
            json!({"metadata": metadata, "spec": {"nodeName": node}})
        };
        let pods: Vec<Value> = pods.split(' ').enumerate().map(pod).collect();
        let size = json!({"size": 2});
        let workload = json!({"kind": kind, "metadata": {"name": name},
            "spec": if kind == "LeaderWorkerSet" { json!({"leaderWorkerTemplate": size}) } else { json!({}) }});
        assert_eq!(complete_replicas_of_waiting(&workload, &pods.iter().collect::<Vec<_>>()), expected);
    }

    /// Pods of role `w` as the index of their replica, with a trailing `!` if they have no node.
    #[rstest]
    #[case::some_replicas_have_nodes("0 0 1 1 2! 2!", Some("`ostler scale fisvc/big w=2 -n n`"))]
    #[case::incomplete_replicas_do_not_count("0 0 1 1! 2!", Some("`ostler scale fisvc/big w=1 -n n`"))]
    #[case::all_have_nodes("0 0 1 1 2 2", None)]
    #[case::no_replica_has_nodes("0! 0! 1! 1!", None)]
    fn proposes_fewer_replicas_of_a_role(#[case] pods: &str, #[case] expected: Option<&str>) {
        let service = json!({"metadata": {"name": "big", "namespace": "n"}, "spec": {"roles": [
            {"name": "w", "replicas": 3, "multinode": {"nodeCount": 2}}, {"name": "router", "componentType": "router"}]}});
        let pod = |text: &str| {
            let labels = json!({labels::ROLE_NAME: "w", labels::REPLICA_INDEX: text.trim_end_matches('!')});
            json!({"metadata": {"labels": labels}, "spec": {"nodeName": (!text.ends_with('!')).then_some("n")}})
        };
        let pods: Vec<Value> = pods.split(' ').map(pod).collect();
        let remedies = fewer_role_replicas_remedies(&service, &pods.iter().collect::<Vec<_>>());
        assert_eq!(remedies.len(), usize::from(expected.is_some()), "{remedies:?}");
        assert!(remedies.iter().zip(expected).all(|(remedy, expected)| remedy.contains(expected)), "{remedies:?}");
    }

    #[rstest]
    #[case::fixed(Replicas { min: 3, max: 3 }, 1, Some(Replicas { min: 1, max: 1 }))]
    #[case::autoscaled(Replicas { min: 1, max: 4 }, 2, Some(Replicas { min: 1, max: 2 }))]
    #[case::current_value(Replicas { min: 2, max: 2 }, 2, None)]
    #[case::more_than_the_current_value(Replicas { min: 1, max: 1 }, 2, None)]
    #[case::none_runs(Replicas { min: 2, max: 2 }, 0, None)]
    fn reduces_replicas(#[case] replicas: Replicas, #[case] running: u64, #[case] expected: Option<Replicas>) {
        assert_eq!(replicas.reduced_to(running), expected);
    }
}
