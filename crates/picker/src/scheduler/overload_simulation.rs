//! Engines at three times their capacity behind the scheduler, with a virtual clock.

use std::{collections::BTreeMap, time::Duration};

use cluster::NamespacedName;
use tokio::task::JoinSet;

use super::{
    simulated_engine::{Arrival, CAPACITY, ENGINES, Served, SimulatedEngine, arrivals, p95, use_case, utilization},
    test_request::admit,
    *,
};
use crate::{
    BUSY_SCRAPE_INTERVAL,
    endpoint::tests::endpoint,
    use_case::{CRITICAL, NONCRITICAL},
};

/// How long requests arrive, unless a test states another time.
const END: Duration = Duration::from_secs(120);

/// When the limits of the engines are learned.
const LEARNED: Duration = Duration::from_secs(15);

/// What happened.
#[derive(Default)]
struct Outcome {
    /// When requests stopped arriving.
    end: Duration,
    served: Vec<Served>,
    /// Number of rejected requests by model.
    rejected: BTreeMap<&'static str, usize>,
    /// Requests that waited in an engine, at each report after the limits were learned.
    waiting: Vec<usize>,
}

// === impl Outcome ===

impl Outcome {
    fn of(&self, model: &str) -> impl Iterator<Item = &Served> {
        self.served.iter().filter(move |served| served.model == model)
    }

    /// Returns the 95th percentile of the time from arrival to end.
    fn p95(&self, model: &str) -> Duration {
        p95(self.of(model).map(|served| served.end - served.arrival))
    }

    /// Returns the part of the slots that were in use once the limits were learned.
    fn utilization(&self) -> f64 {
        utilization(&self.served, LEARNED..self.end)
    }

    /// Returns how many requests of `model` started in each interval of ten seconds once the limits were learned.
    fn starts(&self, model: &str) -> Vec<usize> {
        let first = LEARNED.as_secs() / 10 + 1;
        let count = |interval| self.of(model).filter(|served| served.start.as_secs() / 10 == interval).count();
        (first..self.end.as_secs() / 10).map(count).collect()
    }
}

/// Pools by name, with the positions of their engines and their use cases.
type Pools<'a> = &'a [(&'a str, std::ops::Range<usize>, &'a [(&'a str, i32)])];

/// One pool of all engines.
const ONE_POOL: Pools<'_> = &[("p", 0..ENGINES, &[("critical", CRITICAL), ("a", NONCRITICAL), ("b", NONCRITICAL)])];

/// Sends requests for models at rates per second to one pool.
async fn simulate(rates: &[(&'static str, f64)]) -> Outcome {
    simulate_pools(ONE_POOL, rates, END).await
}

/// Sends requests for models at rates per second until `end`.
async fn simulate_pools(pools: Pools<'_>, rates: &[(&'static str, f64)], end: Duration) -> Outcome {
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_default_namespace("ns".to_owned());
    let engine = |number: usize| {
        let endpoint = Arc::new(endpoint(number as u8));
        assert!(endpoint.state.begin_scraping(), "the simulation scrapes it");
        SimulatedEngine::new(vec![endpoint])
    };
    let engines: Vec<_> = (1..=ENGINES).map(engine).collect();
    let new_pool = |(name, range, use_cases): &(&str, std::ops::Range<usize>, &[(&str, i32)])| {
        let endpoints = engines[range.clone()].iter().flat_map(|engine| engine.endpoints.clone()).collect();
        let pool = Pool::new(NamespacedName::new("ns", name), scheduler.default_scheduling(), endpoints);
        let use_cases = use_cases.iter().map(use_case).collect();
        Pool { use_cases, allows_implicit_use_cases: true, ..pool }
    };
    scheduler.replace(pools.iter().map(new_pool).collect());

    let (scheduler, origin) = (Arc::new(scheduler), Instant::now());
    let mut requests = JoinSet::new();
    for (seed, (model, rate)) in (1..).zip(rates.iter().copied()) {
        for Arrival { time: arrival, duration } in arrivals(seed, rate, end) {
            let (scheduler, engines) = (Arc::clone(&scheduler), engines.clone());
            requests.spawn(async move {
                tokio::time::sleep_until(origin + arrival).await;
                let Ok(permit) = admit(&scheduler, model).await else { return Err(model) };
                let start = origin.elapsed();
                let address = permit.destination();
                let engine = engines.iter().find(|engine| engine.endpoints[0].address == address).unwrap();
                engine.serve(duration).await;
                Ok(Served { model, arrival, start, end: origin.elapsed() })
            });
        }
    }
    let mut outcome = Outcome { end, ..Outcome::default() };
    while origin.elapsed() < end {
        tokio::time::sleep(BUSY_SCRAPE_INTERVAL).await;
        engines.iter().for_each(|engine| engine.report());
        if origin.elapsed() >= LEARNED {
            outcome.waiting.extend(engines.iter().map(|engine| engine.waiting()));
        }
    }
    while let Some(result) = requests.join_next().await {
        match result.unwrap() {
            Ok(served) => outcome.served.push(served),
            Err(model) => *outcome.rejected.entry(model).or_default() += 1,
        }
    }
    outcome
}

/// No engine has a queue for ten minutes, except for the single requests that try whether it can run more. The engines are busy all the
/// time, and the others do not delay requests with a higher priority.
// spec: GW-16
// spec: GW-36
// spec: GW-74
// spec: GW-76
// spec: GW-78
#[tokio::test(start_paused = true)]
async fn overload_waits_in_the_gateway() {
    let critical = ("critical", 0.3 * CAPACITY);
    let end = Duration::from_secs(600);
    let alone = simulate_pools(ONE_POOL, &[critical], end).await;
    let overload = [critical, ("a", 2.2 * CAPACITY), ("undeclared", 0.5 * CAPACITY)];
    let outcome = simulate_pools(ONE_POOL, &overload, end).await;

    let reports = outcome.waiting.len();
    let with_queue = outcome.waiting.iter().filter(|waiting| **waiting > 0).count();
    assert!(outcome.waiting.iter().all(|waiting| *waiting <= 1), "{:?}", outcome.waiting.iter().max());
    assert!(with_queue * 50 < reports, "{with_queue} of {reports}");
    assert!(outcome.utilization() >= 0.95, "{}", outcome.utilization());

    let (expected, actual) = (alone.p95("critical"), outcome.p95("critical"));
    assert!(actual.as_secs_f64() <= 1.05 * expected.as_secs_f64(), "{expected:?} {actual:?}");
    assert_eq!(outcome.rejected.get("critical"), None);
    let undeclared = outcome.of("undeclared").filter(|served| (LEARNED..end).contains(&served.start));
    assert_eq!(undeclared.count(), 0, "they have the lowest priority");
    assert!(outcome.rejected["a"] > 0);
}

/// Two use cases of which one sends ten times as many requests have equal shares, and one that sends less than its share leaves the
/// rest to the others.
// spec: GW-21
#[tokio::test(start_paused = true)]
async fn use_cases_have_equal_shares() {
    let outcome = simulate(&[("a", 10.0 * CAPACITY), ("b", CAPACITY)]).await;
    for (a, b) in outcome.starts("a").into_iter().zip(outcome.starts("b")) {
        assert!(a.abs_diff(b) * 20 <= a + b, "{a} {b}");
    }
    let outcome = simulate(&[("a", 3.0 * CAPACITY), ("b", 0.1 * CAPACITY)]).await;
    assert!(outcome.utilization() >= 0.95, "{}", outcome.utilization());
    assert_eq!(outcome.rejected.get("b"), None);
}

/// Each undeclared model has its own share.
// spec: GW-73
#[tokio::test(start_paused = true)]
async fn undeclared_models_have_equal_shares() {
    let outcome = simulate(&[("x", 2.0 * CAPACITY), ("y", CAPACITY), ("z", CAPACITY)]).await;
    let starts = ["x", "y", "z"].map(|model| outcome.starts(model));
    for ((x, y), z) in starts[0].iter().zip(&starts[1]).zip(&starts[2]) {
        assert!(x.abs_diff(*y).max(x.abs_diff(*z)) * 20 <= 2 * x, "{x} {y} {z}");
    }
}

/// Three times the capacity of one pool delays nothing in another one.
// spec: GW-11
#[tokio::test(start_paused = true)]
async fn overload_of_a_pool_does_not_concern_another_one() {
    let pools: Pools<'_> = &[("p", 0..2, &[("a", NONCRITICAL)]), ("q", 2..4, &[("b", NONCRITICAL)])];
    let b = ("b", 0.3 * CAPACITY);
    let alone = simulate_pools(pools, &[b], END).await;
    let outcome = simulate_pools(pools, &[("a", 1.5 * CAPACITY), b], END).await;
    assert!(outcome.rejected["a"] > 0 && !outcome.rejected.contains_key("b"), "{:?}", outcome.rejected);
    let (expected, actual) = (alone.p95("b"), outcome.p95("b"));
    assert!(actual.as_secs_f64() <= 1.05 * expected.as_secs_f64(), "{expected:?} {actual:?}");
}
