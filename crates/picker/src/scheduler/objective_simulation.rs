//! A critical use case with an objective beside noncritical requests that exceed the capacity of the engines, with a virtual clock.
//! The more requests an engine runs, the longer each token takes.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use cluster::NamespacedName;
use fastrand::Rng;
use tokio::task::JoinSet;

use super::{test_request::admit, *};
use crate::{
    BUSY_SCRAPE_INTERVAL,
    endpoint::tests::endpoint,
    engine_metrics::EngineMetrics,
    use_case::{CRITICAL, NONCRITICAL, UseCase},
};

/// Number of requests that each engine runs at the same time; further ones wait in it.
const SLOTS: usize = 32;

/// Output tokens of each request.
const TOKENS: u64 = 50;

/// Latency of a token in an idle engine, and how much longer it takes per running request.
const TOKEN_LATENCY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(2));

/// Time over which latencies are compared with the objective.
const WINDOW: Duration = Duration::from_secs(60);

/// How long requests arrive, and from when the latencies are evaluated.
const END: Duration = Duration::from_secs(600);
const SETTLED: Duration = Duration::from_secs(200);

/// Requests per second of the critical use case, and of the noncritical one while it exceeds the capacity.
const CRITICAL_RATE: f64 = 2.0;
const NONCRITICAL_RATE: f64 = 30.0;

/// What happened to the requests of one use case.
#[derive(Debug, Default)]
struct Outcome {
    /// Arrival and latency per output token of the requests that were served.
    served: Vec<(Duration, Duration)>,
    rejected: usize,
}

impl Outcome {
    /// Returns the 95th percentile of the latencies per output token of the requests that arrived in a time.
    fn p95(&self, time: std::ops::Range<Duration>) -> Duration {
        let served = self.served.iter().filter(|(arrival, _)| time.contains(arrival));
        let mut latencies: Vec<Duration> = served.map(|(_, latency)| *latency).collect();
        latencies.sort_unstable();
        latencies[latencies.len() * 95 / 100]
    }

    /// Returns how many requests that arrived in a time were served.
    fn served(&self, time: std::ops::Range<Duration>) -> usize {
        self.served.iter().filter(|(arrival, _)| time.contains(arrival)).count()
    }
}

/// Sends requests of a critical use case until [`END`], and noncritical ones until `noncritical_end`. Returns the outcome of both and
/// the noncritical share at the end.
async fn simulate(objective: Option<Duration>, noncritical_end: Duration) -> ([Outcome; 2], f64) {
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_default_namespace("ns".to_owned());
    let scheduler = Arc::new(scheduler.with_objective_window(WINDOW));
    let endpoints = [1, 2].map(|number| Arc::new(endpoint(number)));
    let use_cases =
        [("critical", CRITICAL, objective), ("other", NONCRITICAL, None)].map(|(model, priority, objective)| {
            (model.to_owned(), UseCase { priority, objective, ..UseCase::implicit(model) })
        });
    endpoints.iter().for_each(|endpoint| assert!(endpoint.state.begin_scraping(), "the simulation scrapes it"));
    let pool = Pool::new(NamespacedName::new("ns", "p"), scheduler.default_scheduling(), endpoints.to_vec());
    scheduler.replace(vec![Pool { use_cases: use_cases.into(), ..pool }]);

    let running: Arc<[AtomicUsize; 2]> = Arc::default();
    let (origin, mut requests) = (Instant::now(), JoinSet::new());
    for (index, (model, rate, end)) in
        [("critical", CRITICAL_RATE, END), ("other", NONCRITICAL_RATE, noncritical_end)].into_iter().enumerate()
    {
        let (mut rng, mut arrival) = (Rng::with_seed(index as u64), Duration::ZERO);
        while arrival < end {
            arrival += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / rate);
            let (scheduler, endpoints, running) = (Arc::clone(&scheduler), endpoints.clone(), Arc::clone(&running));
            requests.spawn(async move {
                tokio::time::sleep_until(origin + arrival).await;
                let Ok(mut permit) = admit(&scheduler, model).await else { return (index, None) };
                let engine = endpoints.iter().position(|endpoint| endpoint.address == permit.destination()).unwrap();
                running[engine].fetch_add(1, Relaxed);
                for _ in 0..TOKENS {
                    let others = running[engine].load(Relaxed) as u32;
                    tokio::time::sleep(TOKEN_LATENCY.0 + TOKEN_LATENCY.1 * others).await;
                }
                running[engine].fetch_sub(1, Relaxed);
                permit.record_response_body(format!(r#"{{"usage":{{"completion_tokens":{TOKENS}}}}}"#).as_bytes());
                permit.record_response_end();
                (index, Some((arrival, (origin.elapsed() - arrival) / TOKENS as u32)))
            });
        }
    }
    while origin.elapsed() < END {
        tokio::time::sleep(BUSY_SCRAPE_INTERVAL).await;
        for (endpoint, running) in endpoints.iter().zip(&*running) {
            let all = running.load(Relaxed);
            let (running, waiting) = (all.min(SLOTS) as f64, all.saturating_sub(SLOTS) as f64);
            let metrics = EngineMetrics { running: Some(running), waiting: Some(waiting), ..EngineMetrics::default() };
            endpoint.state.record_metrics(metrics, Instant::now());
        }
    }
    let share = scheduler.snapshot().pools.values().next().unwrap().objectives.share(NONCRITICAL, Instant::now());
    let mut outcomes: [Outcome; 2] = Default::default();
    while let Some(result) = requests.join_next().await {
        match result.unwrap() {
            (index, Some(served)) => outcomes[index].served.push(served),
            (index, None) => outcomes[index].rejected += 1,
        }
    }
    (outcomes, share)
}

/// Full engines miss the objective. With it, they run fewer noncritical requests, and the use case meets it most of the time.
// spec: GW-47
#[tokio::test(start_paused = true)]
async fn missed_objective_tightens_noncritical_admission() {
    let objective = Duration::from_millis(60);
    let ([without, _], share) = simulate(None, END).await;
    assert!(without.p95(SETTLED..END) > objective, "{:?}", without.p95(SETTLED..END));
    assert_eq!(share, 1.0);

    let ([critical, other], _) = simulate(Some(objective), END).await;
    assert_eq!(critical.rejected, 0);
    let in_time = critical.served.iter().filter(|(arrival, latency)| *arrival >= SETTLED && *latency <= objective);
    let (in_time, all) = (in_time.count(), critical.served(SETTLED..END));
    assert!(in_time * 10 >= all * 9, "{in_time} of {all}, P95 {:?}", critical.p95(SETTLED..END));
    assert!(other.served(SETTLED..END) > 2 * all, "noncritical requests use the rest");
}

/// After the load has ended, the objective is met again, and nothing is held back any more.
// spec: GW-47
#[tokio::test(start_paused = true)]
async fn noncritical_admission_recovers() {
    let (_, share) = simulate(Some(Duration::from_millis(60)), SETTLED).await;
    assert_eq!(share, 1.0);
}

/// An objective that no engine can meet rejects no request of its use case, and noncritical requests are still served.
// spec: GW-46
#[tokio::test(start_paused = true)]
async fn unattainable_objective_fails_no_request_of_its_use_case() {
    let ([critical, other], share) = simulate(Some(Duration::from_millis(1)), END).await;
    assert_eq!((critical.rejected, critical.served.len() > 1_000), (0, true));
    assert!(share < 0.1 && other.served(SETTLED..END) > 0, "{share}");
}
