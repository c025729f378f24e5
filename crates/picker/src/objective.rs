//! Latency objectives of use cases: the measured latency of their requests, and how much the admission of other requests is
//! tightened while one is missed.
//!
//! The measured value of a request is its end-to-end latency divided by its output tokens. Percentiles are those of DDSketch
//! (Masson, Rim, Lee: "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error Guarantees", VLDB 2019): they
//! differ from the exact ones by at most [`RELATIVE_ERROR`].

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use sketches_ddsketch::{Config, DDSketch};
use tokio::time::Instant;

use crate::use_case::{CRITICAL, UseCase};

/// Default of the time over which latencies are compared with objectives.
pub const DEFAULT_OBJECTIVE_WINDOW: Duration = Duration::from_mins(5);

/// Minimum number of requests in the window. With fewer, an objective is neither met nor missed.
pub(crate) const MIN_REQUESTS: usize = 50;

/// Maximum relative error of a percentile.
const RELATIVE_ERROR: f64 = 0.01;

/// Maximum number of bins of a sketch. With [`RELATIVE_ERROR`], they cover latencies that differ by a factor of 800 million.
const MAX_BINS: u32 = 1_024;

/// Smallest latency in seconds that is distinguished from 0.
const MIN_SECONDS: f64 = 1e-7;

/// Number of parts of a window; the oldest one is dropped as a whole.
const WINDOW_PARTS: u32 = 10;

/// Number of parts of a window whose requests are the recent ones.
const RECENT_PARTS: u32 = 2;

/// Factor of the noncritical share at each step while an objective is missed.
const TIGHTENING: f64 = 0.7;

/// What is added to the noncritical share at each step while all objectives are met.
const RELAXATION: f64 = 0.05;

/// Smallest noncritical share. An idle engine runs one noncritical request in any case.
const MIN_SHARE: f64 = 0.001;

/// Shares are stored in millionths.
const SHARE_UNIT: f64 = 1e6;

/// Latencies of the requests of a use case on one pool, compared with its objective.
#[derive(Debug)]
pub(crate) struct ObjectiveWindow {
    /// Desired latency per output token at the 95th percentile.
    pub(crate) objective: Duration,
    latencies: Mutex<LatencyWindow>,
}

/// Measured latency per output token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Attainment {
    /// Desired 95th percentile.
    pub(crate) objective: Duration,
    /// Measured 95th percentile.
    pub(crate) p95: Duration,
    /// Number of measured requests in the window.
    pub(crate) requests: usize,
}

/// How the requests of a use case, or of all use cases of a pool, compare with the objective. The worst is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trend {
    /// The objective is met, or too few requests are measured.
    Met,
    /// The objective is missed, but the recent requests meet it.
    Recovering,
    /// The recent requests miss the objective as well.
    Missed,
}

/// Latencies in a sliding window. Its memory does not depend on the number of requests.
struct LatencyWindow {
    part_duration: Duration,
    /// Start and latencies of each part, the oldest first.
    parts: VecDeque<(Instant, DDSketch)>,
}

/// Objectives of the use cases of one pool. Versions of the pool share the windows.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolObjectives {
    /// Windows by model name.
    windows: BTreeMap<String, Arc<ObjectiveWindow>>,
    /// Minimum time between two changes of the noncritical share.
    step_interval: Duration,
    noncritical: Arc<NoncriticalAdmission>,
}

/// Up to which part of the requests that an engine runs at the same time noncritical requests are admitted. The part is multiplied
/// while an objective of the pool is missed, and increased while none is.
#[derive(Debug)]
struct NoncriticalAdmission {
    /// Share in units of [`SHARE_UNIT`].
    share: AtomicU32,
    /// When the share was computed last.
    last_step: Mutex<Option<Instant>>,
}

// === impl ObjectiveWindow ===

impl ObjectiveWindow {
    /// Returns a window of this duration without requests.
    fn new(objective: Duration, window: Duration) -> Self {
        let latencies = LatencyWindow { part_duration: window / WINDOW_PARTS, parts: VecDeque::new() };
        Self { objective, latencies: Mutex::new(latencies) }
    }

    /// Records a request with an end-to-end `latency`. A request without output tokens does not count.
    pub(crate) fn record(&self, latency: Duration, output_tokens: u64, now: Instant) {
        if output_tokens > 0 {
            self.lock().record(latency.as_secs_f64() / output_tokens as f64, now);
        }
    }

    /// Returns the measured latency, `None` with fewer than [`MIN_REQUESTS`].
    pub(crate) fn attainment(&self, now: Instant) -> Option<Attainment> {
        let (p95, requests) = self.lock().p95(now, WINDOW_PARTS).filter(|(_, requests)| *requests >= MIN_REQUESTS)?;
        Some(Attainment { objective: self.objective, p95, requests })
    }

    fn trend(&self, now: Instant) -> Trend {
        if self.attainment(now).is_none_or(Attainment::is_met) {
            return Trend::Met;
        }
        let recent = self.lock().p95(now, RECENT_PARTS);
        if recent.is_some_and(|(p95, _)| p95 > self.objective) { Trend::Missed } else { Trend::Recovering }
    }

    fn lock(&self) -> MutexGuard<'_, LatencyWindow> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Attainment ===

impl Attainment {
    /// Returns whether the objective is met.
    pub(crate) fn is_met(self) -> bool {
        self.p95 <= self.objective
    }

    /// Returns the desired latency divided by the measured one.
    pub(crate) fn ratio(self) -> f64 {
        self.objective.as_secs_f64() / self.p95.as_secs_f64().max(MIN_SECONDS)
    }
}

// === impl LatencyWindow ===

impl LatencyWindow {
    fn record(&mut self, seconds: f64, now: Instant) {
        let part_duration = self.part_duration;
        if self.parts.back().is_none_or(|(start, _)| now.duration_since(*start) >= part_duration) {
            self.drop_old_parts(now);
            self.parts.push_back((now, DDSketch::new(Config::new(RELATIVE_ERROR, MAX_BINS, MIN_SECONDS))));
        }
        if let Some((_, sketch)) = self.parts.back_mut() {
            sketch.add(seconds);
        }
    }

    /// Returns the 95th percentile and the number of requests in the last `count` parts.
    fn p95(&mut self, now: Instant, count: u32) -> Option<(Duration, usize)> {
        self.drop_old_parts(now);
        let duration = self.part_duration * count;
        let parts = self.parts.iter().filter(|(start, _)| now.duration_since(*start) < duration);
        let mut parts = parts.map(|(_, sketch)| sketch);
        let mut all = parts.next()?.clone();
        // All sketches have the same configuration.
        parts.for_each(|part| all.merge(part).unwrap_or_default());
        Some((Duration::try_from_secs_f64(all.quantile(0.95).ok()??).ok()?, all.count()))
    }

    fn drop_old_parts(&mut self, now: Instant) {
        let window = self.part_duration * WINDOW_PARTS;
        while self.parts.front().is_some_and(|(start, _)| now.duration_since(*start) >= window) {
            self.parts.pop_front();
        }
    }
}

impl fmt::Debug for LatencyWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyWindow").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

// === impl PoolObjectives ===

impl PoolObjectives {
    /// Returns the objectives of `use_cases` with windows of this duration. Those of unchanged objectives are retained.
    pub(crate) fn next_version(&self, use_cases: &BTreeMap<String, UseCase>, window: Duration) -> Self {
        let with_window = |(model, use_case): (&String, &UseCase)| {
            let objective = use_case.objective?;
            let unchanged = self.windows.get(model).filter(|existing| existing.objective == objective);
            let new = || Arc::new(ObjectiveWindow::new(objective, window));
            Some((model.clone(), unchanged.cloned().unwrap_or_else(new)))
        };
        let windows = use_cases.iter().filter_map(with_window).collect();
        Self { windows, step_interval: window / WINDOW_PARTS, noncritical: Arc::clone(&self.noncritical) }
    }

    /// Returns whether no use case has an objective.
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns the window of a use case, if it has an objective.
    pub(crate) fn window(&self, model_name: &str) -> Option<&Arc<ObjectiveWindow>> {
        self.windows.get(model_name)
    }

    /// Returns the windows by model name.
    pub(crate) fn windows(&self) -> impl Iterator<Item = (&str, &ObjectiveWindow)> {
        self.windows.iter().map(|(model, window)| (model.as_str(), &**window))
    }

    /// Returns which part of the requests that an engine runs at the same time may be reached by admitting requests of `priority`.
    /// It changes at each part of the window at most.
    pub(crate) fn share(&self, priority: i32, now: Instant) -> f64 {
        if priority >= CRITICAL || self.is_empty() {
            return 1.0;
        }
        let worst = || self.windows.values().map(|window| window.trend(now)).max().unwrap_or(Trend::Met);
        self.noncritical.update(now, self.step_interval, worst)
    }

    /// Returns what [`Self::share`] returned last, and changes nothing.
    pub(crate) fn current_share(&self, priority: i32) -> f64 {
        if priority >= CRITICAL || self.is_empty() { 1.0 } else { self.noncritical.share() }
    }
}

// === impl NoncriticalAdmission ===

impl Default for NoncriticalAdmission {
    fn default() -> Self {
        Self { share: AtomicU32::new(SHARE_UNIT as u32), last_step: Mutex::default() }
    }
}

impl NoncriticalAdmission {
    fn share(&self) -> f64 {
        f64::from(self.share.load(Relaxed)) / SHARE_UNIT
    }

    /// Changes the share if a step is due, and returns it.
    fn update(&self, now: Instant, interval: Duration, trend: impl FnOnce() -> Trend) -> f64 {
        let mut last_step = match self.last_step.try_lock() {
            Ok(last_step) => last_step,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another request computes the share.
            Err(TryLockError::WouldBlock) => return self.share(),
        };
        let elapsed = last_step.map_or(interval, |last| now.duration_since(last));
        if elapsed >= interval {
            *last_step = Some(now);
            let intervals = elapsed.div_duration_f64(interval).floor();
            self.share.store((next_share(self.share(), trend(), intervals) * SHARE_UNIT).round() as u32, Relaxed);
        }
        self.share()
    }
}

/// Returns the noncritical share after `share`, of which the last step was this number of intervals ago.
fn next_share(share: f64, trend: Trend, intervals: f64) -> f64 {
    match trend {
        Trend::Missed => (share * TIGHTENING).max(MIN_SHARE),
        // Requests from before the last steps are still in the window.
        Trend::Recovering => share,
        // No request may have arrived in the meantime.
        Trend::Met => (share + RELAXATION * intervals).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::use_case::{IMPLICIT, NONCRITICAL};

    const WINDOW: Duration = DEFAULT_OBJECTIVE_WINDOW;

    fn window() -> ObjectiveWindow {
        ObjectiveWindow::new(Duration::from_millis(60), WINDOW)
    }

    /// 1,000 ms to the first token and 1,000 ms for 100 tokens are 20 ms per token, not 10 ms.
    // spec: GW-44
    #[test]
    fn latency_includes_the_time_to_the_first_token() {
        let (window, now) = (window(), Instant::now());
        (0..MIN_REQUESTS).for_each(|_| window.record(Duration::from_secs(2), 100, now));
        let p95 = window.attainment(now).unwrap().p95.as_secs_f64();
        assert!((p95 / 0.020 - 1.0).abs() <= RELATIVE_ERROR, "{p95}");
    }

    /// Columns: latencies per token in ms, with the number of requests of each, and whether the objective of 60 ms is met.
    // spec: GW-45
    #[rstest]
    #[case::all_fast(&[(40, 50)], Some(true))]
    #[case::too_few(&[(90, 49)], None)]
    #[case::slow_outliers(&[(40, 97), (900, 3)], Some(true))]
    #[case::many_slow(&[(40, 90), (90, 10)], Some(false))]
    #[case::mean_is_no_percentile(&[(10, 940), (70, 60)], Some(false))]
    fn attainment_is_that_of_the_95th_percentile(#[case] latencies: &[(u64, usize)], #[case] expect: Option<bool>) {
        let (window, now) = (window(), Instant::now());
        for (latency, count) in latencies {
            (0..*count).for_each(|_| window.record(Duration::from_millis(*latency), 1, now));
        }
        assert_eq!(window.attainment(now).map(Attainment::is_met), expect);
    }

    // spec: GW-45
    #[test]
    fn requests_leave_the_window() {
        let (window, start) = (window(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        (0..MIN_REQUESTS).for_each(|_| window.record(Duration::from_millis(90), 1, start));
        (0..MIN_REQUESTS).for_each(|_| window.record(Duration::from_millis(40), 1, at(100)));
        let attainment = |seconds| window.attainment(at(seconds)).map(|all| (all.is_met(), all.requests));
        assert_eq!(attainment(100), Some((false, 2 * MIN_REQUESTS)));
        assert_eq!(attainment(WINDOW.as_secs()), Some((true, MIN_REQUESTS)));
        assert_eq!(attainment(WINDOW.as_secs() + 100), None);
    }

    #[test]
    fn responses_without_tokens_do_not_count() {
        let (window, now) = (window(), Instant::now());
        (0..MIN_REQUESTS).for_each(|_| window.record(Duration::from_secs(1), 0, now));
        assert_eq!(window.attainment(now), None);
    }

    /// The percentile of latencies of all magnitudes, in bounded memory.
    #[test]
    fn percentile_has_a_bounded_error() {
        let (window, now) = (window(), Instant::now());
        let mut rng = fastrand::Rng::with_seed(3);
        let mut latencies: Vec<f64> = (0..20_000).map(|_| 10_f64.powf(rng.f64() * 6.0 - 4.0)).collect();
        latencies.iter().for_each(|latency| window.record(Duration::from_secs_f64(*latency), 1, now));
        latencies.sort_by(f64::total_cmp);
        let (exact, p95) = (latencies[18_999], window.attainment(now).unwrap().p95.as_secs_f64());
        assert!((p95 / exact - 1.0).abs() <= 1.1 * RELATIVE_ERROR, "{exact} {p95}");
        assert!(window.lock().parts.iter().all(|(_, sketch)| sketch.length() <= MAX_BINS as usize));
    }

    fn use_cases(objective: Duration) -> BTreeMap<String, UseCase> {
        let use_case = UseCase { priority: CRITICAL, objective: Some(objective), ..UseCase::implicit("critical") };
        [("critical".to_owned(), use_case), ("other".to_owned(), UseCase::implicit("other"))].into()
    }

    // spec: GW-46
    // spec: GW-47
    #[test]
    fn missed_objective_tightens_noncritical_admission_until_it_recovers() {
        let objectives = PoolObjectives::default().next_version(&use_cases(Duration::from_millis(60)), WINDOW);
        let (window, start) = (objectives.window("critical").unwrap(), Instant::now());
        (0..MIN_REQUESTS).for_each(|_| window.record(Duration::from_millis(90), 1, start));
        let share = |seconds, priority| objectives.share(priority, start + Duration::from_secs(seconds));
        assert_eq!((share(0, NONCRITICAL), share(29, IMPLICIT), share(30, IMPLICIT)), (0.7, 0.7, 0.49));
        assert_eq!((share(30, CRITICAL), share(30, CRITICAL + 1)), (1.0, 1.0), "the use case itself is not limited");
        (0..10).for_each(|_| window.record(Duration::from_millis(40), 1, start + Duration::from_secs(70)));
        assert_eq!((share(100, NONCRITICAL), share(130, NONCRITICAL)), (0.49, 0.49), "the recent requests were fast");
        assert_eq!((share(310, NONCRITICAL), share(340, NONCRITICAL), share(1_000, NONCRITICAL)), (0.79, 0.84, 1.0));
    }

    #[test]
    fn unattainable_objective_leaves_a_share() {
        let shares = std::iter::successors(Some(1.0), |share| Some(next_share(*share, Trend::Missed, 1.0)));
        assert_eq!(shares.take(100).last(), Some(MIN_SHARE));
    }

    #[test]
    fn versions_of_a_pool_share_the_windows_of_unchanged_objectives() {
        let objective = Duration::from_millis(60);
        let first = PoolObjectives::default().next_version(&use_cases(objective), WINDOW);
        let same =
            |other: &PoolObjectives| Arc::ptr_eq(first.window("critical").unwrap(), other.window("critical").unwrap());
        assert!(same(&first.next_version(&use_cases(objective), WINDOW)));
        assert!(!same(&first.next_version(&use_cases(objective * 2), WINDOW)));
        assert!(first.next_version(&BTreeMap::new(), WINDOW).is_empty());
        assert!(first.window("other").is_none());
    }
}
