//! When an engine counts as ready: an engine accepts connections long before its model is loaded.

use serde_json::{Value, json};

use crate::launch::Launch;

/// The readiness probe of a component whose runtime and service state none: HTTP where the engine is known to answer
/// `/health` only when it can serve, else TCP, as upstream has it.
pub(crate) fn readiness(launch: &Launch, port: u16) -> Value {
    match launch.engine {
        Some("vllm" | "sglang") => health(port),
        _ => tcp(port),
    }
}

/// HTTP on the serving port.
pub(crate) fn health(port: u16) -> Value {
    probe(json!({"httpGet": {"path": "/health", "port": port}}))
}

/// Something listens.
pub(crate) fn tcp(port: u16) -> Value {
    probe(json!({"tcpSocket": {"port": port}}))
}

fn probe(mut handler: Value) -> Value {
    handler["periodSeconds"] = json!(5);
    handler["failureThreshold"] = json!(3);
    handler
}
