//! Renders the result of the demo as text.

use std::net::SocketAddr;
use std::path::Path;

use super::tree::format_count;
use crate::demo::{DemoOutcome, ServiceOutcome, UnselectedCandidate};

/// Values for the example commands.
#[derive(Clone, Copy)]
pub(crate) struct SessionInfo<'a> {
    /// Path of the program as it was called, since it may not be on PATH.
    pub program: &'a str,
    pub gateway: SocketAddr,
    pub kubeconfig: &'a Path,
}

/// Renders the outcome, followed by example commands unless the demo exits (`once`).
pub(crate) fn render(outcome: &DemoOutcome, session: SessionInfo<'_>, once: bool) -> String {
    let request = &outcome.request;
    let mut lines = vec![String::new(), format!("Request to model {:?}:  {}", request.model, request.prompt)];
    lines.push(format!("  response  {}   (simulated engine)", request.completion.trim()));
    if let Some(service) = outcome.services.iter().find(|service| service.name == request.model) {
        lines.extend(decision_lines(service));
    }
    lines.push(format!("  routed    {}: {}", request.endpoint, request.decision));
    lines.push(format!(
        "  latency   first token {} ms, {} tokens in {:.2} s ({} prompt tokens); {} ms from start to first token",
        request.ttft_ms,
        request.completion_tokens,
        request.total_ms as f64 / 1000.0,
        request.prompt_tokens,
        outcome.start_to_first_token_ms
    ));
    if !once {
        lines.push(String::new());
        lines.push(example_commands(&request.model, session, Some("summarise")));
    }
    lines.join("\n")
}

/// Renders the selection, the next candidate and the nearest rejected candidate with their reasons.
fn decision_lines(service: &ServiceOutcome) -> Vec<String> {
    let line = |title: &str, candidate: &UnselectedCandidate| {
        format!("            {title}: {} — {}: {}", candidate.runtime, candidate.code, candidate.message)
    };
    let mut lines = vec![format!("  selected  {}", service.message)];
    lines.extend(
        service.runner_up.iter().filter(|candidate| !candidate.is_rejected).map(|candidate| line("next", candidate)),
    );
    let title = format!("rejected {}, nearest", format_count(service.rejected, "runtime"));
    lines.extend(service.nearest_rejected.iter().map(|candidate| line(&title, candidate)));
    lines
}

/// Renders example commands for a cluster without the demo.
pub(crate) fn next_steps(session: SessionInfo<'_>) -> String {
    example_commands("NAME", session, None)
}

/// Renders example commands. `service` is the service of the `explain` example.
fn example_commands(model: &str, session: SessionInfo<'_>, service: Option<&str>) -> String {
    let SessionInfo { program, gateway, .. } = session;
    let kubeconfig = session.kubeconfig.display();
    let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
    let mut lines = vec![
        format!("Try:  kubectl --kubeconfig {kubeconfig} get inference -A"),
        format!("      curl http://{gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"),
    ];
    // $KUBECONFIG would take precedence over the running `ostler up`.
    let explain_command = |name| format!("      {program} explain inferenceservice/{name} --kubeconfig {kubeconfig}");
    lines.extend(service.map(explain_command));
    lines.push("Press Ctrl-C to stop the cluster and all engines.".to_owned());
    lines.join("\n")
}
