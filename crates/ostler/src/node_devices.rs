//! The devices of the nodes of `ostler up`: those of the host, and simulated ones.

use embedded::ports::Devices;

use crate::gpus::HostAccelerators;
use crate::node_groups::is_accelerator_resource;
use crate::simulated_devices::simulated_ids;

/// Lists the devices of all nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeDevices {
    /// Name and accelerators of the node of this host, if there is one.
    pub host: Option<(String, HostAccelerators)>,
}

// === impl NodeDevices ===

impl Devices for NodeDevices {
    fn device_ids(&self, node: &str, resource: &str, allocatable: usize) -> Vec<String> {
        match &self.host {
            Some((host, accelerators)) if host == node => {
                if accelerators.resource == resource {
                    accelerators.ids.clone()
                } else {
                    Vec::new()
                }
            }
            _ if is_accelerator_resource(resource) => simulated_ids(node, resource, allocatable),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::host("host", "nvidia.com/gpu", 1)]
    #[case::other_resource_of_the_host("host", "amd.com/gpu", 0)]
    #[case::simulated("big-0", "nvidia.com/gpu", 8)]
    #[case::other_vendor("big-0", "amd.com/gpu", 8)]
    #[case::no_accelerator("big-0", "example.com/license", 0)]
    fn nodes_have_devices(#[case] node: &str, #[case] resource: &str, #[case] expected: usize) {
        let accelerators = HostAccelerators {
            resource: "nvidia.com/gpu".into(),
            ids: vec!["GPU-a".into()],
            ..HostAccelerators::default()
        };
        let devices = NodeDevices { host: Some(("host".into(), accelerators)) };
        assert_eq!(devices.device_ids(node, resource, 8).len(), expected);
    }
}
