//! Explains a BackendPool, an LLMUseCaseSet or an LLMUseCase: who gets which share of the engines, what waits, what was rejected and why,
//! which endpoints get no requests, and whether objectives are met.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use picker::{EndpointDetails, FlowDetails, PoolDetails};
use serde_json::Value;

use super::explanation::Explanation;
use super::fields::text;
use crate::report::names::format_count;
use crate::report::tree::TreeNode;

/// Maximum number of lines of a list.
const MAX_LINES: usize = 16;

/// Priority from which requests are critical, and below which they have no use case.
const CRITICAL: i32 = 100;

/// What the gateway knows about the pools of an object.
pub(crate) enum LiveDetails {
    /// As the gateway at this address reported.
    Gateway { address: String, pools: Vec<PoolDetails> },
    /// No gateway was queried, or it did not respond; contains the reason.
    Unavailable(String),
}

/// Returns the names of the pools of a BackendPool or of use cases.
pub(crate) fn pool_names(object: &Value) -> BTreeSet<String> {
    match object["kind"].as_str() {
        Some("BackendPool") => BTreeSet::from([text(object, "/metadata/name").to_owned()]),
        _ => {
            let references = object["spec"]["poolRef"].as_array().into_iter().flatten();
            references.filter_map(|reference| reference["name"].as_str().map(str::to_owned)).collect()
        }
    }
}

/// Explains the object.
pub(crate) fn explain(object: &Value, live: &LiveDetails, now: Timestamp) -> Explanation {
    let mut explanation = Explanation::new(object, now);
    let is_pool = object["kind"] == "BackendPool";
    if let Some(condition) = main_condition(object, is_pool) {
        explanation.ready = condition["status"] == "True";
        explanation.message = text(condition, "/message").trim_end_matches('.').to_owned();
    } else {
        "Waiting for the gateway to observe the object".clone_into(&mut explanation.message);
    }
    explanation.tree = conditions(&explanation);
    let LiveDetails::Gateway { address, pools } = live else {
        if let LiveDetails::Unavailable(reason) = live {
            explanation.source = Some(format!("from the status of the object, without shares and endpoints: {reason}"));
        }
        explanation.tree.extend(objectives_in_status(object));
        return explanation;
    };
    let own = format!("{} {}/{}", explanation.kind, explanation.namespace, explanation.name);
    for pool in pools {
        match is_pool {
            true => explanation.tree.extend(pool_nodes(pool, None)),
            false => explanation.tree.push(TreeNode::new(format!("pool {}", pool.pool), pool_nodes(pool, Some(&own)))),
        }
        explanation.remedies.extend(remedies(pool));
    }
    explanation.source = Some(format!("requests and endpoints as one gateway reports them, at {address}"));
    explanation.pools.clone_from(pools);
    explanation
}

/// Returns the condition that summarizes an object.
fn main_condition(object: &Value, is_pool: bool) -> Option<&Value> {
    cluster::find_condition(&object["status"]["conditions"], if is_pool { "Ready" } else { "Accepted" })
}

/// Returns the other conditions that need attention: those that are false, and those that exist only while something is wrong.
fn conditions(explanation: &Explanation) -> Vec<TreeNode> {
    let is_shown = |condition: &&Value| match text(condition, "/type") {
        "Ready" | "Accepted" => false,
        kind if [picker::MODEL_NAME_SHARED, picker::TARGET_NOT_SERVED, picker::ENDPOINTS_SHARED].contains(&kind) => {
            true
        }
        // The native gateway needs no projection.
        "Projected" => text(condition, "/reason") != "NoEndpointPicker" && condition["status"] != "True",
        _ => condition["status"] != "True",
    };
    let line = |condition: &Value| {
        let field = |name| text(condition, name);
        TreeNode::leaf(format!("{}={}  {}: {}", field("/type"), field("/status"), field("/reason"), field("/message")))
    };
    explanation.conditions.iter().filter(is_shown).map(line).collect()
}

/// Returns the objectives in the status of use cases.
fn objectives_in_status(object: &Value) -> Option<TreeNode> {
    let objectives = object["status"]["objectives"].as_array().into_iter().flatten();
    let line = |objective: &Value| {
        let measured = match (objective["measured"].as_str(), objective["attained"].as_bool()) {
            (Some(measured), Some(true)) => format!("met: {measured} measured"),
            (Some(measured), _) => format!("missed: {measured} measured"),
            (None, _) => "too few requests to measure it".to_owned(),
        };
        let (model, pool) = (text(objective, "/modelName"), text(objective, "/pool"));
        TreeNode::leaf(format!("{model} on pool {pool}: {} per output token, {measured}", text(objective, "/desired")))
    };
    TreeNode::branch("objectives (95th percentile)", objectives.map(line).collect())
}

/// Returns what is known about a pool: all of it, or only the use cases of the object `own`.
fn pool_nodes(pool: &PoolDetails, own: Option<&str>) -> Vec<TreeNode> {
    let flows: Vec<&FlowDetails> =
        pool.flows.iter().filter(|flow| own.is_none_or(|own| flow.use_case.as_deref() == Some(own))).collect();
    let lines = limited(flows.iter().map(|flow| flow_node(flow)).collect(), 0);
    let period = pool.period_seconds;
    let title = match pool.period_seconds > 0.0 {
        true => format!("shares of the tokens in the last {period:.0} s"),
        false => "no requests in the last minutes".to_owned(),
    };
    let mut nodes = vec![TreeNode::new(title, lines)];
    nodes.push(queue_node(pool));
    if pool.noncritical_share < 1.0 {
        let percent = pool.noncritical_share * 100.0;
        nodes.push(TreeNode::leaf(format!(
            "admission: noncritical requests up to {percent:.0} % of the limit of an engine, because a critical use case misses its objective"
        )));
    }
    let title = match pool.unready_endpoints {
        0 => "endpoints".to_owned(),
        count => format!("endpoints, and {count} more that {} not ready", if count == 1 { "is" } else { "are" }),
    };
    // Those with a problem first.
    let mut endpoints: Vec<&EndpointDetails> = pool.endpoints.iter().collect();
    endpoints.sort_by_key(|endpoint| problem(endpoint).is_none());
    let described = pool.unready_endpoints.saturating_add(pool.endpoints.len());
    let omitted = pool.endpoint_count.saturating_sub(described);
    nodes.push(TreeNode::new(title, limited(endpoints.into_iter().map(endpoint_node).collect(), omitted)));
    nodes
}

fn flow_node(flow: &FlowDetails) -> TreeNode {
    let name = if flow.name.is_empty() { "other models" } else { &flow.name };
    let class = match (flow.priority, &flow.use_case) {
        (CRITICAL.., Some(_)) => "critical".to_owned(),
        (_, Some(_)) => "noncritical".to_owned(),
        (priority, None) => format!("no use case, priority {priority}"),
    };
    let owner = flow.use_case.as_ref().map(|owner| format!(", {owner}")).unwrap_or_default();
    let percent = flow.share * 100.0;
    let requests = format_count(count(flow.requests), "request");
    let mut children = Vec::new();
    if flow.waiting_requests > 0 {
        let verb = if flow.waiting_requests == 1 { "waits" } else { "wait" };
        children.push(TreeNode::leaf(format!("{} {verb}", format_count(flow.waiting_requests, "request"))));
    }
    children.extend(flow.rejected.iter().map(|(reason, rejected)| {
        TreeNode::leaf(format!("{} rejected: {}", format_count(count(*rejected), "request"), rejection(reason)))
    }));
    children.extend(flow.objective.as_ref().map(|objective| {
        let desired = seconds(objective.desired_seconds);
        TreeNode::leaf(match objective.measured_seconds {
            None => format!("objective: {desired} per output token; too few requests to measure it"),
            Some(measured) => {
                let result = if measured <= objective.desired_seconds { "met" } else { "missed" };
                let (measured, requests) = (seconds(measured), format_count(objective.requests, "request"));
                format!("objective {result}: {measured} per output token at the 95th percentile of {requests}, {desired} desired")
            }
        })
    }));
    TreeNode::new(format!("{name}: {percent:.0} %, {requests} ({class}{owner})"), children)
}

/// Returns the reason of a rejection in words.
fn rejection(reason: &str) -> &str {
    match reason {
        "QueueFull" => "all engines were busy, and the queue was full",
        "QueueTimeout" => "all engines remained busy until the timeout of the queue",
        "ReplacedByPriority" => "requests with a higher priority needed the place in the queue",
        "ReplacedByFairness" => "use cases with fewer requests needed the place in the queue",
        "NoEndpointAvailable" => "no endpoint was available",
        other => other,
    }
}

fn queue_node(pool: &PoolDetails) -> TreeNode {
    let (waiting, bytes) = (pool.waiting_requests, pool.waiting_bytes);
    let limits =
        format!("at most {} with {} MiB, for {:.0} s", pool.max_requests, pool.max_bytes >> 20, pool.timeout_seconds);
    let kib = bytes.div_ceil(1024);
    let verb = if waiting == 1 { "waits" } else { "wait" };
    TreeNode::leaf(format!("queue: {} {verb} with {kib} KiB ({limits})", format_count(waiting, "request")))
}

fn endpoint_node(endpoint: &EndpointDetails) -> TreeNode {
    let limit = match (endpoint.request_limit, endpoint.limit_is_learned) {
        (None, _) => String::new(),
        (Some(limit), true) => format!(" of {limit} (learned limit)"),
        (Some(limit), false) => format!(" of {limit} (assumed limit)"),
    };
    let waiting = endpoint.engine_waiting.filter(|waiting| *waiting > 0.0);
    let waiting = waiting.map(|waiting| format!(", {waiting:.0} wait in the engine")).unwrap_or_default();
    let cache = endpoint.kv_cache_usage.map(|usage| format!(", KV cache {:.0} %", usage * 100.0)).unwrap_or_default();
    let requests = endpoint.requests;
    let line = format!("{} ({}): {requests}{limit} in flight{waiting}{cache}", endpoint.pod, endpoint.address);
    TreeNode::new(line, problem(endpoint).map(TreeNode::leaf).into_iter().collect())
}

/// Returns why an endpoint gets no requests now.
fn problem(endpoint: &EndpointDetails) -> Option<String> {
    if endpoint.asleep {
        return Some("asleep: it gets no requests".to_owned());
    }
    if let Some(ejected) = endpoint.ejected_seconds {
        let failures = format_count(endpoint.consecutive_failures as usize, "consecutive failure");
        return Some(format!("ejected for {ejected:.0} s after {failures}"));
    }
    endpoint.unreachable.then(|| "cannot be connected to: other endpoints get its requests".to_owned())
}

/// Returns what would help.
fn remedies(pool: &PoolDetails) -> Vec<String> {
    let rejected: u64 = pool.flows.iter().flat_map(|flow| flow.rejected.values()).sum();
    let missed = pool.flows.iter().filter_map(|flow| flow.objective.as_ref());
    let is_missed =
        missed.into_iter().any(|one| one.measured_seconds.is_some_and(|measured| measured > one.desired_seconds));
    let mut remedies = Vec::new();
    if rejected > 0 || is_missed {
        remedies.push(format!("add replicas to the engines of pool {}", pool.pool));
    }
    let (_, name) = pool.pool.split_once('/').unwrap_or(("", &pool.pool));
    if rejected > 0 {
        remedies.push(format!("or let requests wait longer: `spec.queue` of BackendPool {name}"));
    }
    remedies.extend(pool.endpoints.iter().filter(|endpoint| endpoint.ejected_seconds.is_some()).take(3).map(
        |endpoint| {
            let namespace = pool.pool.split_once('/').map_or("default", |(namespace, _)| namespace);
            format!("see why requests to {0} fail: `kubectl -n {namespace} logs {0}`", endpoint.pod)
        },
    ));
    remedies
}

/// Returns at most [`MAX_LINES`] nodes, and the number of the others, including those that were `omitted` before.
fn limited(mut nodes: Vec<TreeNode>, omitted: usize) -> Vec<TreeNode> {
    let omitted = nodes.len().saturating_sub(MAX_LINES).saturating_add(omitted);
    nodes.truncate(MAX_LINES);
    if omitted > 0 {
        nodes.push(TreeNode::leaf(format!("… {omitted} more")));
    }
    nodes
}

/// Formats seconds with a precision of a tenth of a millisecond.
fn seconds(seconds: f64) -> String {
    let rounded = Duration::try_from_secs_f64((seconds * 1e4).round() / 1e4).unwrap_or_default();
    format!("{rounded:?}")
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use picker::ObjectiveDetails;
    use serde_json::json;

    use super::*;
    use crate::report::explain::render;

    fn flow(name: &str, use_case: Option<&str>, priority: i32, share: f64) -> FlowDetails {
        FlowDetails {
            name: name.to_owned(),
            use_case: use_case.map(str::to_owned),
            priority,
            requests: 120,
            tokens: 1_000,
            share,
            waiting_requests: 0,
            rejected: Default::default(),
            objective: None,
        }
    }

    fn endpoint(number: u8, ejected_seconds: Option<f64>) -> EndpointDetails {
        EndpointDetails {
            address: ([10, 0, 0, number], 8000).into(),
            pod: format!("chat-{number}"),
            requests: 3,
            request_limit: Some(8),
            limit_is_learned: number == 1,
            ejected_seconds,
            consecutive_failures: u32::from(ejected_seconds.is_some()),
            asleep: false,
            unreachable: false,
            engine_waiting: Some(0.0),
            kv_cache_usage: Some(0.5),
        }
    }

    fn live() -> LiveDetails {
        let objective = ObjectiveDetails { desired_seconds: 0.06, measured_seconds: Some(0.072), requests: 90 };
        let critical =
            FlowDetails { objective: Some(objective), ..flow("chat", Some("LLMUseCaseSet default/team-a"), 100, 0.75) };
        let rejected = [("QueueTimeout".to_owned(), 4)].into();
        let other =
            FlowDetails { waiting_requests: 2, rejected, ..flow("batch", Some("LLMUseCase default/b"), 0, 0.25) };
        let pool = PoolDetails {
            pool: "default/llama".to_owned(),
            creation_timestamp: String::new(),
            endpoint_count: 3,
            unready_endpoints: 1,
            waiting_requests: 2,
            waiting_bytes: 4_000,
            max_requests: 1_000,
            max_bytes: 256 << 20,
            timeout_seconds: 30.0,
            noncritical_share: 0.49,
            period_seconds: 240.0,
            flows: vec![critical, other],
            endpoints: vec![endpoint(1, None), endpoint(2, Some(7.0))],
        };
        LiveDetails::Gateway { address: "127.0.0.1:9466".to_owned(), pools: vec![pool] }
    }

    fn object(kind: &str, name: &str, spec: Value, condition: &str) -> Value {
        json!({"kind": kind, "metadata": {"namespace": "default", "name": name}, "spec": spec, "status": {"conditions": [
            {"type": condition, "status": "True", "reason": "X", "message": "2 of 3 endpoints are ready."},
            {"type": "Projected", "status": "False", "reason": "NoEndpointPicker", "message": "No InferencePool."},
        ]}})
    }

    #[test]
    fn pool_shows_shares_queue_and_endpoints() {
        let pool = object("BackendPool", "llama", json!({}), "Ready");
        insta::assert_snapshot!(render(&explain(&pool, &live(), Timestamp::UNIX_EPOCH)), @r"
        default/llama: 2 of 3 endpoints are ready
        ├─ shares of the tokens in the last 240 s
        │  ├─ chat: 75 %, 120 requests (critical, LLMUseCaseSet default/team-a)
        │  │  └─ objective missed: 72ms per output token at the 95th percentile of 90 requests, 60ms desired
        │  └─ batch: 25 %, 120 requests (noncritical, LLMUseCase default/b)
        │     ├─ 2 requests wait
        │     └─ 4 requests rejected: all engines remained busy until the timeout of the queue
        ├─ queue: 2 requests wait with 4 KiB (at most 1000 with 256 MiB, for 30 s)
        ├─ admission: noncritical requests up to 49 % of the limit of an engine, because a critical use case misses its objective
        └─ endpoints, and 1 more that is not ready
           ├─ chat-2 (10.0.0.2:8000): 3 of 8 (assumed limit) in flight, KV cache 50 %
           │  └─ ejected for 7 s after 1 consecutive failure
           └─ chat-1 (10.0.0.1:8000): 3 of 8 (learned limit) in flight, KV cache 50 %
        What would help
          · add replicas to the engines of pool default/llama
          · or let requests wait longer: `spec.queue` of BackendPool llama
          · see why requests to chat-2 fail: `kubectl -n default logs chat-2`
        (requests and endpoints as one gateway reports them, at 127.0.0.1:9466)
        ");
    }

    /// A gateway describes a part of the endpoints of a large pool.
    #[test]
    fn endpoints_that_are_not_described_are_not_unready() {
        let LiveDetails::Gateway { address, mut pools } = live() else { panic!() };
        pools[0].endpoint_count = 1_203;
        let pool = object("BackendPool", "llama", json!({}), "Ready");
        let text = render(&explain(&pool, &LiveDetails::Gateway { address, pools }, Timestamp::UNIX_EPOCH));
        assert!(text.contains("endpoints, and 1 more that is not ready"), "{text}");
        assert!(text.contains("… 1200 more"), "{text}");
    }

    #[test]
    fn use_cases_show_their_own_share() {
        let set = object("LLMUseCaseSet", "team-a", json!({"poolRef": [{"name": "llama"}]}), "Accepted");
        assert_eq!(pool_names(&set), BTreeSet::from(["llama".to_owned()]));
        let text = render(&explain(&set, &live(), Timestamp::UNIX_EPOCH));
        assert!(text.contains("pool default/llama") && text.contains("chat: 75 %"), "{text}");
        assert!(text.contains("objective missed: 72ms") && !text.contains("batch"), "{text}");
    }

    /// Without a gateway, the status of the object is explained, and a line states this.
    #[test]
    fn status_is_explained_without_a_gateway() {
        let mut set = object("LLMUseCaseSet", "team-a", json!({"poolRef": [{"name": "llama"}]}), "Accepted");
        set["status"]["objectives"] =
            json!([{"modelName": "chat", "pool": "llama", "desired": "60ms", "measured": "72ms", "attained": false}]);
        let live = LiveDetails::Unavailable("no gateway is known".to_owned());
        let text = render(&explain(&set, &live, Timestamp::UNIX_EPOCH));
        assert!(text.contains("chat on pool llama: 60ms per output token, missed: 72ms measured"), "{text}");
        assert!(
            text.ends_with("(from the status of the object, without shares and endpoints: no gateway is known)"),
            "{text}"
        );
    }
}
