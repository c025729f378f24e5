//! When an engine counts as ready: an engine accepts connections long before its model is loaded.

use serde_json::{Value, json};

use crate::launch::Launch;

/// The readiness probe of a component whose runtime and service state none: HTTP where the engine is known to answer
/// `/health` only when it can serve, else TCP, as upstream has it.
pub(crate) fn readiness(launch: &Launch, port: u16) -> Value {
    let mut probe = match launch.engine {
        Some("vllm" | "sglang") => json!({"httpGet": {"path": "/health", "port": port}}),
        _ => json!({"tcpSocket": {"port": port}}),
    };
    probe["periodSeconds"] = json!(5);
    probe["failureThreshold"] = json!(3);
    probe
}
