//! Several schedulers that send requests to the same engines at three times their capacity, with a virtual clock.

use std::{ops::Range, time::Duration};

use cluster::NamespacedName;
use rstest::rstest;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    simulated_engine::{Arrival, CAPACITY, ENGINES, Served, SimulatedEngine, arrivals, p95, use_case, utilization},
    test_request::admit,
    *,
};
use crate::{
    BUSY_SCRAPE_INTERVAL, PEER_UPDATE_INTERVAL, ReplicaId,
    endpoint::tests::endpoint,
    use_case::{CRITICAL, NONCRITICAL},
};

/// How long requests arrive.
const END: Duration = Duration::from_secs(60);

/// When the limits of the engines are learned and the replicas have their shares.
const SETTLED: Duration = Duration::from_secs(20);

/// Time from one replica to another.
const NETWORK_DELAY: Duration = Duration::from_millis(1);

/// Use cases, and their priorities.
const USE_CASES: [(&str, i32); 4] =
    [("critical", CRITICAL), ("a", NONCRITICAL), ("b", NONCRITICAL), ("c", NONCRITICAL)];

/// The replicas and their connections.
#[derive(Clone)]
struct Replicas {
    count: usize,
    delay: Duration,
    /// When no message arrives.
    partition: Range<Duration>,
    /// When the first replica is killed.
    killed: Option<Duration>,
}

/// Requests for a model to one replica, as a multiple of what the engines serve.
type Load = (usize, &'static str, f64);

/// What happened.
#[derive(Default)]
struct Outcome {
    served: Vec<Served>,
    /// Number of requests that were rejected.
    rejected: usize,
    /// Requests that waited in an engine, at each report after the replicas have settled.
    waiting: Vec<usize>,
}

// === impl Replicas ===

impl Replicas {
    fn new(count: usize) -> Self {
        Self { count, delay: NETWORK_DELAY, partition: Duration::ZERO..Duration::ZERO, killed: None }
    }

    fn scheduler(&self, replica: usize, engines: &[Arc<SimulatedEngine>]) -> Arc<Scheduler> {
        let id = ReplicaId { name: replica.to_string(), incarnation: 1 };
        let scheduler = Scheduler::new(SchedulingPolicy::default(), replica as u64);
        let scheduler = scheduler.with_default_namespace("ns".to_owned());
        scheduler.enable_peers(id);
        let endpoints = engines.iter().map(|engine| Arc::clone(&engine.endpoints[replica])).collect();
        let mut pool = Pool::new(NamespacedName::new("ns", "p"), scheduler.default_scheduling(), endpoints);
        pool.use_cases = USE_CASES.iter().map(use_case).collect();
        scheduler.replace(vec![pool]);
        Arc::new(scheduler)
    }

    /// Returns the engines and the schedulers of the replicas, which know the states of the endpoints.
    fn start(&self) -> (Vec<Arc<SimulatedEngine>>, Vec<Arc<Scheduler>>) {
        let registries: Vec<EndpointRegistry> = (0..self.count).map(|_| EndpointRegistry::default()).collect();
        let endpoint_of = |number: usize, registry: &EndpointRegistry| {
            let endpoint = endpoint(number as u8);
            let state = registry.state(endpoint.address, &endpoint.uid);
            assert!(state.begin_scraping(), "the simulation scrapes it");
            Arc::new(Endpoint { state, ..endpoint })
        };
        let engine = |number: usize| {
            SimulatedEngine::new(registries.iter().map(|registry| endpoint_of(number, registry)).collect())
        };
        let engines: Vec<_> = (1..=ENGINES).map(engine).collect();
        let with_registry = |(replica, registry)| {
            let mut scheduler = self.scheduler(replica, &engines);
            Arc::get_mut(&mut scheduler).unwrap().endpoints = registry;
            scheduler
        };
        let schedulers = registries.into_iter().enumerate().map(with_registry).collect();
        (engines, schedulers)
    }

    /// Exchanges the states of the replicas until `stop`.
    async fn exchange(self, schedulers: Vec<Arc<Scheduler>>, origin: Instant) {
        let mut deliveries = JoinSet::new();
        loop {
            for (replica, scheduler) in schedulers.iter().enumerate() {
                tokio::time::sleep(PEER_UPDATE_INTERVAL / self.count as u32).await;
                if replica == 0 && self.killed.is_some_and(|killed| origin.elapsed() >= killed) {
                    continue;
                }
                let Some(message) = scheduler.peer_message(Instant::now()) else { continue };
                let peers: Vec<_> = schedulers.iter().filter(|peer| !Arc::ptr_eq(peer, scheduler)).cloned().collect();
                let (delay, partition) = (self.delay, self.partition.clone());
                deliveries.spawn(async move {
                    tokio::time::sleep(delay).await;
                    if !partition.contains(&origin.elapsed()) {
                        peers.iter().for_each(|peer| peer.record_peer_messages(&[&message], Instant::now()).unwrap());
                    }
                });
            }
            while deliveries.try_join_next().is_some() {}
        }
    }

    /// Sends requests to the replicas.
    async fn simulate(self, loads: &[Load]) -> Outcome {
        let (engines, schedulers) = self.start();
        let (origin, killed) = (Instant::now(), CancellationToken::new());
        let mut requests = JoinSet::new();
        for (seed, (replica, model, rate)) in (1..).zip(loads.iter().copied()) {
            for Arrival { time: arrival, duration } in arrivals(seed, rate * CAPACITY, END) {
                let replica = match self.killed {
                    // Clients connect to another one.
                    Some(time) if replica == 0 && arrival >= time => 1,
                    _ => replica,
                };
                let killed = if replica == 0 { killed.clone() } else { CancellationToken::new() };
                let (scheduler, engines) = (Arc::clone(&schedulers[replica]), engines.clone());
                let request = async move {
                    tokio::time::sleep_until(origin + arrival).await;
                    let permit = admit(&scheduler, model).await?;
                    let start = origin.elapsed();
                    let address = permit.destination();
                    let engine = engines.iter().find(|engine| engine.endpoints[0].address == address).unwrap();
                    engine.serve(duration).await;
                    Ok::<_, RoutingError>(Served { model, arrival, start, end: origin.elapsed() })
                };
                requests.spawn(async move { killed.run_until_cancelled(request).await });
            }
        }
        let exchange = tokio::spawn(self.clone().exchange(schedulers, origin));
        let mut outcome = Outcome::default();
        while origin.elapsed() < END {
            tokio::time::sleep(BUSY_SCRAPE_INTERVAL).await;
            engines.iter().for_each(|engine| engine.report());
            if origin.elapsed() >= SETTLED {
                outcome.waiting.extend(engines.iter().map(|engine| engine.waiting()));
            }
            if self.killed.is_some_and(|time| origin.elapsed() >= time) {
                killed.cancel();
            }
        }
        while let Some(result) = requests.join_next().await {
            match result.unwrap() {
                Some(Ok(served)) => outcome.served.push(served),
                Some(Err(_)) => outcome.rejected += 1,
                // Its replica was killed.
                None => {}
            }
        }
        exchange.abort();
        outcome
    }
}

// === impl Outcome ===

impl Outcome {
    fn of(&self, model: &str) -> impl Iterator<Item = &Served> {
        self.served.iter().filter(move |served| served.model == model)
    }

    /// Returns how many requests of `model` started after the replicas have settled.
    fn starts(&self, model: &str) -> usize {
        self.of(model).filter(|served| (SETTLED..END).contains(&served.start)).count()
    }

    /// Returns the 95th percentile of the time in queues.
    fn p95_wait(&self, model: &str) -> Duration {
        p95(self.of(model).map(|served| served.start - served.arrival))
    }

    /// Returns the largest difference of the starts of the models with requests from their mean, relative to it.
    fn unfairness(&self) -> f64 {
        let starts = USE_CASES.map(|(model, _)| self.starts(model) as f64);
        let starts: Vec<f64> = starts.into_iter().filter(|starts| *starts > 0.0).collect();
        let mean = starts.iter().sum::<f64>() / starts.len() as f64;
        starts.iter().map(|starts| (starts / mean - 1.0).abs()).fold(0.0, f64::max)
    }

    fn summary(&self) -> String {
        let waiting = self.waiting.iter().filter(|waiting| **waiting > 0).count() as f64 / self.waiting.len() as f64;
        format!(
            "starts {:?}, {} rejected, utilization {:.3}, waiting in engines at {:.3} of the reports, at most {:?}",
            USE_CASES.map(|(model, _)| self.starts(model)),
            self.rejected,
            utilization(&self.served, SETTLED..END),
            waiting,
            self.waiting.iter().max(),
        )
    }
}

/// Use cases have equal shares of the engines, whichever replicas receive their requests. Columns: replicas, requests as a multiple of
/// the capacity, and time between the replicas.
// spec: GW-21
#[rstest]
#[case::same_flows(2, &[(0, "a", 2.0), (0, "b", 0.6), (1, "a", 2.0), (1, "b", 0.6)], NETWORK_DELAY)]
#[case::shared_and_own(2, &[(0, "a", 2.0), (1, "a", 1.0), (1, "b", 1.0)], NETWORK_DELAY)]
#[case::two_at_the_second(2, &[(0, "a", 2.0), (1, "b", 1.0), (1, "c", 1.0)], NETWORK_DELAY)]
#[case::four(4, &[(0, "a", 2.0), (1, "a", 1.0), (2, "b", 1.0), (3, "c", 1.0)], NETWORK_DELAY)]
#[case::four_delayed(4, &[(0, "a", 2.0), (1, "a", 1.0), (2, "b", 1.0), (3, "c", 1.0)], Duration::from_secs(1))]
#[tokio::test(start_paused = true)]
async fn replicas_share_fairly(#[case] count: usize, #[case] loads: &[Load], #[case] delay: Duration) {
    let outcome = Replicas { delay, ..Replicas::new(count) }.simulate(loads).await;
    let summary = outcome.summary();
    let tolerance = if delay == NETWORK_DELAY { 0.05 } else { 0.1 };
    assert!(outcome.unfairness() <= tolerance, "{summary}");
    assert!(utilization(&outcome.served, SETTLED..END) >= 0.95, "{summary}");
    assert!(outcome.waiting.iter().all(|waiting| *waiting <= 8), "{summary}");
}

/// The state of a killed replica expires, and the other one uses the engines alone. No request fails except for those of the killed one.
#[tokio::test(start_paused = true)]
async fn other_replicas_replace_a_killed_one() {
    let killed = Duration::from_secs(30);
    let replicas = Replicas { killed: Some(killed), ..Replicas::new(2) };
    let outcome = replicas.simulate(&[(0, "a", 0.7), (1, "a", 0.7)]).await;
    let summary = outcome.summary();
    assert_eq!(outcome.rejected, 0, "{summary}");
    assert!(utilization(&outcome.served, killed + Duration::from_secs(3)..END) >= 0.95, "{summary}");
}

/// Without messages, each replica has a share by the metrics of the engines.
#[tokio::test(start_paused = true)]
async fn replicas_use_the_engines_during_a_partition() {
    let partition = SETTLED..Duration::from_secs(40);
    let replicas = Replicas { partition: partition.clone(), ..Replicas::new(2) };
    let outcome = replicas.simulate(&[(0, "a", 1.0), (0, "b", 0.5), (1, "a", 1.0), (1, "b", 0.5)]).await;
    let summary = outcome.summary();
    assert!(utilization(&outcome.served, SETTLED..END) >= 0.95, "{summary}");
    assert!(outcome.unfairness() <= 0.05, "{summary}");
    assert!(outcome.waiting.iter().all(|waiting| *waiting <= 8), "{summary}");
}

/// One replica fills the engines with noncritical requests, the other one receives critical ones. These wait only for the next
/// requests that end, and for messages.
// spec: GW-76
#[tokio::test(start_paused = true)]
async fn critical_requests_of_a_replica_precede_others_of_its_peers() {
    let outcome = Replicas::new(2).simulate(&[(0, "a", 2.0), (1, "critical", 0.3)]).await;
    let summary = outcome.summary();
    assert!(outcome.p95_wait("critical") <= Duration::from_millis(500), "{summary} {:?}", outcome.p95_wait("critical"));
    assert!(utilization(&outcome.served, SETTLED..END) >= 0.95, "{summary}");
}
