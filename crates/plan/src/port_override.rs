//! Ports of a runtime whose `--port` flag a stronger source overrides.

use serde_json::{Map, Value, json};

use crate::launch;

/// Fields of a container with handlers that may send requests to the engine.
const PROBES: [&str; 3] = ["readinessProbe", "livenessProbe", "startupProbe"];
/// Lifecycle hooks of a container, which may send requests to the engine.
const HOOKS: [&str; 2] = ["postStart", "preStop"];
/// Fields of a handler that contain a port.
const ACTIONS: [&str; 3] = ["httpGet", "tcpSocket", "grpc"];

/// Moves the declared port, the probes and the lifecycle hooks of the runtime's container to the port in the flags of the merged
/// command: the engine does not serve on the previous one. Does nothing if a command starts several servers, or if the runtime
/// declares both ports.
pub(crate) fn follow_port_flag(runtime: &mut Map<String, Value>, merged: &Value) {
    let runtime_ports = launch::port_flags(&Value::Object(runtime.clone()));
    let mut merged_ports = launch::port_flags(merged);
    // The last flag of a command applies; that of the runtime may precede it.
    merged_ports.retain(|port| !runtime_ports.contains(port));
    let [Some(from), Some(to)] = [only_port(&runtime_ports), only_port(&merged_ports)] else { return };
    let declares = |port: &Value| port["containerPort"] == to;
    if runtime.get("ports").and_then(Value::as_array).is_some_and(|ports| ports.iter().any(declares)) {
        return;
    }
    for port in runtime.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        replace_port(port, "containerPort", from, to);
    }
    for handler in PROBES {
        move_handler(runtime.get_mut(handler), from, to);
    }
    for hook in HOOKS {
        move_handler(runtime.get_mut("lifecycle").and_then(|lifecycle| lifecycle.get_mut(hook)), from, to);
    }
}

fn only_port(flags: &[String]) -> Option<u16> {
    match flags {
        [port] => port.parse().ok(),
        _ => None,
    }
}

fn move_handler(handler: Option<&mut Value>, from: u16, to: u16) {
    let Some(handler) = handler else { return };
    for action in ACTIONS {
        handler.get_mut(action).into_iter().for_each(|action| replace_port(action, "port", from, to));
    }
}

fn replace_port(object: &mut Value, field: &str, from: u16, to: u16) {
    if let Some(port) = object.get_mut(field).filter(|port| **port == from) {
        *port = json!(to);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::moved(json!(["--port=9001"]), 9001)]
    #[case::after_the_flag_of_the_runtime(json!(["--port", "8080", "--port", "9001"]), 9001)]
    #[case::same(json!(["--port=8080"]), 8080)]
    #[case::no_flag(json!(["--model=m"]), 8080)]
    #[case::declared_by_the_runtime(json!(["--port=9090"]), 8080)]
    #[case::several_servers(json!(["ray start --port=6379 && vllm serve m --port 9001"]), 8080)]
    #[case::variable(json!(["--port=$(PORT)"]), 8080)]
    #[case::not_a_port(json!(["--port=90010"]), 8080)]
    fn ports_and_probes_follow_the_flag(#[case] args: Value, #[case] expected: u16) {
        let container = |port: u16| {
            json!({
                "args": ["--port", "8080"],
                "ports": [{"containerPort": port, "name": "http"}, {"containerPort": 9090, "name": "metrics"}],
                "readinessProbe": {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 5},
                "livenessProbe": {"tcpSocket": {"port": "http"}},
                "startupProbe": {"grpc": {"port": port}},
                "lifecycle": {"preStop": {"httpGet": {"path": "/drain", "port": port}}}
            })
        };
        let Value::Object(mut runtime) = container(8080) else { unreachable!() };
        follow_port_flag(&mut runtime, &json!({"args": args}));
        assert_eq!(Value::Object(runtime), container(expected));
    }
}
