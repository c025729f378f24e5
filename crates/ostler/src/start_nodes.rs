//! The nodes with which `ostler up` starts: those of `--nodes`, otherwise those of the data directory, otherwise three
//! simulated ones.

use anyhow::Result;
use embedded::Store;
use serde_json::Value;

use crate::gpus::HostAccelerators;
use crate::{host_node, node_groups};

/// Nodes with three kinds of accelerators, so that selection has alternatives.
const DEFAULT_NODES: &str = "big=8×H100-80G, mid=8×A100-40G, small=4×L40S";

/// The nodes with which `ostler up` starts.
pub(crate) struct StartNodes {
    /// The nodes to register.
    pub nodes: Vec<Value>,
    /// Whether simulated nodes of an earlier start that are not among `nodes` remain.
    pub retains_others: bool,
    /// The accelerators of this host if it is a node.
    pub accelerators: HostAccelerators,
}

// === impl StartNodes ===

impl StartNodes {
    /// Returns the `given` nodes of `--nodes`, with the accelerators of this host, or the nodes to use instead.
    pub(crate) fn new(given: Option<(Vec<Value>, HostAccelerators)>, store: &Store) -> Result<Self> {
        let stored_nodes = store.objects("nodes");
        Ok(match given {
            Some((nodes, accelerators)) => Self { nodes, retains_others: false, accelerators },
            None if stored_nodes.is_empty() => Self::default_nodes()?,
            None => Self::stored(stored_nodes.iter().find(|node| host_node::is_host(node)).map(|node| &**node)),
        })
    }

    fn default_nodes() -> Result<Self> {
        let accelerators = HostAccelerators::default();
        let nodes = node_groups::to_nodes(&node_groups::parse(DEFAULT_NODES)?, &accelerators);
        Ok(Self { nodes, retains_others: false, accelerators })
    }

    /// Retains the stored nodes. The node of this host is registered again, because its GPUs may have changed.
    fn stored(host: Option<&Value>) -> Self {
        let Some(host) = host else {
            return Self { nodes: Vec::new(), retains_others: true, accelerators: HostAccelerators::default() };
        };
        let accelerators = node_groups::stored_accelerators(host).unwrap_or_else(HostAccelerators::discover);
        Self { nodes: vec![host_node::node(&accelerators)], retains_others: true, accelerators }
    }
}
