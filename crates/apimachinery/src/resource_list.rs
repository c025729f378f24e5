//! Effective resource requests of a Pod, computed as in kube-scheduler.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::quantity::Quantity;

/// Quantities by resource name, like `ResourceList` of the core API.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Returns the effective requests of `pod`: the sum over its containers and sidecars, or the largest init container if
/// that is more, plus `spec.overhead`.
///
/// A limit without a request counts as the request. `pod` is a Pod or a pod template; only `spec` is read.
pub fn pod_requests(pod: &Value) -> ResourceList {
    let mut total = ResourceList::new();
    for container in containers(pod, "containers") {
        add_resources(&mut total, &container_requests(container));
    }
    let mut sidecars = ResourceList::new();
    let mut init_peak = ResourceList::new();
    for container in containers(pod, "initContainers") {
        let requests = container_requests(container);
        if container["restartPolicy"] == "Always" {
            add_resources(&mut sidecars, &requests);
            continue;
        }
        let mut running = sidecars.clone();
        add_resources(&mut running, &requests);
        raise_to_minimum(&mut init_peak, &running);
    }
    add_resources(&mut total, &sidecars);
    raise_to_minimum(&mut total, &init_peak);
    add_resources(&mut total, &parse_resource_list(pod.pointer("/spec/overhead")));
    total
}

/// Reads a map of quantities; entries that are not quantities are skipped.
pub fn parse_resource_list(map: Option<&Value>) -> ResourceList {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), serde_json::from_value(value.clone()).ok()?))).collect()
}

/// Adds `addend` to `total`, resource by resource.
pub fn add_resources(total: &mut ResourceList, addend: &ResourceList) {
    add_resources_of_pods(total, addend, 1);
}

/// Adds the resources of `count` Pods, which each have the resources `addend`, to `total`.
pub fn add_resources_of_pods(total: &mut ResourceList, addend: &ResourceList, count: u32) {
    if count == 0 {
        return;
    }
    for (name, quantity) in addend {
        *total.entry(name.clone()).or_insert(Quantity::ZERO) += *quantity * i64::from(count);
    }
}

fn containers<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    pod.get("spec").and_then(|spec| spec.get(field)?.as_array()).into_iter().flatten()
}

fn container_requests(container: &Value) -> ResourceList {
    let mut requests = parse_resource_list(container.pointer("/resources/limits"));
    requests.extend(parse_resource_list(container.pointer("/resources/requests")));
    requests
}

/// Raises each resource of `total` to at least its quantity in `minimum`.
fn raise_to_minimum(total: &mut ResourceList, minimum: &ResourceList) {
    for (name, quantity) in minimum {
        let current = total.entry(name.clone()).or_insert(Quantity::ZERO);
        *current = (*current).max(*quantity);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_of_any_number_of_pods_saturate() {
        let pod = parse_resource_list(Some(
            &json!({"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "9223372036854775807"}),
        ));
        let of_pods = |count: u32| {
            let mut total = ResourceList::new();
            add_resources_of_pods(&mut total, &pod, count);
            total.values().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of_pods(0), "");
        assert_eq!(of_pods(3), "1500m 3Gi 9223372036854775807");
        assert_eq!(of_pods(u32::MAX), "2147483647500m 4294967295Gi 9223372036854775807");
    }

    #[test]
    fn counts_init_containers_and_sidecars_as_kube_scheduler_does() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"limits": {"cpu": "500m"}}});
        let pod = json!({"spec": {
            "containers": [container("1"), container("2")],
            "initContainers": [sidecar, container("4")],
            "overhead": {"cpu": "100m"},
        }});
        assert_eq!(pod_requests(&pod)["cpu"].to_string(), "4600m");
    }
}
