//! Port of an engine, read from its Pod.

use serde_json::Value;

use crate::engine_container::engine_container;
use crate::launch::{self, ray};

/// Default port of an engine (topology.md).
pub(crate) const DEFAULT_PORT: u16 = 8000;

/// Returns the port that the engine of a Pod or of a Pod template of a role serves on: the declared one, or that of its flags,
/// or the default. `None` if it follows from a variable that is unknown. The port of the Ray head, which a leader declares in
/// addition, serves no requests.
#[must_use]
pub fn serving_port(pod: &Value) -> Option<u16> {
    let mut container = engine_container(pod)?.clone();
    if let Some(ports) = container["ports"].as_array_mut() {
        ports.retain(|port| port["containerPort"] != ray::PORT);
    }
    let declares_port = container["ports"].as_array().is_some_and(|ports| !ports.is_empty());
    if declares_port {
        return Some(launch::port(&container, DEFAULT_PORT));
    }
    let ray_port = ray::PORT.to_string();
    match launch::port_flags(&container).into_iter().find(|port| *port != ray_port) {
        Some(port) => port.parse().ok(),
        None => Some(DEFAULT_PORT),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::declared(json!({"args": ["--port=1"], "ports": [{"containerPort": 2}, {"containerPort": 3, "name": "http"}]}), Some(3))]
    #[case::flag(json!({"args": ["--port", "9000"]}), Some(9000))]
    #[case::default(json!({"args": ["--model", "m"]}), Some(8000))]
    #[case::variable(json!({"args": ["--port=$(PORT)"]}), None)]
    #[case::expanded_variable(json!({"args": ["--port=$(PORT)"], "env": [{"name": "PORT", "value": "9000"}]}), Some(9000))]
    #[case::beside_the_ray_head(
        json!({"args": ["ray start --head --port=6379 && vllm serve m --port 9000"], "ports": [{"containerPort": 6379}]}),
        Some(9000)
    )]
    #[case::default_beside_the_ray_head(
        json!({"args": ["ray start --head --port=6379 && vllm serve m"], "ports": [{"containerPort": 6379}]}),
        Some(8000)
    )]
    fn port_follows_from_the_pod(#[case] container: Value, #[case] expected: Option<u16>) {
        assert_eq!(serving_port(&json!({"spec": {"containers": [container]}})), expected);
    }
}
