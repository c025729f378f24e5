//! The result of the demo, and its text.

use std::net::SocketAddr;
use std::path::PathBuf;

use plan::{DecisionRecord, NearestRuntime, recorded_components};
use serde::Serialize;
use serde_json::Value;

use super::names::format_count;

/// The result of the demo. Its JSON form is the stable output of `--demo -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DemoOutcome {
    pub services: Vec<ServiceOutcome>,
    pub request: RequestOutcome,
    /// Milliseconds from the start of the process to the first token.
    pub start_to_first_token_ms: u64,
}

/// The decision for a service of the demo.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceOutcome {
    pub kind: String,
    pub name: String,
    pub runtime: Option<String>,
    pub accelerator_class: Option<String>,
    /// The best candidate that was not selected.
    pub runner_up: Option<UnselectedCandidate>,
    /// The rejected candidate that passed the most checks.
    pub nearest_rejected: Option<UnselectedCandidate>,
    /// Number of rejected candidates.
    pub rejected: usize,
    /// Message of the decision.
    pub message: String,
    #[serde(skip)]
    pub is_feasible: bool,
}

/// A candidate that was not selected, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct UnselectedCandidate {
    pub runtime: String,
    pub code: String,
    pub message: String,
    #[serde(skip)]
    pub is_rejected: bool,
}

/// The request of the demo, its routing and its response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestOutcome {
    pub model: String,
    #[serde(rename = "question")]
    pub prompt: String,
    pub endpoint: String,
    /// Reason for the endpoint, as reported by the gateway.
    pub decision: String,
    #[serde(rename = "answer")]
    pub completion: String,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub ttft_ms: u64,
    pub total_ms: u64,
}

/// Values for the example commands.
pub(crate) struct SessionInfo {
    /// Path of the program as it was called, since it may not be on PATH.
    pub program: String,
    pub gateway: SocketAddr,
    pub kubeconfig: PathBuf,
}

// === impl ServiceOutcome ===

impl ServiceOutcome {
    /// Returns whether the service has a decision; role-based services have none.
    pub(crate) fn has_decision(&self) -> bool {
        !self.message.is_empty()
    }

    /// Returns the decision in the status of a service.
    pub(crate) fn from_service(service: &Value) -> Self {
        let status = &service["status"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let record = DecisionRecord::from_status(status);
        let is_feasible = record.as_ref().is_some_and(|record| record.feasible);
        let engine = recorded_components(status).remove("engine");
        let runtime = record.as_ref().and_then(|record| Some(record.runtime.as_ref()?.name.clone()));
        let message = record.as_ref().map(|record| record.message.clone()).unwrap_or_default();
        let candidates = record.map(|record| record.candidates).unwrap_or_default();
        Self {
            kind: text(&service["kind"]).unwrap_or_default(),
            name: text(&service["metadata"]["name"]).unwrap_or_default(),
            runtime,
            accelerator_class: engine.and_then(|engine| engine.accelerator_class),
            runner_up: candidates.nearest.first().cloned().map(UnselectedCandidate::from),
            nearest_rejected: candidates
                .nearest
                .iter()
                .find(|candidate| !candidate.is_outranked())
                .cloned()
                .map(UnselectedCandidate::from),
            rejected: candidates.rejected.total(),
            message,
            is_feasible,
        }
    }
}

// === impl UnselectedCandidate ===

impl From<NearestRuntime> for UnselectedCandidate {
    fn from(candidate: NearestRuntime) -> Self {
        let is_rejected = !candidate.is_outranked();
        let NearestRuntime { runtime, code, message } = candidate;
        Self { runtime, code, message, is_rejected }
    }
}

/// Renders the outcome, followed by example commands unless the demo exits (`once`).
pub(crate) fn render(outcome: &DemoOutcome, session: &SessionInfo, once: bool) -> String {
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
        lines.push(example_commands(&request.model, session, Some((picker::DEFAULT_NAMESPACE, "summarise"))));
    }
    lines.join("\n")
}

/// Renders the selection, the next candidate and the nearest rejected candidate with their reasons. If something is selected, the
/// reasons are without the details of each class, which `ostler explain` prints.
fn decision_lines(service: &ServiceOutcome) -> Vec<String> {
    let line = |title: &str, candidate: &UnselectedCandidate| {
        let reason = candidate.message.split(": ").next().filter(|_| service.is_feasible);
        let reason = reason.unwrap_or(&candidate.message);
        format!("            {title}: {} — {}: {reason}", candidate.runtime, candidate.code)
    };
    let title = if service.is_feasible { "selected" } else { "rejected" };
    let mut lines = vec![format!("  {title}  {}", service.message)];
    lines.extend(
        service.runner_up.iter().filter(|candidate| !candidate.is_rejected).map(|candidate| line("next", candidate)),
    );
    let title = format!("rejected {}, nearest", format_count(service.rejected, "runtime"));
    lines.extend(service.nearest_rejected.iter().map(|candidate| line(&title, candidate)));
    lines
}

/// Renders the decisions for services.
pub(crate) fn decisions(services: &[ServiceOutcome]) -> String {
    let block = |service: &ServiceOutcome| format!("{}:\n{}", service.name, decision_lines(service).join("\n"));
    services.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// Renders example commands for a cluster without the demo. `service` is the namespace and name of one of its services.
pub(crate) fn next_steps(session: &SessionInfo, service: Option<(&str, &str)>) -> String {
    let model = match service {
        Some((picker::DEFAULT_NAMESPACE, name)) => name.to_owned(),
        Some((namespace, name)) => format!("{namespace}/{name}"),
        None => "NAME".to_owned(),
    };
    example_commands(&model, session, service)
}

/// Renders example commands. `service` is the namespace and name of the service of the `explain` example.
fn example_commands(model: &str, session: &SessionInfo, service: Option<(&str, &str)>) -> String {
    let SessionInfo { program, gateway, .. } = session;
    let kubeconfig = session.kubeconfig.display();
    let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
    let mut lines = vec![
        format!("Try:  kubectl --kubeconfig {kubeconfig} get inference -A"),
        format!("      curl http://{gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"),
    ];
    // $KUBECONFIG would take precedence over the running `ostler up`.
    let explain_command = |(namespace, name)| {
        let namespace = if namespace == picker::DEFAULT_NAMESPACE { String::new() } else { format!(" -n {namespace}") };
        format!("      {program} explain inferenceservice/{name}{namespace} --kubeconfig {kubeconfig}")
    };
    lines.extend(service.map(explain_command));
    lines.push("Press Ctrl-C to stop the cluster and all engines.".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::default_namespace(Some(("default", "chat")), r#""model":"chat""#, "explain inferenceservice/chat --kubeconfig k")]
    #[case::other_namespace(Some(("team-b", "chat")), r#""model":"team-b/chat""#, "explain inferenceservice/chat -n team-b --kubeconfig k")]
    #[case::no_service(None, r#""model":"NAME""#, "Press Ctrl-C")]
    fn commands_name_the_namespace(
        #[case] service: Option<(&str, &str)>,
        #[case] model: &str,
        #[case] explain_command: &str,
    ) {
        let gateway = SocketAddr::from(([127, 0, 0, 1], 8080));
        let session = SessionInfo { program: "ostler".to_owned(), gateway, kubeconfig: "k".into() };
        let text = next_steps(&session, service);
        assert!(text.contains(model) && text.contains(explain_command), "{text}");
    }
}
