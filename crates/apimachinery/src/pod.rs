//! What a Pod asks of a node, as kube-scheduler counts it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::quantity::Quantity;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// The sum over the containers of `pod`, or the largest init container where that is more (sidecars are summed), plus
/// the overhead. A limit without a request is a request. `pod` is a Pod or a pod template: only `spec` is read.
pub fn requests(pod: &Value) -> Amounts {
    let mut total = Amounts::new();
    for container in containers(pod, "containers") {
        add(&mut total, &container_requests(container));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in containers(pod, "initContainers") {
        let own = container_requests(container);
        if container["restartPolicy"] == "Always" {
            add(&mut sidecars, &own);
            continue;
        }
        let mut during = sidecars.clone();
        add(&mut during, &own);
        raise(&mut peak, &during);
    }
    add(&mut total, &sidecars);
    raise(&mut total, &peak);
    add(&mut total, &amounts(pod.pointer("/spec/overhead")));
    total
}

/// A map of quantities; what is no quantity is left out.
pub fn amounts(map: Option<&Value>) -> Amounts {
    let members = map.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.clone(), serde_json::from_value(value.clone()).ok()?))).collect()
}

/// Adds amounts, name by name.
pub fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *total.entry(name.clone()).or_insert(Quantity::ZERO) += *amount;
    }
}

fn containers<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    pod.get("spec").and_then(|spec| spec.get(list)?.as_array()).into_iter().flatten()
}

fn container_requests(container: &Value) -> Amounts {
    let mut own = amounts(container.pointer("/resources/limits"));
    own.extend(amounts(container.pointer("/resources/requests")));
    own
}

fn raise(total: &mut Amounts, floor: &Amounts) {
    for (name, amount) in floor {
        let slot = total.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = (*slot).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn init_containers_and_sidecars_count_as_the_scheduler_counts_them() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"limits": {"cpu": "500m"}}});
        let pod = json!({"spec": {
            "containers": [container("1"), container("2")],
            "initContainers": [sidecar, container("4")],
            "overhead": {"cpu": "100m"},
        }});
        assert_eq!(requests(&pod)["cpu"].to_string(), "4600m");
    }
}
