//! The nodes with which `ostler up` starts: those of `--nodes`, otherwise those of the data directory, otherwise three
//! simulated ones.

use anyhow::Result;
use embedded::Store;
use serde_json::Value;

use crate::gpus::GpuInventory;
use crate::{host_node, node_groups};

/// Nodes with three kinds of accelerators, so that selection has alternatives.
const DEFAULT_NODES: &str = "big=8×H100-80G, mid=8×A100-40G, small=4×L40S";

/// The nodes with which `ostler up` starts.
pub(crate) struct StartNodes {
    /// The nodes to register.
    pub nodes: Vec<Value>,
    /// Whether simulated nodes of an earlier start that are not among `nodes` remain.
    pub retains_others: bool,
    /// The GPUs of this host if it is a node.
    pub gpus: GpuInventory,
}

// === impl StartNodes ===

impl StartNodes {
    /// Returns the `given` nodes of `--nodes`, with the GPUs of this host, or the nodes to use instead.
    pub(crate) fn new(given: Option<(Vec<Value>, GpuInventory)>, store: &Store) -> Result<Self> {
        let stored_nodes = store.objects("nodes");
        Ok(match given {
            Some((nodes, gpus)) => Self { nodes, retains_others: false, gpus },
            None if stored_nodes.is_empty() => Self::default_nodes()?,
            None => Self::stored(stored_nodes.iter().any(|node| host_node::is_host(node))),
        })
    }

    fn default_nodes() -> Result<Self> {
        let gpus = GpuInventory::default();
        let nodes = node_groups::to_nodes(&node_groups::parse(DEFAULT_NODES)?, &gpus);
        Ok(Self { nodes, retains_others: false, gpus })
    }

    /// Retains the stored nodes. The node of this host is registered again, because its GPUs may have changed.
    fn stored(includes_host: bool) -> Self {
        let gpus = if includes_host { GpuInventory::discover() } else { GpuInventory::default() };
        let nodes = if includes_host { vec![host_node::node(&gpus)] } else { Vec::new() };
        Self { nodes, retains_others: true, gpus }
    }
}
