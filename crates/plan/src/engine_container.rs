//! The container of a Pod template that runs the engine.

use serde_json::Value;

use crate::accelerator_request::requested_accelerators;
use crate::launch;

/// Returns the container that serves requests: the one with a port named `http`, otherwise the one that requests
/// accelerators, otherwise the one that starts a known engine, otherwise the first one.
pub(crate) fn engine_container(template: &Value) -> Option<&Value> {
    let containers = template.pointer("/spec/containers")?.as_array()?;
    let criteria: [fn(&Value) -> bool; 3] = [
        |container| container["ports"].as_array().is_some_and(|ports| ports.iter().any(|port| port["name"] == "http")),
        |container| requested_accelerators(&container["resources"]).is_some(),
        |container| launch::inspect(container).engine.is_some(),
    ];
    criteria
        .iter()
        .find_map(|matches| containers.iter().find(|container| matches(container)))
        .or_else(|| containers.first())
}

/// Returns the index of the container of [`engine_container`]; 0 without containers.
pub(crate) fn engine_container_index(template: &Value) -> usize {
    let containers = template.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let name = engine_container(template).and_then(|container| container.get("name"));
    containers.into_iter().position(|container| container.get("name") == name).unwrap_or_default()
}

/// Returns the container of [`engine_container`] mutably.
pub(crate) fn engine_container_mut(template: &mut Value) -> Option<&mut Value> {
    let name = engine_container(template)?.get("name").cloned();
    let containers = template.pointer_mut("/spec/containers")?.as_array_mut()?;
    containers.iter_mut().find(|container| container.get("name") == name.as_ref())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::by_port(json!([{"name": "x", "image": "vllm"}, {"name": "e", "ports": [{"name": "http"}]}]), "e")]
    #[case::by_accelerators(json!([{"name": "x", "image": "vllm-log"}, {"name": "e", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]), "e")]
    #[case::by_engine(json!([{"name": "x", "ports": [{"name": "metrics", "containerPort": 9100}]}, {"name": "e", "image": "lmsysorg/sglang:v1"}]), "e")]
    #[case::first(json!([{"name": "e", "image": "a"}, {"name": "x", "image": "b"}]), "e")]
    fn finds_the_engine_container(#[case] containers: Value, #[case] expect: &str) {
        assert_eq!(engine_container(&json!({"spec": {"containers": containers}})).unwrap()["name"], expect);
    }
}
