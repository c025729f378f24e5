//! The starts of the demo of dual pods, and their text.

use serde::Serialize;

use super::demo::{RequestOutcome, SessionInfo};

/// One start of a model. Its JSON form is the stable output of `--demo actuation -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelStart {
    /// Number of the start, from 1.
    pub start: u32,
    pub model: String,
    pub path: StartPath,
    /// Name of the Pod of the engine.
    pub provider: String,
    /// Names of the Pods whose engines were deleted for this one.
    pub evicted: Vec<String>,
    /// Milliseconds until the requester was ready: the sum of the parts.
    pub total_ms: u64,
    pub parts: StartParts,
    pub request: RequestOutcome,
}

/// How a model got its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StartPath {
    /// A Pod was created, and the engine loaded the model.
    Cold,
    /// A sleeping engine was woken.
    Hot,
}

/// The parts of a start in milliseconds, in their order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartParts {
    /// Until the requester runs.
    pub requester_ms: u64,
    /// Until an engine is bound to it.
    pub bound_ms: u64,
    /// Until the engine has loaded its model or woken up, and pools select it.
    pub engine_ms: u64,
    /// Until the requester is ready.
    pub ready_ms: u64,
}

/// Renders a start: its path and parts, and the request after it.
pub(crate) fn render(start: &ModelStart) -> String {
    let ModelStart { model, path, parts, request, .. } = start;
    let (path, engine) = match path {
        StartPath::Cold => ("cold", "loaded"),
        StartPath::Hot => ("hot", "woken"),
    };
    let seconds = |ms: u64| format!("{:.2}", ms as f64 / 1000.0);
    let parts = format!(
        "requester runs {}, bound {}, {engine} {}, ready {}",
        seconds(parts.requester_ms),
        seconds(parts.bound_ms),
        seconds(parts.engine_ms),
        seconds(parts.ready_ms)
    );
    let mut lines = vec![format!("{model:<8} {path:<4} {:>5} s  {parts}", seconds(start.total_ms))];
    if !start.evicted.is_empty() {
        lines.push(format!("         deleted Pod {}", start.evicted.join(", ")));
    }
    lines.push(format!("         question  {}", request.prompt));
    lines.push(format!(
        "         answer    {}  (simulated engine; first token {} ms; {})",
        request.completion.trim(),
        request.ttft_ms,
        request.endpoint
    ));
    lines.join("\n")
}

/// Renders example commands for after the demo.
pub(crate) fn next_steps(session: &SessionInfo) -> String {
    let SessionInfo { program, kubeconfig, .. } = session;
    let kubeconfig = kubeconfig.display();
    [
        format!("Try:  kubectl --kubeconfig {kubeconfig} get pods -L dual-pods.llm-d.ai/sleeping"),
        format!("      {program} explain node/l40s-0 --kubeconfig {kubeconfig}"),
        format!("      kubectl --kubeconfig {kubeconfig} scale replicaset granite --replicas=1"),
        "Press Ctrl-C to stop the cluster and all engines.".to_owned(),
    ]
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_rendered_with_their_parts() {
        let request = RequestOutcome {
            model: "qwen".to_owned(),
            prompt: "Why?".to_owned(),
            endpoint: "qwen-x-dual-b (127.0.0.2:8000)".to_owned(),
            decision: String::new(),
            completion: " Because. ".to_owned(),
            prompt_tokens: 1,
            completion_tokens: 2,
            ttft_ms: 12,
            total_ms: 20,
        };
        let parts = StartParts { requester_ms: 400, bound_ms: 90, engine_ms: 5600, ready_ms: 300 };
        let start = ModelStart {
            start: 1,
            model: "qwen".to_owned(),
            path: StartPath::Cold,
            provider: "qwen-x-dual-b".to_owned(),
            evicted: vec!["llama-y-dual-c".to_owned()],
            total_ms: 6390,
            parts,
            request,
        };
        assert_eq!(
            render(&start),
            "qwen     cold  6.39 s  requester runs 0.40, bound 0.09, loaded 5.60, ready 0.30\n         deleted Pod llama-y-dual-c\n         question  Why?\n         answer    Because.  (simulated engine; first token 12 ms; qwen-x-dual-b (127.0.0.2:8000))"
        );
    }
}
