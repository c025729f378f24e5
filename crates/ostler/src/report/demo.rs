//! The demo's answer and why, for people.

use std::net::SocketAddr;
use std::path::Path;

use crate::demo::{Loser, Outcome, ServiceOutcome};

/// What the lines to try are made of, so that they work as they stand.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    /// As it was called: after `cargo run` it is not on PATH.
    pub program: &'a str,
    pub gateway: SocketAddr,
    pub kubeconfig: &'a Path,
}

/// `once` leaves out what to try while it is up.
pub(crate) fn render(outcome: &Outcome, here: Here<'_>, once: bool) -> String {
    let request = &outcome.request;
    let mut lines = vec![String::new(), format!("A question for {:?}:  {}", request.model, request.question)];
    lines.push(format!("  answer    {}   (simulated engine)", request.answer.trim()));
    if let Some(service) = outcome.services.iter().find(|service| service.name == request.model) {
        lines.extend(decided(service));
    }
    lines.push(format!("  routed    {}: {}", request.endpoint, request.decision));
    lines.push(format!(
        "  took      first token {} ms, {} tokens in {:.2} s ({} prompt tokens); {} ms since the start",
        request.ttft_ms,
        request.completion_tokens,
        request.total_ms as f64 / 1000.0,
        request.prompt_tokens,
        outcome.start_to_first_token_ms
    ));
    if !once {
        lines.push(String::new());
        lines.push(attempts(&request.model, here, Some("summarise")));
    }
    lines.join("\n")
}

/// The choice; then who came next, and who was refused nearest, each with the reason.
fn decided(service: &ServiceOutcome) -> Vec<String> {
    let line = |title: &str, loser: &Loser| {
        format!("            {title}: {} — {}: {}", loser.runtime, loser.code, loser.message)
    };
    let mut lines = vec![format!("  decided   {}", service.message)];
    lines.extend(service.runner_up.iter().filter(|one| !one.rejected).map(|one| line("next", one)));
    let title = format!("rejected {} runtimes, nearest", service.rejected);
    lines.extend(service.nearest_rejected.iter().map(|one| line(&title, one)));
    lines
}

/// What to try with a cluster that has no demo in it.
pub(crate) fn invitation(here: Here<'_>) -> String {
    attempts("NAME", here, None)
}

/// `explained` is a service that there is something to say of.
fn attempts(model: &str, here: Here<'_>, explained: Option<&str>) -> String {
    let Here { program, gateway, .. } = here;
    let kubeconfig = here.kubeconfig.display();
    let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
    let mut lines = vec![
        format!("Try:  kubectl --kubeconfig {kubeconfig} get inference -A"),
        format!("      curl http://{gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"),
    ];
    // Without the kubeconfig, $KUBECONFIG would be asked first.
    let explain = |name| format!("      {program} explain inferenceservice/{name} --kubeconfig {kubeconfig}");
    lines.extend(explained.map(explain));
    lines.push("Ctrl-C ends everything that was started here.".to_owned());
    lines.join("\n")
}
