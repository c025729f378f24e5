//! Accelerators of a provider: it requests none, and its engine uses those of the requester by their indexes.

use api::is_accelerator_resource;
use apimachinery::object::items;
use serde_json::{Value, json};

/// Variable with the indexes of the GPUs that a process may use.
pub(super) const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// Sets the requests and limits of every accelerator resource to zero.
pub(super) fn request_none(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        let resources = containers.filter_map(|container| container.get_mut("resources"));
        resources.for_each(|resources| {
            zero_amounts(resources, "limits");
            zero_amounts(resources, "requests");
        });
    }
}

fn zero_amounts(resources: &mut Value, list: &str) {
    let amounts = resources.get_mut(list).and_then(Value::as_object_mut).into_iter().flatten();
    amounts.filter(|(name, _)| is_accelerator_resource(name)).for_each(|(_, amount)| *amount = json!("0"));
}

/// Sets the environment variable with the visible devices, and removes other entries of the same name.
pub(super) fn set_visible_devices(container: &mut Value, indexes: &[u32]) {
    let indexes = indexes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut env: Vec<Value> = items(container.get("env")).filter(|entry| entry["name"] != VARIABLE).cloned().collect();
    env.push(json!({"name": VARIABLE, "value": indexes}));
    container["env"] = Value::Array(env);
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: DP-2
    #[test]
    fn every_accelerator_resource_is_zero() {
        let resources = json!({"limits": {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": "2", "cpu": "2"}, "requests": {"amd.com/gpu": "1", "rdma/ib": "1"}});
        let mut spec = json!({"containers": [{"name": "a", "resources": resources}, {"name": "b"}], "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
        request_none(&mut spec);
        let expected = json!({"limits": {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "0", "cpu": "2"}, "requests": {"amd.com/gpu": "0", "rdma/ib": "1"}});
        assert_eq!(spec["containers"][0]["resources"], expected);
        assert_eq!(spec["initContainers"][0]["resources"], json!({"limits": {"nvidia.com/gpu": "0"}}));
    }

    // spec: DP-28
    #[test]
    fn visible_devices_are_replaced() {
        let source = json!({"fieldRef": {"fieldPath": "metadata.name"}});
        let mut container = json!({"env": [{"name": VARIABLE, "valueFrom": source}, {"name": "A", "value": "1"}, {"name": VARIABLE, "value": "7"}]});
        set_visible_devices(&mut container, &[0, 3]);
        assert_eq!(container["env"], json!([{"name": "A", "value": "1"}, {"name": VARIABLE, "value": "0,3"}]));
    }
}
