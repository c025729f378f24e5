//! Recent requests to a pool by flow: how many tokens the engines were given, and how many requests were shed and why.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::routing_error::RoutingError;

/// Time after which counts are in the past period. A report covers the current and the past period.
const PERIOD: Duration = Duration::from_secs(150);

/// Maximum number of flows that are counted by themselves. Clients choose the names of models without a use case; further ones are
/// counted as [`OVERFLOW`].
const MAX_FLOWS: usize = 256;

/// Name of the flows beyond [`MAX_FLOWS`].
const OVERFLOW: &str = "";

/// Recent requests to a pool. Versions of the pool share it.
#[derive(Debug, Default)]
pub(crate) struct PoolUsage(Mutex<Periods>);

#[derive(Debug, Default)]
struct Periods {
    current: Period,
    past: Period,
}

#[derive(Debug, Default)]
struct Period {
    start: Option<Instant>,
    flows: BTreeMap<String, FlowUsage>,
}

/// Recent requests of a flow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FlowUsage {
    /// Priority of the last request.
    pub(crate) priority: i32,
    /// Requests that were sent to an engine.
    pub(crate) requests: u64,
    /// Their estimated tokens: uncached and cached prompt, and the output that counts as work.
    pub(crate) tokens: u64,
    /// Requests that were rejected, by reason.
    pub(crate) rejected: BTreeMap<&'static str, u64>,
}

// === impl PoolUsage ===

impl PoolUsage {
    /// Records a request that is sent to an engine.
    pub(crate) fn record_admission(&self, flow: &str, priority: i32, tokens: u64, now: Instant) {
        self.lock().change(flow, now, |usage| {
            usage.priority = priority;
            usage.requests = usage.requests.saturating_add(1);
            usage.tokens = usage.tokens.saturating_add(tokens);
        });
    }

    /// Records a request that is rejected.
    pub(crate) fn record_rejection(&self, flow: &str, priority: i32, error: &RoutingError, now: Instant) {
        self.lock().change(flow, now, |usage| {
            usage.priority = priority;
            *usage.rejected.entry(error.reason()).or_default() += 1;
        });
    }

    /// Returns the recent requests by flow, and the time in which they arrived.
    pub(crate) fn recent(&self, now: Instant) -> (Duration, BTreeMap<String, FlowUsage>) {
        let mut periods = self.lock();
        periods.advance(now);
        let Periods { current, past } = &*periods;
        let start = past.start.or(current.start);
        let mut flows = past.flows.clone();
        for (name, usage) in &current.flows {
            let sum = flows.entry(name.clone()).or_default();
            sum.priority = usage.priority;
            sum.requests = sum.requests.saturating_add(usage.requests);
            sum.tokens = sum.tokens.saturating_add(usage.tokens);
            for (reason, count) in &usage.rejected {
                *sum.rejected.entry(reason).or_default() += count;
            }
        }
        (start.map_or(Duration::ZERO, |start| now.saturating_duration_since(start)), flows)
    }

    fn lock(&self) -> MutexGuard<'_, Periods> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Periods ===

impl Periods {
    /// Changes the usage of a flow in the current period.
    fn change(&mut self, name: &str, now: Instant, change: impl FnOnce(&mut FlowUsage)) {
        self.advance(now);
        self.current.start.get_or_insert(now);
        let flows = &mut self.current.flows;
        let name = if flows.len() < MAX_FLOWS || flows.contains_key(name) { name } else { OVERFLOW };
        match flows.get_mut(name) {
            Some(usage) => change(usage),
            None => change(flows.entry(name.to_owned()).or_default()),
        }
    }

    /// Begins the period of `now`.
    fn advance(&mut self, now: Instant) {
        let age = |period: &Period| period.start.map(|start| now.saturating_duration_since(start));
        if age(&self.current).is_some_and(|age| age >= PERIOD) {
            self.past = mem::take(&mut self.current);
        }
        if age(&self.past).is_some_and(|age| age >= 2 * PERIOD) {
            self.past = Period::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::NamespacedName;

    use super::*;

    fn requests(usage: &PoolUsage, now: Instant) -> (u64, Vec<(String, u64)>) {
        let (time, flows) = usage.recent(now);
        (time.as_secs(), flows.into_iter().map(|(name, usage)| (name, usage.requests)).collect())
    }

    #[test]
    fn requests_of_the_last_two_periods_count() {
        let (usage, start) = (PoolUsage::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(requests(&usage, start), (0, Vec::new()));
        usage.record_admission("a", 0, 10, start);
        usage.record_admission("a", 0, 20, at(149));
        usage.record_admission("b", 100, 5, at(150));
        assert_eq!(requests(&usage, at(160)), (160, vec![("a".to_owned(), 2), ("b".to_owned(), 1)]));
        assert_eq!(usage.recent(at(160)).1["a"].tokens, 30);
        assert_eq!(requests(&usage, at(300)), (150, vec![("b".to_owned(), 1)]));
        assert_eq!(requests(&usage, at(450)), (0, Vec::new()));
    }

    #[test]
    fn rejections_count_by_reason() {
        let (usage, now) = (PoolUsage::default(), Instant::now());
        let pool = NamespacedName::new("ns", "p");
        for error in [
            RoutingError::QueueFull(pool.clone()),
            RoutingError::QueueTimeout(pool.clone()),
            RoutingError::QueueFull(pool),
        ] {
            usage.record_rejection("a", -10, &error, now);
        }
        let (_, flows) = usage.recent(now);
        assert_eq!(flows["a"].rejected, [("QueueFull", 2), ("QueueTimeout", 1)].into());
        assert_eq!((flows["a"].priority, flows["a"].requests), (-10, 0));
    }

    /// Clients choose names of models.
    #[test]
    fn number_of_flows_is_limited() {
        let (usage, now) = (PoolUsage::default(), Instant::now());
        for number in 0..10_000 {
            usage.record_admission(&format!("model-{number}"), -10, 1, now);
        }
        let (_, flows) = usage.recent(now);
        assert_eq!((flows.len(), flows[OVERFLOW].requests), (MAX_FLOWS + 1, 10_000 - MAX_FLOWS as u64));
    }
}
