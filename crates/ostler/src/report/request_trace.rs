//! Text of `ostler gateway trace`.

use picker::{RequestTrace, TraceCost, TraceEndpoint, TraceOutcome, TraceTarget};

use super::names::format_count;
use super::table::table;

/// Renders a trace: the decision, then one line per endpoint.
pub(crate) fn render(trace: &RequestTrace) -> String {
    let mut lines = vec![headline(trace)];
    lines.push(format!("  pool       {}{}", trace.pool, other_pools(trace)));
    let use_case = trace.use_case.as_deref().unwrap_or("none: the pool serves models without a use case");
    lines.push(format!("  use case   {use_case}"));
    lines.push(format!("  target     {}{}", trace.target_model, targets(&trace.targets)));
    let flow = if trace.flow == trace.model { String::new() } else { format!(", flow `{}`", trace.flow) };
    lines.push(format!("  priority   {}{flow}", trace.priority));
    let waiting = match trace.waiting_requests {
        0 => "no request waits in the queue".to_owned(),
        1 => "1 request waits in the queue".to_owned(),
        count => format!("{count} requests wait in the queue"),
    };
    lines.push(format!("  prompt     {}; {waiting}", format_count(count(trace.prompt_tokens), "token")));
    if trace.admitted_share < 1.0 {
        let percent = trace.admitted_share * 100.0;
        lines.push(format!("  admission  up to {percent:.0} % of the limit of an engine, because a critical use case misses its objective"));
    }
    if !trace.endpoints.is_empty() {
        lines.extend([String::new(), endpoints(trace)]);
    }
    let omitted = [
        (trace.unready_endpoints, "is not ready", "are not ready"),
        (trace.omitted_endpoints, "is not listed", "are not listed"),
    ];
    for (count, one, several) in omitted.into_iter().filter(|(count, ..)| *count > 0) {
        lines.push(format!("{} {}", format_count(count, "endpoint"), if count == 1 { one } else { several }));
    }
    lines.join("\n")
}

fn headline(trace: &RequestTrace) -> String {
    let RequestTrace { model, pool, .. } = trace;
    match (trace.outcome, trace.selected) {
        (TraceOutcome::Selected, Some(address)) => {
            let name = |address| trace.endpoints.iter().find(|endpoint| endpoint.address == address).map(name);
            let selected = name(address).unwrap_or_else(|| address.to_string());
            let prefill = trace.prefill.map(|address| name(address).unwrap_or_else(|| address.to_string()));
            let prefill = prefill.map(|prefill| format!(", which continues the prompt that {prefill} computes"));
            format!("A request for `{model}` would be sent to {selected}{}", prefill.unwrap_or_default())
        }
        (TraceOutcome::Queued, _) => format!("A request for `{model}` would wait in the queue of pool {pool}"),
        (TraceOutcome::Selected | TraceOutcome::NoEndpoint, _) => {
            format!("A request for `{model}` would be rejected: no endpoint of pool {pool} is available")
        }
    }
}

fn name(endpoint: &TraceEndpoint) -> String {
    format!("{} ({})", endpoint.pod, endpoint.address)
}

fn other_pools(trace: &RequestTrace) -> String {
    let others: Vec<&str> = trace.pools.iter().filter(|pool| **pool != trace.pool).map(String::as_str).collect();
    if others.is_empty() { String::new() } else { format!(", drawn; also declared by {}", others.join(", ")) }
}

/// Returns the weights of several targets.
fn targets(targets: &[TraceTarget]) -> String {
    if targets.len() < 2 {
        return String::new();
    }
    let target = |target: &TraceTarget| {
        let unserved = if target.served { "" } else { ", not served" };
        format!("{} (weight {}{unserved})", target.model, target.weight)
    };
    format!(", drawn from {}", targets.iter().map(target).collect::<Vec<_>>().join(", "))
}

/// Returns the table of the endpoints. Costs are in tokens.
fn endpoints(trace: &RequestTrace) -> String {
    let has_scores = trace.endpoints.iter().any(|endpoint| endpoint.score.is_some());
    let rating = if has_scores { vec!["SCORE"] } else { COST_COLUMNS.to_vec() };
    let header: Vec<&str> =
        [" ", "POD", "ENDPOINT", "REQUESTS"].into_iter().chain(rating).chain(["NOT SELECTED BECAUSE"]).collect();
    let row = |endpoint: &TraceEndpoint| {
        let mark = if trace.selected == Some(endpoint.address) { "→" } else { " " };
        let limit = endpoint.request_limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        let rating = match (has_scores, endpoint.score, &endpoint.cost) {
            (true, score, _) => vec![score.map(|score| format!("{score:.3}")).unwrap_or_else(dash)],
            (false, _, Some(cost)) => cost_cells(cost),
            (false, _, None) => COST_COLUMNS.map(|_| dash()).to_vec(),
        };
        let start = [
            mark.to_owned(),
            endpoint.pod.clone(),
            endpoint.address.to_string(),
            format!("{}{limit}", endpoint.requests),
        ];
        let reason = endpoint.excluded.map(|excluded| excluded.reason().to_owned()).unwrap_or_default();
        start.into_iter().chain(rating).chain([reason]).collect::<Vec<String>>()
    };
    table(&header, &trace.endpoints.iter().map(row).collect::<Vec<_>>())
}

const COST_COLUMNS: [&str; 7] =
    ["COST", "IN FLIGHT", "OTHERS WAITING", "OTHERS RUNNING", "NOT CACHED", "KV CACHE", "ADAPTER"];

fn cost_cells(cost: &TraceCost) -> Vec<String> {
    let TraceCost {
        in_flight,
        other_waiting,
        other_running,
        uncached_prompt,
        kv_cache_penalty,
        adapter_penalty,
        total,
    } = cost;
    let round = |tokens: &f64| format!("{tokens:.0}");
    vec![
        round(total),
        in_flight.to_string(),
        round(other_waiting),
        round(other_running),
        uncached_prompt.to_string(),
        round(kv_cache_penalty),
        round(adapter_penalty),
    ]
}

fn dash() -> String {
    "-".to_owned()
}

fn count(tokens: u64) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use picker::TraceExclusion;

    use super::*;

    fn endpoint(number: u8, total: f64, excluded: Option<TraceExclusion>) -> TraceEndpoint {
        let cost = TraceCost {
            in_flight: 100,
            other_waiting: total - 612.0,
            other_running: 256.0,
            uncached_prompt: 256,
            kv_cache_penalty: 0.0,
            adapter_penalty: 0.0,
            total,
        };
        TraceEndpoint {
            address: ([10, 0, 0, number], 8000).into(),
            pod: format!("chat-{number}"),
            requests: 2,
            request_limit: Some(8),
            cost: excluded.is_none().then_some(cost),
            score: None,
            excluded,
        }
    }

    #[test]
    fn trace_shows_costs_and_reasons() {
        let target = |model: &str, weight, served| TraceTarget { model: model.to_owned(), weight, served };
        let trace = RequestTrace {
            model: "chat".to_owned(),
            pool: "default/large".to_owned(),
            pools: vec!["default/large".to_owned(), "default/small".to_owned()],
            use_case: Some("LLMUseCaseSet default/team-a".to_owned()),
            priority: 100,
            flow: "chat".to_owned(),
            target_model: "chat-v2".to_owned(),
            targets: vec![target("chat-v1", 80, true), target("chat-v2", 20, true), target("chat-v3", 0, false)],
            prompt_tokens: 256,
            waiting_requests: 0,
            admitted_share: 0.49,
            outcome: TraceOutcome::Selected,
            selected: Some(([10, 0, 0, 1], 8000).into()),
            prefill: None,
            unready_endpoints: 1,
            endpoints: vec![
                endpoint(1, 612.0, None),
                endpoint(2, 1380.0, None),
                endpoint(3, 0.0, Some(TraceExclusion::Ejected)),
            ],
            omitted_endpoints: 0,
        };
        insta::assert_snapshot!(render(&trace), @r"
        A request for `chat` would be sent to chat-1 (10.0.0.1:8000)
          pool       default/large, drawn; also declared by default/small
          use case   LLMUseCaseSet default/team-a
          target     chat-v2, drawn from chat-v1 (weight 80), chat-v2 (weight 20), chat-v3 (weight 0, not served)
          priority   100
          prompt     256 tokens; no request waits in the queue
          admission  up to 49 % of the limit of an engine, because a critical use case misses its objective

           POD     ENDPOINT       REQUESTS  COST  IN FLIGHT  OTHERS WAITING  OTHERS RUNNING  NOT CACHED  KV CACHE  ADAPTER  NOT SELECTED BECAUSE
        →  chat-1  10.0.0.1:8000  2 of 8    612   100        0               256             256         0         0
           chat-2  10.0.0.2:8000  2 of 8    1380  100        768             256             256         0         0
           chat-3  10.0.0.3:8000  2 of 8    -     -          -               -               -           -         -        ejected: requests to it failed
        1 endpoint is not ready
        ");
        let queued = RequestTrace { outcome: TraceOutcome::Queued, selected: None, waiting_requests: 3, ..trace };
        assert!(render(&queued).starts_with("A request for `chat` would wait in the queue of pool default/large\n"));
    }
}
