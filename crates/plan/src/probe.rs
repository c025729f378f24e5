//! Readiness probes. Engines accept connections before their model is loaded.

use serde_json::{Value, json};

use crate::launch::LaunchInfo;

/// Returns the default readiness probe: HTTP for engines whose `/health` succeeds only when they can serve, otherwise
/// TCP, as in upstream OME.
pub(crate) fn readiness(launch: &LaunchInfo, port: u16) -> Value {
    match launch.engine {
        Some("vllm" | "sglang") => health(port),
        _ => tcp(port),
    }
}

/// Returns an HTTP probe of `/health` on the serving port.
pub(crate) fn health(port: u16) -> Value {
    probe(json!({"httpGet": {"path": "/health", "port": port}}))
}

/// Returns a TCP probe of the serving port.
pub(crate) fn tcp(port: u16) -> Value {
    probe(json!({"tcpSocket": {"port": port}}))
}

/// Completes a probe with period and threshold.
fn probe(mut handler: Value) -> Value {
    handler["periodSeconds"] = json!(5);
    handler["failureThreshold"] = json!(3);
    handler
}
