//! The GPUs of a node: which engines use them, and how much memory one engine may use.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::object;

use super::engine::EngineSummary;
use super::view::ClusterView;
use crate::instance::EngineId;
use crate::node::{Engine, NodeState};
use crate::step;

/// Label of GPU feature discovery with the memory of a GPU in MiB.
const MEMORY_LABEL: &str = "nvidia.com/gpu.memory";

/// The GPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeExplanation {
    /// GPUs in `gpu-map`, and those on which engines run.
    pub gpus: Vec<GpuExplanation>,
    /// Memory of each GPU in MiB, if the Node has the label of GPU feature discovery.
    pub memory_mib: Option<u64>,
    /// Percentage of the memory that one engine may use while as many engines sleep as the limit permits: the value of
    /// `--gpu-memory-utilization`, times 100.
    pub utilization_percent: Option<u64>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuExplanation {
    /// UUID.
    pub uuid: String,
    /// Index on the node; `None` if `gpu-map` does not contain the GPU.
    pub index: Option<u32>,
    /// Requesters to which it is assigned.
    pub requesters: Vec<String>,
    /// Engines on it: those that do not sleep first, then the most recently awake.
    pub engines: Vec<EngineSummary>,
    /// The engine that is deleted first if another one needs its place.
    pub next_victim: Option<EngineId>,
}

// === impl ClusterView ===

impl ClusterView {
    /// Explains the GPUs of a node. `namespace` is that of the requesters, whose `gpu-map` applies.
    #[must_use]
    pub fn explain_node(&self, name: &str, namespace: &str) -> NodeExplanation {
        let node = self.node(name);
        let indexes = self.gpu_map(namespace).entry(name).cloned().unwrap_or_default();
        let used = node.engines.values().flat_map(|engine| &engine.provider.accelerators);
        let requested = node.servers.values().filter_map(|server| server.requester.as_ref()?.accelerators.as_ref());
        let uuids: BTreeSet<&String> = indexes.keys().chain(used).chain(requested.flatten()).collect();
        let mut gpus: Vec<GpuExplanation> = uuids.into_iter().map(|uuid| gpu(&node, uuid, &indexes)).collect();
        gpus.sort_by_key(|gpu| (gpu.index.is_none(), gpu.index));
        let memory_mib = self.node_object(name).and_then(|node| object::label(&node, MEMORY_LABEL)?.parse().ok());
        NodeExplanation { gpus, memory_mib, utilization_percent: memory_mib.and_then(|mib| self.utilization(mib)) }
    }

    /// Returns the percentage of `memory_mib` that remains while as many engines sleep as the limit permits; `None` if nothing does.
    fn utilization(&self, memory_mib: u64) -> Option<u64> {
        let sleepers = u64::try_from(self.settings.sleeper_limit).unwrap_or(u64::MAX);
        let remaining = memory_mib.checked_sub(self.settings.residue_mib.saturating_mul(sleepers))?;
        remaining.checked_mul(100)?.checked_div(memory_mib).filter(|percent| *percent > 0)
    }
}

fn gpu(node: &NodeState, uuid: &String, indexes: &BTreeMap<String, u32>) -> GpuExplanation {
    let is_on = |engine: &&Engine| engine.provider.accelerators.contains(uuid);
    let mut engines: Vec<&Engine> = node.engines.values().filter(is_on).collect();
    engines.sort_by_key(|engine| (!engine.state().is_busy(), std::cmp::Reverse(engine.provider.last_used())));
    let requesters = node.servers.values().filter_map(|server| {
        let requester = server.requester.as_ref()?;
        requester.accelerators.as_ref()?.contains(uuid).then(|| requester.pod.name.clone())
    });
    GpuExplanation {
        uuid: uuid.clone(),
        index: indexes.get(uuid).copied(),
        requesters: requesters.collect(),
        next_victim: step::sleepers(node).into_iter().find(is_on).map(|engine| engine.provider.engine_id()),
        engines: engines.into_iter().map(EngineSummary::new).collect(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::coordinator::NODE;
    use crate::settings::Settings;

    /// Memory of a GPU in MiB, sleepers and what each of them retains, and the percentage that remains for the awake engine.
    // spec: DP-8
    #[rstest]
    #[case::l4("23034", 1, 4096, Some(82))]
    #[case::h100("81559", 1, 4096, Some(94))]
    #[case::h100_with_three_sleepers("81559", 3, 4096, Some(84))]
    #[case::smaller_residue("23034", 2, 2048, Some(82))]
    #[case::no_sleepers("23034", 0, 4096, Some(100))]
    #[case::nothing_remains("23034", 6, 4096, None)]
    #[case::not_labeled("", 1, 4096, None)]
    fn utilization_of_an_engine(
        #[case] memory: &str,
        #[case] sleeper_limit: usize,
        #[case] residue_mib: u64,
        #[case] expected: Option<u64>,
    ) {
        let node = json!({"metadata": {"name": "node", "labels": {MEMORY_LABEL: memory}}});
        let settings = Settings { sleeper_limit, residue_mib, ..Settings::default() };
        let view = ClusterView::new([(NODE, vec![node])], "default", settings);
        assert_eq!(view.explain_node("node", "default").utilization_percent, expected);
    }
}
