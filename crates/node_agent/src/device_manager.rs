//! Allocates devices to the containers of Pods, like the device manager of the kubelet: when the node admits the Pod, until all
//! of its containers have ended. `status.containerStatuses[].allocatedResourcesStatus` records the allocation, also for the
//! next start of the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::{object, parse_resource_list};
use serde_json::Value;

use crate::device_status::{ContainerDevices, PodDevices, recorded_devices};
use crate::devices::Devices;
use crate::specs::container_specs;
use crate::status::ContainerRole;

/// Devices of Pods by Pod UID.
type NodeDevices = BTreeMap<String, PodDevices>;

/// Devices of all nodes and their allocation.
pub(crate) struct DeviceManager {
    devices: Arc<dyn Devices>,
    /// Allocations by node.
    nodes: Mutex<BTreeMap<String, NodeDevices>>,
}

/// A node has fewer free devices than a Pod requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Allocate failed due to requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}, which is unexpected"
)]
pub(crate) struct InsufficientDevices {
    resource: String,
    requested: usize,
    available: usize,
}

// === impl DeviceManager ===

impl DeviceManager {
    pub(crate) fn new(devices: Arc<dyn Devices>) -> Self {
        Self { devices, nodes: Mutex::default() }
    }

    /// Allocates the devices that the Pod requests on `node`, unless it has devices already.
    ///
    /// # Errors
    /// Too few devices are free. The Pod has none then.
    pub(crate) fn allocate(&self, pod: &Value, node: &Value) -> Result<(), InsufficientDevices> {
        let mut nodes = self.nodes();
        let pods = nodes.entry(object::name(node).to_owned()).or_default();
        if pods.contains_key(object::uid(pod)) {
            return Ok(());
        }
        let mut allocation = Allocation { devices: &*self.devices, node, allocated: allocated_ids(pods) };
        let devices = allocation.allocate(pod)?;
        if !devices.is_empty() {
            pods.insert(object::uid(pod).to_owned(), devices);
        }
        Ok(())
    }

    /// Restores the allocation that the status of the Pod records.
    pub(crate) fn restore(&self, pod: &Value) {
        let devices = recorded_devices(pod);
        if !devices.is_empty() {
            let node = object::text(pod, "/spec/nodeName").to_owned();
            self.nodes().entry(node).or_default().insert(object::uid(pod).to_owned(), devices);
        }
    }

    /// Releases the devices of the Pod.
    pub(crate) fn release(&self, pod: &Value) {
        let (mut nodes, node) = (self.nodes(), object::text(pod, "/spec/nodeName"));
        if let Some(pods) = nodes.get_mut(node) {
            pods.remove(object::uid(pod));
            if pods.is_empty() {
                nodes.remove(node);
            }
        }
    }

    /// Returns the devices of a container of the Pod.
    pub(crate) fn container_devices(&self, pod: &Value, container: &str) -> ContainerDevices {
        let nodes = self.nodes();
        let pods = nodes.get(object::text(pod, "/spec/nodeName"));
        pods.and_then(|pods| pods.get(object::uid(pod))?.get(container)).cloned().unwrap_or_default()
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, NodeDevices>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The allocation of one Pod.
struct Allocation<'a> {
    devices: &'a dyn Devices,
    node: &'a Value,
    /// IDs of other Pods, or of containers of this Pod that run at the same time.
    allocated: BTreeSet<String>,
}

impl Allocation<'_> {
    /// Returns the devices of all containers. As in the kubelet, a container may get devices of an init container, which
    /// has ended when it starts; the devices of a sidecar are not shared.
    fn allocate(&mut self, pod: &Value) -> Result<PodDevices, InsufficientDevices> {
        let mut pod_devices = PodDevices::new();
        let mut reusable = BTreeSet::new();
        for (role, spec) in container_specs(pod) {
            let mut container_devices = ContainerDevices::new();
            for (resource, count) in requested_devices(&spec) {
                let ids = self.allocate_resource(&resource, count, &mut reusable)?;
                if !ids.is_empty() {
                    container_devices.insert(resource, ids);
                }
            }
            if role == ContainerRole::Init {
                reusable.extend(container_devices.values().flatten().cloned());
            }
            if !container_devices.is_empty() {
                pod_devices.insert(object::text(&spec, "/name").to_owned(), container_devices);
            }
        }
        Ok(pod_devices)
    }

    /// Allocates `count` devices, those in `reusable` first. No IDs if no device plugin manages the resource.
    fn allocate_resource(
        &mut self,
        resource: &str,
        count: usize,
        reusable: &mut BTreeSet<String>,
    ) -> Result<Vec<String>, InsufficientDevices> {
        let allocatable = parse_resource_list(self.node.pointer("/status/allocatable"));
        let allocatable = allocatable.get(resource).map_or(0, |amount| usize::try_from(amount.value()).unwrap_or(0));
        let all = self.devices.device_ids(object::name(self.node), resource, allocatable);
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let (reused, others): (Vec<String>, Vec<String>) = all.into_iter().partition(|id| reusable.contains(id));
        let free = others.into_iter().filter(|id| !self.allocated.contains(id));
        let ids: Vec<String> = reused.into_iter().chain(free).take(count).collect();
        if ids.len() < count {
            let resource = resource.to_owned();
            return Err(InsufficientDevices { resource, requested: count, available: ids.len() });
        }
        for id in &ids {
            reusable.remove(id);
            self.allocated.insert(id.clone());
        }
        Ok(ids)
    }
}

/// Returns the limits of extended resources, which are the requests too.
fn requested_devices(spec: &Value) -> impl Iterator<Item = (String, usize)> {
    let limits = parse_resource_list(spec.pointer("/resources/limits"));
    let count = |(name, amount): (String, apimachinery::Quantity)| {
        Some((name, usize::try_from(amount.value()).ok().filter(|count| *count > 0)?))
    };
    limits.into_iter().filter(|(name, _)| name.contains('/')).filter_map(count)
}

fn allocated_ids(pods: &NodeDevices) -> BTreeSet<String> {
    pods.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values).flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::device_status::allocated_resources_status;

    const GPU: &str = "nvidia.com/gpu";

    /// Each GPU has its number as ID.
    struct NumberedGpus;

    impl Devices for NumberedGpus {
        fn device_ids(&self, node: &str, resource: &str, allocatable: usize) -> Vec<String> {
            (0..allocatable).filter(|_| resource == GPU).map(|number| format!("{node}/{number}")).collect()
        }
    }

    fn manager() -> DeviceManager {
        DeviceManager::new(Arc::new(NumberedGpus))
    }

    fn node() -> Value {
        json!({"metadata": {"name": "n"}, "status": {"allocatable": {GPU: "2", "example.com/license": "9"}}})
    }

    fn container(name: &str, gpus: &str) -> Value {
        json!({"name": name, "resources": {"limits": {GPU: gpus, "cpu": "1", "example.com/license": "1"}}})
    }

    fn pod(uid: &str, init: &[Value], main: &[Value]) -> Value {
        json!({"metadata": {"uid": uid}, "spec": {"nodeName": "n", "initContainers": init, "containers": main}})
    }

    fn devices(manager: &DeviceManager, pod: &Value, container: &str) -> Vec<String> {
        manager.container_devices(pod, container).remove(GPU).unwrap_or_default()
    }

    #[test]
    fn each_device_has_one_pod_until_it_is_released() {
        let (manager, node) = (manager(), node());
        let [first, second, third] = ["a", "b", "c"].map(|uid| pod(uid, &[], &[container("main", "1")]));
        manager.allocate(&first, &node).unwrap();
        manager.allocate(&second, &node).unwrap();
        assert_eq!([&first, &second].map(|pod| devices(&manager, pod, "main")), [["n/0"], ["n/1"]]);
        let error = manager.allocate(&third, &node).unwrap_err();
        let message = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, \
                       Available: 0, which is unexpected";
        assert_eq!(error.to_string(), message);
        manager.release(&first);
        manager.allocate(&third, &node).unwrap();
        assert_eq!(devices(&manager, &third, "main"), ["n/0"]);
        assert!(devices(&manager, &first, "main").is_empty());
    }

    #[test]
    fn repeated_allocation_returns_the_same_devices() {
        let (manager, node) = (manager(), node());
        let pod = pod("a", &[], &[container("main", "1")]);
        manager.allocate(&pod, &node).unwrap();
        manager.allocate(&pod, &node).unwrap();
        assert_eq!(devices(&manager, &pod, "main"), ["n/0"]);
    }

    #[test]
    fn containers_reuse_devices_of_init_containers_but_not_of_sidecars() {
        let mut sidecar = container("sidecar", "1");
        sidecar["restartPolicy"] = json!("Always");
        let (manager, node) = (manager(), node());
        let pod = pod("a", &[container("init", "1"), sidecar], &[container("main", "1")]);
        manager.allocate(&pod, &node).unwrap();
        let actual = ["init", "sidecar", "main"].map(|name| devices(&manager, &pod, name));
        assert_eq!(actual, [["n/0"], ["n/0"], ["n/1"]]);
    }

    #[rstest]
    #[case::zero("0")]
    #[case::negative("-1")]
    #[case::invalid("many")]
    fn container_without_requests_gets_no_devices(#[case] gpus: &str) {
        let (manager, node) = (manager(), node());
        let pod = pod("a", &[], &[container("main", gpus)]);
        manager.allocate(&pod, &node).unwrap();
        assert!(manager.container_devices(&pod, "main").is_empty(), "`example.com/license` has no device plugin");
    }

    #[test]
    fn status_restores_the_allocation() {
        let (first, node) = (manager(), node());
        let mut old = pod("a", &[], &[container("main", "1")]);
        first.allocate(&old, &node).unwrap();
        let status = allocated_resources_status(&first.container_devices(&old, "main"));
        assert_eq!(status, json!([{"name": GPU, "resources": [{"resourceID": "n/0", "health": "Healthy"}]}]));
        old["status"] = json!({"containerStatuses": [{"name": "main", "allocatedResourcesStatus": status}]});
        let second = manager();
        second.restore(&old);
        let new = pod("b", &[], &[container("main", "1")]);
        second.allocate(&new, &node).unwrap();
        assert_eq!([&old, &new].map(|pod| devices(&second, pod, "main")), [["n/0"], ["n/1"]]);
    }
}
