//! The record of allocated devices in the status of a Pod. Pure.

use std::collections::BTreeMap;

use apimachinery::object;
use serde_json::{Value, json};

/// IDs of the devices of a container by resource.
pub(crate) type ContainerDevices = BTreeMap<String, Vec<String>>;

/// Devices of a Pod by container.
pub(crate) type PodDevices = BTreeMap<String, ContainerDevices>;

/// Returns the value of `allocatedResourcesStatus`.
pub(crate) fn allocated_resources_status(devices: &ContainerDevices) -> Value {
    let health = |id: &String| json!({"resourceID": id, "health": "Healthy"});
    let resource = |(name, ids): (&String, &Vec<String>)| json!({"name": name, "resources": ids.iter().map(health).collect::<Vec<_>>()});
    devices.iter().map(resource).collect()
}

/// Returns the devices in `allocatedResourcesStatus` of all containers.
pub(crate) fn recorded_devices(pod: &Value) -> PodDevices {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let statuses = statuses.into_iter().flat_map(|field| list(pod.pointer(field)));
    let devices = |status: &Value| -> ContainerDevices {
        let resources = list(status.get("allocatedResourcesStatus")).into_iter().map(|resource| {
            let ids =
                list(resource.get("resources")).iter().map(|id| object::text(id, "/resourceID").to_owned()).collect();
            (object::text(&resource, "/name").to_owned(), ids)
        });
        resources.collect()
    };
    let containers = statuses.map(|status| (object::text(&status, "/name").to_owned(), devices(&status)));
    containers.filter(|(_, devices)| !devices.is_empty()).collect()
}
