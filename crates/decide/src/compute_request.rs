//! CPU and memory that a Pod requests, and that nodes have.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::units::{CPU, MEMORY, compute_units, extended_resources};

/// CPU and memory that a Pod requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComputeRequest {
    /// Thousandths of a CPU.
    pub millicpu: u32,
    /// MiB.
    pub mebibytes: u32,
}

/// CPU and memory of a node; `None` if the node does not state it, so that any Pod fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCompute {
    /// Thousandths of a CPU.
    pub millicpu: Option<u32>,
    /// MiB.
    pub mebibytes: Option<u32>,
}

/// A resource of which no node has as much as a Pod requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeShortage {
    /// `cpu` or `memory`.
    pub resource: &'static str,
    /// Requested thousandths of a CPU, or MiB.
    pub requested: u32,
    /// The same for the largest node.
    pub largest: u32,
}

/// Requests of the containers that one layer (runtime or service) sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// Requests and limits of the engine container: CPU, memory.
    engine: [Quantities; 2],
    /// The other containers.
    others: Vec<OtherContainer>,
}

/// A container beside that of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OtherContainer {
    name: String,
    compute: ComputeRequest,
    /// Units by extended resource.
    extended: BTreeMap<String, u32>,
    /// Whether the container has ended when the engine starts.
    is_init: bool,
}

/// Requests of the Pods of a replica, as one layer (runtime or service) states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaRequests {
    /// The only Pod, or the leader.
    pub(crate) leader: PodRequests,
    /// The workers, if they start the command of the leader.
    pub(crate) worker_like_leader: PodRequests,
    /// The workers, if they start a command of their own.
    pub(crate) separate_worker: PodRequests,
    /// Whether the layer has workers.
    pub(crate) has_worker: bool,
    /// Whether the layer states a command of the workers.
    pub(crate) has_worker_command: bool,
}

/// Request and limit for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Quantities {
    request: Option<u32>,
    limit: Option<u32>,
}

// === impl ComputeRequest ===

impl ComputeRequest {
    /// Reads the requests of a container, or its limits, which are the defaults of the requests.
    fn of_resources(resources: &Value) -> Self {
        let [cpu, memory] = Quantities::read(resources).map(Quantities::effective);
        Self { millicpu: cpu, mebibytes: memory }
    }

    fn add(self, other: Self) -> Self {
        Self {
            millicpu: self.millicpu.saturating_add(other.millicpu),
            mebibytes: self.mebibytes.saturating_add(other.mebibytes),
        }
    }

    /// Returns the greater amount of each resource.
    fn max(self, other: Self) -> Self {
        Self { millicpu: self.millicpu.max(other.millicpu), mebibytes: self.mebibytes.max(other.mebibytes) }
    }

    /// Returns how many such Pods fit into `available`.
    pub(crate) fn pods_in(&self, available: NodeCompute) -> u32 {
        let pods = |available: Option<u32>, requested: u32| available.and_then(|units| units.checked_div(requested));
        let by_cpu = pods(available.millicpu, self.millicpu).unwrap_or(u32::MAX);
        by_cpu.min(pods(available.mebibytes, self.mebibytes).unwrap_or(u32::MAX))
    }

    /// Returns the resource of which no node has enough for a Pod, if there is one.
    pub(crate) fn shortage(&self, nodes: impl Iterator<Item = NodeCompute> + Clone) -> Option<ComputeShortage> {
        let shortage = |resource: &'static str, requested: u32, amounts: &mut dyn Iterator<Item = Option<u32>>| {
            let largest = amounts.map(|amount| amount.unwrap_or(u32::MAX)).max()?;
            (largest < requested).then_some(ComputeShortage { resource, requested, largest })
        };
        shortage(CPU, self.millicpu, &mut nodes.clone().map(|node| node.millicpu))
            .or_else(|| shortage(MEMORY, self.mebibytes, &mut nodes.map(|node| node.mebibytes)))
    }
}

// === impl NodeCompute ===

impl NodeCompute {
    /// Returns what is left after one more Pod with this request.
    pub(crate) fn without(self, request: &ComputeRequest) -> Self {
        let subtract = |amount: Option<u32>, requested: u32| amount.map(|amount| amount.saturating_sub(requested));
        Self {
            millicpu: subtract(self.millicpu, request.millicpu),
            mebibytes: subtract(self.mebibytes, request.mebibytes),
        }
    }
}

// === impl ComputeShortage ===

impl fmt::Display for ComputeShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, requested, largest } = self;
        let (requested, largest) = (format_amount(resource, *requested), format_amount(resource, *largest));
        write!(f, "a Pod requests {requested} of {resource}; the largest node has {largest}")
    }
}

/// Formats an amount like a quantity of Kubernetes: `32`, `500m`, `512Gi`.
pub(crate) fn format_amount(resource: &str, amount: u32) -> String {
    match resource {
        CPU if amount.is_multiple_of(1000) => (amount / 1000).to_string(),
        CPU => format!("{amount}m"),
        _ if amount.is_multiple_of(1024) && amount > 0 => format!("{}Gi", amount / 1024),
        _ => format!("{amount}Mi"),
    }
}

/// Whether an init container runs as long as the Pod.
pub(crate) fn is_sidecar(init_container: &Value) -> bool {
    init_container["restartPolicy"] == "Always"
}

impl fmt::Display for ComputeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cpu, memory) = (format_amount(CPU, self.millicpu), format_amount(MEMORY, self.mebibytes));
        write!(f, "cpu {cpu}, memory {memory}")
    }
}

// === impl PodRequests ===

impl PodRequests {
    /// Reads the containers of a component: the `resources` of the engine container, weakest first, its other containers, and its
    /// init containers.
    pub(crate) fn new<'a>(
        engine: impl IntoIterator<Item = &'a Value>,
        containers: impl IntoIterator<Item = &'a Value>,
        init_containers: impl IntoIterator<Item = &'a Value>,
    ) -> Self {
        let mut merged = [Quantities::default(); 2];
        for resources in engine {
            for (merged, stated) in merged.iter_mut().zip(Quantities::read(resources)) {
                *merged =
                    Quantities { request: stated.request.or(merged.request), limit: stated.limit.or(merged.limit) };
            }
        }
        let other = |container: &Value, is_init: bool| OtherContainer {
            name: container["name"].as_str().unwrap_or_default().to_owned(),
            compute: ComputeRequest::of_resources(&container["resources"]),
            extended: extended_resources(&container["resources"]),
            is_init,
        };
        let containers = containers.into_iter().map(|container| other(container, false));
        let init_containers = init_containers.into_iter().map(|container| other(container, !is_sidecar(container)));
        Self { engine: merged, others: containers.chain(init_containers).collect() }
    }

    /// Returns the units of `resource` that containers other than that of the engine request while it runs.
    pub(crate) fn units_beside_engine(runtime: &Self, service: &Self, resource: &str) -> u32 {
        let running = Self::merge_others(runtime, service).filter(|container| !container.is_init);
        running
            .filter_map(|container| container.extended.get(resource))
            .fold(0, |sum, units| sum.saturating_add(*units))
    }

    /// Returns the other containers of the Pod. Those of the service replace containers of the runtime with the same name.
    fn merge_others<'a>(runtime: &'a Self, service: &'a Self) -> impl Iterator<Item = &'a OtherContainer> {
        let is_replaced = |container: &&OtherContainer| service.others.iter().any(|other| other.name == container.name);
        runtime.others.iter().filter(move |container| !is_replaced(container)).chain(&service.others)
    }

    /// Returns what a Pod requests: the engine container's amounts of the service, or of the runtime if the service sets none,
    /// raised to those of `configurations`, and the other containers; at least what each init container requests. A limit that is
    /// less than a request of a weaker source replaces it, as in the merged container.
    pub(crate) fn merge<'a>(
        runtime: &Self,
        configurations: impl Iterator<Item = &'a Value>,
        service: &Self,
    ) -> ComputeRequest {
        let mut configured = [Quantities::default(); 2];
        for resources in configurations {
            for (configured, stated) in configured.iter_mut().zip(Quantities::read(resources)) {
                *configured = Quantities {
                    request: stated.request.or(configured.request),
                    limit: stated.limit.or(configured.limit),
                };
            }
        }
        let amount = |index: usize| {
            let [runtime, configured, service] = [&runtime.engine, &configured, &service.engine]
                .map(|layer| layer.get(index).copied().unwrap_or_default());
            Quantities::merge(runtime, configured, service)
        };
        let engine = ComputeRequest { millicpu: amount(0), mebibytes: amount(1) };
        let (init, running): (Vec<_>, Vec<_>) =
            Self::merge_others(runtime, service).partition(|container| container.is_init);
        let sum = running.iter().fold(engine, |sum, container| sum.add(container.compute));
        init.iter().fold(sum, |request, container| request.max(container.compute))
    }

    /// Sets the amount of one resource that the engine container requests.
    pub(crate) fn set(&mut self, resource: &str, amount: u32) {
        let index = usize::from(resource == MEMORY);
        if let Some(quantities) = self.engine.get_mut(index) {
            *quantities = Quantities { request: Some(amount), limit: None };
        }
    }
}

// === impl ReplicaRequests ===

impl ReplicaRequests {
    /// Returns the greatest amounts that a Pod of the replica requests, see [`PodRequests::merge`].
    pub(crate) fn merge<'a>(
        runtime: &Self,
        configurations: impl Iterator<Item = &'a Value> + Clone,
        service: &Self,
    ) -> ComputeRequest {
        Self::pods(runtime, service)
            .map(|(runtime, service)| PodRequests::merge(runtime, configurations.clone(), service))
            .fold(ComputeRequest::default(), ComputeRequest::max)
    }

    /// Returns the most units of `resource` that containers of a Pod other than that of the engine request while it runs.
    pub(crate) fn units_beside_engine(runtime: &Self, service: &Self, resource: &str) -> u32 {
        let pods = Self::pods(runtime, service);
        pods.map(|(runtime, service)| PodRequests::units_beside_engine(runtime, service, resource)).max().unwrap_or(0)
    }

    /// Sets the amount of one resource that the engine containers request.
    pub(crate) fn set(&mut self, resource: &str, amount: u32) {
        for pod in [&mut self.leader, &mut self.worker_like_leader, &mut self.separate_worker] {
            pod.set(resource, amount);
        }
    }

    /// Returns the requests of both layers for the leader, and for the workers if there are any.
    fn pods<'a>(runtime: &'a Self, service: &'a Self) -> impl Iterator<Item = (&'a PodRequests, &'a PodRequests)> {
        let is_separate = runtime.has_worker_command || service.has_worker_command;
        let worker = |layer: &'a Self| if is_separate { &layer.separate_worker } else { &layer.worker_like_leader };
        let has_worker = runtime.has_worker || service.has_worker;
        let workers = has_worker.then(|| (worker(runtime), worker(service)));
        std::iter::once((&runtime.leader, &service.leader)).chain(workers)
    }
}

// === impl Quantities ===

impl Quantities {
    fn read(resources: &Value) -> [Self; 2] {
        [CPU, MEMORY].map(|resource| Self {
            request: compute_units(&resources["requests"], resource),
            limit: compute_units(&resources["limits"], resource),
        })
    }

    fn effective(self) -> u32 {
        self.request.or(self.limit).unwrap_or(0)
    }

    fn merge(runtime: Self, configured: Self, service: Self) -> u32 {
        // Amounts with the strength of their source.
        let merge = |runtime: Option<u32>, configured: Option<u32>, service: Option<u32>| {
            let base = service.map(|amount| (amount, 2)).or(runtime.map(|amount| (amount, 0)));
            match (base, configured) {
                (Some((amount, _)), Some(configured)) if configured > amount => Some((configured, 1)),
                (None, Some(configured)) => Some((configured, 1)),
                (base, _) => base,
            }
        };
        let request = merge(runtime.request, configured.request, service.request);
        let limit = merge(runtime.limit, configured.limit, service.limit);
        match (request, limit) {
            (Some((request, weaker)), Some((limit, stronger))) if request > limit && weaker < stronger => limit,
            (Some((request, _)), _) => request,
            (None, limit) => limit.map_or(0, |(limit, _)| limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::runtime(json!({"requests": {"cpu": "8", "memory": "30Gi"}}), json!(null), json!({}), (8_000, 30 * 1024))]
    #[case::limits_are_requests(json!({"limits": {"cpu": "8", "memory": "1G"}}), json!(null), json!({}), (8_000, 954))]
    #[case::service(json!({"requests": {"cpu": "8"}}), json!(null), json!({"requests": {"cpu": "500m"}}), (500, 0))]
    #[case::configuration_raises(json!({"requests": {"cpu": "8"}}), json!({"requests": {"cpu": 16}}), json!({}), (16_000, 0))]
    #[case::configuration_does_not_lower(json!({"requests": {"cpu": "8"}}), json!({"requests": {"cpu": "4"}}), json!({}), (8_000, 0))]
    #[case::limit_of_the_service(json!({"requests": {"cpu": "8"}}), json!(null), json!({"limits": {"cpu": "4"}}), (4_000, 0))]
    #[case::invalid(json!({"requests": {"cpu": "many"}}), json!(null), json!({}), (0, 0))]
    #[case::huge(json!({"requests": {"cpu": "9E"}}), json!(null), json!({}), (u32::MAX, 0))]
    fn merges_requests(
        #[case] runtime: Value,
        #[case] configuration: Value,
        #[case] service: Value,
        #[case] expected: (u32, u32),
    ) {
        let [runtime, service] = [runtime, service].map(|resources| PodRequests::new([&resources], [], []));
        let request = PodRequests::merge(&runtime, [configuration].iter(), &service);
        assert_eq!((request.millicpu, request.mebibytes), expected);
    }

    /// Columns: CPUs of an init container, whether it runs as long as the Pod, expected CPUs beside 7 of containers.
    #[rstest]
    #[case::smaller("6", false, 7_000)]
    #[case::larger("9", false, 9_000)]
    #[case::sidecar("2", true, 9_000)]
    fn adds_other_containers_once(#[case] init: &str, #[case] is_sidecar: bool, #[case] expected: u32) {
        let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu, "nvidia.com/gpu": "1"}}});
        let engine = json!({"requests": {"cpu": "4"}});
        let mut init = container("i", init);
        if is_sidecar {
            init["restartPolicy"] = json!("Always");
        }
        let runtime = PodRequests::new([&engine], &[container("a", "1"), container("b", "1")], [&init]);
        let service = PodRequests::new([], &[container("b", "2")], []);
        assert_eq!(PodRequests::merge(&runtime, [].iter(), &service).millicpu, expected);
        let accelerators = PodRequests::units_beside_engine(&runtime, &service, "nvidia.com/gpu");
        assert_eq!(accelerators, if is_sidecar { 3 } else { 2 });
    }

    #[test]
    fn counts_pods_by_the_scarcer_resource() {
        let request = ComputeRequest { millicpu: 8_000, mebibytes: 32 * 1024 };
        let node = |cpu, memory| NodeCompute { millicpu: cpu, mebibytes: memory };
        assert_eq!(request.pods_in(node(Some(64_000), Some(100 * 1024))), 3);
        assert_eq!(request.pods_in(node(None, None)), u32::MAX);
        assert_eq!(ComputeRequest::default().pods_in(node(Some(0), Some(0))), u32::MAX);
        let shortage = request.shortage([node(Some(4_000), None), node(Some(6_500), None)].into_iter()).unwrap();
        assert_eq!(shortage.to_string(), "a Pod requests 8 of cpu; the largest node has 6500m");
    }
}
