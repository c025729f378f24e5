//! How many requests an engine runs at the same time, learned from its metrics.
//!
//! Engines do not report their limit, and it depends on the requests: on their number (`--max-num-seqs`), on the memory of their KV
//! caches, on the tokens of their prompts per step. An engine that reports waiting requests runs as many as it can.

use std::time::Duration;

use tokio::time::Instant;

/// Limit of an engine whose requests have never waited: the default of `--max-num-seqs` of vLLM's server on accelerators with less
/// than 70 GiB (vllm 0.32.0, `engine/arg_utils.py`).
const INITIAL_LIMIT: usize = 256;

/// How long a learned limit remains as it is before one more request is tried.
const MIN_HOLD: Duration = Duration::from_secs(2);

/// Longest hold of a limit that was learned several times: the engine is started with it.
const MAX_HOLD: Duration = Duration::from_secs(160);

/// Lower limits are held for [`MIN_HOLD`] only. Few engines are started with them: an engine that runs so few requests is computing
/// long prompts, and the next ones may be short.
const MIN_STABLE_LIMIT: usize = 8;

/// The limit of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConcurrencyLimit {
    limit: usize,
    /// How much the limit grows next.
    growth: usize,
    /// Number of running requests in the last report, if requests waited then.
    running_while_others_waited: Option<usize>,
    /// Limit that was learned last, how long it is held, and until when.
    learned: Option<usize>,
    hold: Duration,
    hold_until: Option<Instant>,
}

/// What an engine reported, and what this process knows about its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Requests that the engine runs.
    pub(crate) running: usize,
    /// Requests that wait in the engine.
    pub(crate) waiting: usize,
    /// Highest number of requests in flight since the last report, with those of other clients.
    pub(crate) peak: usize,
}

// === impl ConcurrencyLimit ===

impl Default for ConcurrencyLimit {
    fn default() -> Self {
        Self::new(INITIAL_LIMIT)
    }
}

impl ConcurrencyLimit {
    /// Returns the limit of an engine of which nothing is known yet.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, growth: 1, running_while_others_waited: None, learned: None, hold: MIN_HOLD, hold_until: None }
    }

    /// Returns the limit if reports of the engine have shown it.
    pub(crate) fn learned(&self) -> Option<usize> {
        self.learned.map(|_| self.limit)
    }

    /// Returns how many requests may be in flight, at least 1.
    pub(crate) fn get(&self) -> usize {
        self.limit
    }

    /// Returns how many requests of this process may be in flight, at least 1, while others send requests to the engine as well: what
    /// they leave, but not less than its share of all requests and one more. So several processes that send as many as they can exceed
    /// the limit by one or two requests each, and one that sends none yet comes to its share.
    pub(crate) fn share(&self, own: usize, others: usize) -> usize {
        let (own, all) = (own as f64 + 1.0, own as f64 + others as f64 + 1.0);
        let share = (self.limit as f64 * own / all).ceil() as usize;
        self.limit.saturating_sub(others).max(share)
    }

    /// Learns from a report of the engine.
    pub(crate) fn record(&mut self, load: Load, now: Instant) {
        if load.waiting == 0 {
            self.running_while_others_waited = None;
            let is_used = load.peak >= self.limit;
            if is_used && self.hold_until.is_none_or(|until| now >= until) {
                self.limit = self.limit.saturating_add(self.growth);
                self.growth = self.growth.saturating_mul(2).min((self.limit / 4).max(1));
            }
            return;
        }
        // Requests that arrive together may wait for one step of the engine although it can run all of them.
        let Some(before) = self.running_while_others_waited.replace(load.running) else { return };
        let running = before.max(load.running).max(1);
        if running < self.limit {
            self.hold = match self.learned == Some(running) && running >= MIN_STABLE_LIMIT {
                true => self.hold.saturating_mul(2).min(MAX_HOLD),
                false => MIN_HOLD,
            };
            (self.limit, self.learned, self.growth) = (running, Some(running), 1);
            self.hold_until = Some(now + self.hold);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(200);

    /// An engine that runs up to `capacity` requests, with as many in flight as the limit permits.
    struct Engine {
        limit: ConcurrencyLimit,
        now: Instant,
        capacity: usize,
    }

    impl Engine {
        fn new(capacity: usize) -> Self {
            Self { limit: ConcurrencyLimit::default(), now: Instant::now(), capacity }
        }

        /// Reports `count` times while `offered` requests are to be served. Returns the waiting requests at each report.
        fn report(&mut self, count: usize, offered: usize) -> Vec<usize> {
            let mut waiting = Vec::new();
            for _ in 0..count {
                let peak = offered.min(self.limit.get());
                let running = peak.min(self.capacity);
                waiting.push(peak - running);
                self.limit.record(Load { running, waiting: peak - running, peak }, self.now);
                self.now += INTERVAL;
            }
            waiting
        }
    }

    #[rstest]
    #[case::smallest_stable(MIN_STABLE_LIMIT)]
    #[case::medium(32)]
    #[case::below_the_first_limit(255)]
    fn limit_is_that_of_the_engine(#[case] capacity: usize) {
        let mut engine = Engine::new(capacity);
        engine.report(2, 10_000);
        assert_eq!(engine.limit.get(), capacity);
        // Ten minutes: one more request is tried a few times.
        let waiting = engine.report(3_000, 10_000);
        assert!(waiting.iter().all(|waiting| *waiting <= 1));
        assert!(waiting.iter().filter(|waiting| **waiting > 0).count() <= 20, "{waiting:?}");
        assert_eq!(engine.limit.get(), capacity);
    }

    #[test]
    fn limit_of_a_larger_engine_is_found_in_seconds() {
        let mut engine = Engine::new(2_000);
        engine.report(30, 10_000);
        assert_eq!(engine.limit.get(), 2_000);
    }

    #[test]
    fn limit_follows_the_capacity() {
        let mut engine = Engine::new(8);
        engine.report(10, 100);
        assert_eq!(engine.limit.get(), 8);
        engine.capacity = 64;
        engine.report(100, 100);
        assert!((60..=64).contains(&engine.limit.get()), "{}", engine.limit.get());
    }

    /// An engine computes a long prompt for a minute, and the requests behind it wait.
    #[test]
    fn limit_grows_in_seconds_after_a_long_prompt() {
        let mut engine = Engine::new(1);
        engine.report(300, 100);
        assert!(engine.limit.get() <= 2);
        engine.capacity = 64;
        engine.report(20, 100);
        assert!(engine.limit.get() >= 32, "{}", engine.limit.get());
    }

    #[rstest]
    #[case::idle(0)]
    #[case::below_the_limit(200)]
    fn unused_limit_does_not_grow(#[case] offered: usize) {
        let mut engine = Engine::new(10_000);
        engine.report(100, offered);
        assert_eq!(engine.limit.get(), INITIAL_LIMIT);
    }

    #[test]
    fn one_report_with_waiting_requests_teaches_nothing() {
        let mut limit = ConcurrencyLimit::default();
        for waiting in [100, 0, 100, 0] {
            limit.record(Load { running: 3, waiting, peak: 103 }, Instant::now());
        }
        assert_eq!(limit.get(), INITIAL_LIMIT);
    }

    /// Columns: requests of this process and of others at an engine that runs ten, and how many this process may send.
    #[rstest]
    #[case::alone(7, 0, 10)]
    #[case::others_leave_room(2, 3, 7)]
    #[case::others_occupy_the_engine(0, 10, 1)]
    #[case::others_overload_the_engine(0, 1_000, 1)]
    #[case::equal(5, 5, 6)]
    #[case::largest(usize::MAX, usize::MAX, 5)]
    fn others_leave_a_share(#[case] own: usize, #[case] others: usize, #[case] expect: usize) {
        assert_eq!(ConcurrencyLimit::new(10).share(own, others), expect);
    }

    /// Processes that send as many requests as they can have similar shares after some reports.
    #[rstest]
    #[case::two(&[32, 0])]
    #[case::three(&[0, 20, 12])]
    fn processes_share_an_engine(#[case] first: &[usize]) {
        let (limit, mut requests) = (ConcurrencyLimit::new(32), first.to_vec());
        for _ in 0..60 {
            let total: usize = requests.iter().sum();
            requests.iter_mut().for_each(|own| *own = limit.share(*own, total - *own));
            assert!(requests.iter().sum::<usize>() <= 32 + 2 * requests.len(), "{requests:?}");
        }
        let (min, max) = (requests.iter().min().unwrap(), requests.iter().max().unwrap());
        assert!(max <= &(2 * min), "{requests:?}");
    }

    #[test]
    fn limit_is_positive() {
        let mut limit = ConcurrencyLimit::default();
        for _ in 0..3 {
            limit.record(Load { running: 0, waiting: 5, peak: 5 }, Instant::now());
        }
        assert_eq!(limit.get(), 1);
    }
}
