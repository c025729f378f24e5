//! Nodes, with the Pods that are on them or that a turn has promised to them.

use std::sync::Arc;

use apimachinery::pod::{Amounts, add, amounts};
use apimachinery::quantity::Quantity;
use serde_json::Value;

use super::is_bound;
use crate::object;

/// A node with its Pods and what they request.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) node: Arc<Value>,
    pub(crate) used: Amounts,
    /// What scores weigh: cpu and memory, with the defaults for containers that request none.
    pub(crate) load: Load,
    pub(crate) tenants: Vec<Arc<Value>>,
    /// Those of the tenants that have Pod affinity or anti-affinity.
    pub(crate) particular: Vec<Arc<Value>>,
}

/// Cores and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Load {
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
}

/// Nodes by name, each with its Pods. Nodes that are being deleted take nobody.
pub(super) fn candidates(pods: &[Arc<Value>], nodes: &[Arc<Value>]) -> Vec<Candidate> {
    let staying = nodes.iter().filter(|node| !object::is_deleting(node));
    let mut all: Vec<Candidate> = staying.map(|node| Candidate::of(Arc::clone(node))).collect();
    all.sort_by(|a, b| a.name().cmp(b.name()));
    for pod in pods.iter().filter(|pod| is_bound(pod)) {
        if let Some(candidate) = named(&mut all, object::text(pod, "/spec/nodeName")) {
            candidate.take(pod);
        }
    }
    all
}

/// The candidate of this name; `all` are in the order of their names.
pub(super) fn named<'a>(all: &'a mut [Candidate], name: &str) -> Option<&'a mut Candidate> {
    let at = all.binary_search_by(|candidate| candidate.name().cmp(name)).ok()?;
    all.get_mut(at)
}

/// What a node has for Pods. A node that does not limit the number of Pods takes 110, the kubelet's default.
pub(crate) fn allocatable(node: &Value) -> Amounts {
    let status = node.get("status").unwrap_or(&Value::Null);
    let mut amounts = amounts(status.get("allocatable").or_else(|| status.get("capacity")));
    amounts.entry("pods".to_owned()).or_insert_with(|| Quantity::from_units(110));
    amounts
}

/// What a Pod asks for, itself included.
pub(crate) fn requests(pod: &Value) -> Amounts {
    let mut total = apimachinery::pod::requests(pod);
    total.insert("pods".to_owned(), Quantity::from_units(1));
    total
}

// === impl Candidate ===

impl Candidate {
    pub(super) fn of(node: Arc<Value>) -> Self {
        let (used, tenants, particular) = Default::default();
        Self { node, used, load: Load::default(), tenants, particular }
    }

    pub(super) fn name(&self) -> &str {
        object::name(&self.node)
    }

    /// The Pod is here from now on.
    pub(super) fn take(&mut self, pod: &Arc<Value>) {
        add(&mut self.used, &requests(pod));
        self.load = self.load.plus(Load::of(pod));
        self.tenants.push(Arc::clone(pod));
        if is_particular(pod) {
            self.particular.push(Arc::clone(pod));
        }
    }

    /// The Pod is here no longer.
    pub(super) fn release(&mut self, pod: &Value) {
        for (name, amount) in requests(pod) {
            if let Some(used) = self.used.get_mut(&name) {
                *used -= amount;
            }
        }
        self.load = self.load.minus(Load::of(pod));
        for list in [&mut self.tenants, &mut self.particular] {
            list.retain(|tenant| object::uid(tenant) != object::uid(pod));
        }
    }
}

fn is_particular(pod: &Value) -> bool {
    let affinity = pod.pointer("/spec/affinity");
    affinity.is_some_and(|affinity| affinity.get("podAffinity").or_else(|| affinity.get("podAntiAffinity")).is_some())
}

// === impl Load ===

impl Load {
    /// A container that requests no cpu or memory counts as a tenth of a core or 200 MiB
    /// (`k8s.io/kubernetes/pkg/scheduler/util`).
    pub(super) fn of(pod: &Value) -> Self {
        const CPU: f64 = 0.1;
        const MEMORY: f64 = 200.0 * 1024.0 * 1024.0;
        let requests = apimachinery::pod::requests(pod);
        let containers = || pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        let total = |name: &str, default: f64| {
            let states = |container: &&Value| {
                let of = |list: &str| container.pointer(&format!("/resources/{list}/{name}")).is_some();
                of("requests") || of("limits")
            };
            let silent = containers().filter(|container| !states(container)).count();
            requests.get(name).map_or(0.0, Quantity::as_f64) + default * silent as f64
        };
        Self { cpu: total("cpu", CPU), memory: total("memory", MEMORY) }
    }

    pub(super) fn plus(self, more: Self) -> Self {
        Self { cpu: self.cpu + more.cpu, memory: self.memory + more.memory }
    }

    fn minus(self, less: Self) -> Self {
        Self { cpu: self.cpu - less.cpu, memory: self.memory - less.memory }
    }
}
