//! Describes the state of a pool. Nothing changes.

use std::{collections::BTreeMap, time::Duration};

use cluster::NamespacedName;
use tokio::time::Instant;

use super::Scheduler;
use crate::{
    endpoint::Endpoint,
    pool_details::{EndpointDetails, FlowDetails, ObjectiveDetails, PoolDetails},
    pool_usage::FlowUsage,
    snapshot::Pool,
    use_case::NONCRITICAL,
};

/// Maximum number of endpoints that are described.
const MAX_ENDPOINTS: usize = 1_000;

impl Scheduler {
    /// Describes a pool, `None` if it does not exist.
    pub(crate) fn pool_details(&self, key: &NamespacedName) -> Option<PoolDetails> {
        let (now, snapshot) = (Instant::now(), self.snapshot());
        let pool = snapshot.pools.get(key)?;
        let queued: Vec<_> = self.queues.flows().into_iter().filter(|flow| flow.pool == *key).collect();
        let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
        for flow in &queued {
            *waiting.entry(flow.name.clone()).or_default() += flow.requests;
        }
        let (period, usage) = pool.usage.recent(now);
        Some(PoolDetails {
            pool: key.to_string(),
            creation_timestamp: pool.creation_timestamp.clone(),
            endpoint_count: pool.endpoint_count,
            unready_endpoints: pool.unready_endpoints(),
            waiting_requests: queued.iter().map(|flow| flow.requests).sum(),
            waiting_bytes: queued.iter().map(|flow| flow.bytes).sum(),
            max_requests: pool.queue_limits.size.max_requests,
            max_bytes: pool.queue_limits.size.max_bytes,
            timeout_seconds: pool.queue_timeout().as_secs_f64(),
            noncritical_share: pool.objectives.current_share(NONCRITICAL),
            period_seconds: period.as_secs_f64(),
            flows: flows(pool, usage, &waiting, now),
            endpoints: pool.ready_endpoints.iter().take(MAX_ENDPOINTS).map(|one| endpoint(one, now)).collect(),
        })
    }
}

/// Returns the use cases of a pool and the other flows with requests, those with the highest priority and the most tokens first.
fn flows(
    pool: &Pool,
    mut usage: BTreeMap<String, FlowUsage>,
    waiting: &BTreeMap<String, usize>,
    now: Instant,
) -> Vec<FlowDetails> {
    let all: u64 = usage.values().map(|flow| flow.tokens).fold(0, u64::saturating_add);
    let declared = pool.use_cases.values().filter(|use_case| !use_case.is_rewrite);
    for use_case in declared {
        let new = || FlowUsage { priority: use_case.priority, ..FlowUsage::default() };
        usage.entry(use_case.model_name.clone()).or_insert_with(new);
    }
    for name in waiting.keys() {
        usage.entry(name.clone()).or_default();
    }
    let flow = |(name, flow): (String, FlowUsage)| {
        let use_case = pool.use_cases.get(&name).filter(|use_case| !use_case.is_rewrite);
        FlowDetails {
            use_case: use_case.map(|use_case| use_case.declared_by.clone()),
            priority: use_case.map_or(flow.priority, |use_case| use_case.priority),
            requests: flow.requests,
            tokens: flow.tokens,
            share: if all == 0 { 0.0 } else { flow.tokens as f64 / all as f64 },
            waiting_requests: waiting.get(&name).copied().unwrap_or(0),
            rejected: flow.rejected.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect(),
            objective: pool.objectives.window(&name).filter(|_| use_case.is_some()).map(|window| {
                let attainment = window.attainment(now);
                ObjectiveDetails {
                    desired_seconds: window.objective.as_secs_f64(),
                    measured_seconds: attainment.map(|attainment| attainment.p95.as_secs_f64()),
                    requests: attainment.map_or(0, |attainment| attainment.requests),
                }
            }),
            name,
        }
    };
    let mut flows: Vec<FlowDetails> = usage.into_iter().map(flow).collect();
    flows.sort_by(|left, right| {
        (right.priority, right.tokens).cmp(&(left.priority, left.tokens)).then(left.name.cmp(&right.name))
    });
    flows
}

fn endpoint(endpoint: &Endpoint, now: Instant) -> EndpointDetails {
    let (state, report) = (&endpoint.state, endpoint.state.last_report());
    let metrics = report.as_ref().map(|report| &report.metrics);
    EndpointDetails {
        address: endpoint.address,
        pod: endpoint.pod.clone(),
        requests: state.requests(),
        request_limit: state.total_request_limit(),
        limit_is_learned: state.learned_limit().is_some(),
        ejected_seconds: state.health.ejection(now).as_ref().map(Duration::as_secs_f64),
        consecutive_failures: state.health.consecutive_failures(),
        asleep: state.health.is_asleep(now),
        unreachable: state.is_unreachable(),
        engine_waiting: metrics.and_then(|metrics| metrics.waiting),
        kv_cache_usage: metrics.and_then(|metrics| metrics.kv_cache_usage),
    }
}
