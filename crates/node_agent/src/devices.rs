//! The devices of nodes, as device plugins report them.

/// Lists the devices of nodes. The node agent allocates them to containers.
pub trait Devices: Send + Sync {
    /// Returns the IDs of the devices of `resource` on `node`, in the order of allocation. `allocatable` is their number in
    /// the status of the node. Without IDs, containers get none: no device plugin manages the resource.
    fn device_ids(&self, node: &str, resource: &str, allocatable: usize) -> Vec<String>;
}

/// Nodes without device plugins.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDevices;

impl Devices for NoDevices {
    fn device_ids(&self, _node: &str, _resource: &str, _allocatable: usize) -> Vec<String> {
        Vec::new()
    }
}
