//! The demo's answer and why, for people.

use std::path::Path;

use crate::demo::Outcome;

/// `stays` adds the lines to try while it is up.
pub(crate) fn render(outcome: &Outcome, gateway: &str, kubeconfig: &Path, once: bool) -> String {
    let request = &outcome.request;
    let mut lines = vec![String::new(), format!("A question for {:?}:  {}", request.model, request.question)];
    lines.push(format!("  answer    {}   (simulated engine)", request.answer.trim()));
    if let Some(service) = outcome.services.iter().find(|service| service.name == request.model) {
        lines.push(format!("  decided   {}", service.message));
        if let Some(loser) = &service.runner_up {
            lines.push(format!("            nearest loser: {} — {}: {}", loser.runtime, loser.code, loser.message));
        }
    }
    lines.push(format!("  routed    {}: {}", request.endpoint, request.decision));
    lines.push(format!(
        "  took      first token {} ms, {} tokens in {} ms ({} prompt tokens); {} ms since the start",
        request.ttft_ms,
        request.completion_tokens,
        request.total_ms,
        request.prompt_tokens,
        outcome.start_to_first_token_ms
    ));
    if !once {
        lines.extend(invitation(&request.model, gateway, kubeconfig));
    }
    lines.join("\n")
}

fn invitation(model: &str, gateway: &str, kubeconfig: &Path) -> Vec<String> {
    let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
    vec![
        String::new(),
        format!("Try:  kubectl --kubeconfig {} get inference -A", kubeconfig.display()),
        format!("      curl {gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"),
        "      ostler explain inferenceservice/summarise".to_owned(),
        "Ctrl-C ends everything that was started here.".to_owned(),
    ]
}
