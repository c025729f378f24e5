//! Engines and requests of simulations with a virtual clock.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;
use tokio::{sync::Semaphore, time::Instant};

use crate::{endpoint::Endpoint, engine_metrics::EngineMetrics, use_case::UseCase};

pub(super) const ENGINES: usize = 4;

/// `--max-num-seqs` of the engines, which schedulers do not know.
const SLOTS: usize = 32;

/// Mean duration of a request in an engine.
const MEAN_DURATION: Duration = Duration::from_millis(2_600);

/// Requests per second that the engines serve.
pub(super) const CAPACITY: f64 = (ENGINES * SLOTS) as f64 / 2.6;

/// An engine with a queue in front of its slots, and its states in the schedulers that send requests to it.
pub(super) struct SimulatedEngine {
    slots: Semaphore,
    waiting: AtomicUsize,
    pub(super) endpoints: Vec<Arc<Endpoint>>,
}

/// A request that was served.
pub(super) struct Served {
    pub(super) model: &'static str,
    pub(super) arrival: Duration,
    pub(super) start: Duration,
    pub(super) end: Duration,
}

/// When a request arrives, and how long it takes in an engine.
pub(super) struct Arrival {
    pub(super) time: Duration,
    pub(super) duration: Duration,
}

// === impl SimulatedEngine ===

impl SimulatedEngine {
    pub(super) fn new(endpoints: Vec<Arc<Endpoint>>) -> Arc<Self> {
        Arc::new(Self { slots: Semaphore::new(SLOTS), waiting: AtomicUsize::new(0), endpoints })
    }

    pub(super) async fn serve(&self, duration: Duration) {
        self.waiting.fetch_add(1, Relaxed);
        let slot = self.slots.acquire().await.unwrap();
        self.waiting.fetch_sub(1, Relaxed);
        tokio::time::sleep(duration).await;
        drop(slot);
    }

    /// Reports the requests to all schedulers.
    pub(super) fn report(&self) {
        let running = (SLOTS - self.slots.available_permits()) as f64;
        let waiting = self.waiting() as f64;
        let metrics = EngineMetrics { running: Some(running), waiting: Some(waiting), ..EngineMetrics::default() };
        self.endpoints.iter().for_each(|endpoint| endpoint.state.record_metrics(metrics.clone(), Instant::now()));
    }

    /// Returns the number of requests in the queue.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }
}

/// Returns the arrivals of a Poisson process with `rate` requests per second until `end`.
pub(super) fn arrivals(seed: u64, rate: f64, end: Duration) -> Vec<Arrival> {
    let (mut rng, mut time, mut arrivals) = (Rng::with_seed(seed), Duration::ZERO, Vec::new());
    while time < end {
        time += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / rate);
        arrivals.push(Arrival { time, duration: MEAN_DURATION.mul_f64(0.5 + rng.f64()) });
    }
    arrivals
}

/// Returns the use case of a model.
pub(super) fn use_case((model, priority): &(&str, i32)) -> (String, UseCase) {
    ((*model).to_owned(), UseCase { priority: *priority, ..UseCase::implicit(model) })
}

/// Returns the part of the slots that were in use in this time.
pub(super) fn utilization(served: &[Served], time: Range<Duration>) -> f64 {
    let busy = served.iter().map(|served| served.end.min(time.end).saturating_sub(served.start.max(time.start)));
    let busy: Duration = busy.sum();
    busy.as_secs_f64() / ((ENGINES * SLOTS) as f64 * (time.end - time.start).as_secs_f64())
}

/// Returns the 95th percentile.
pub(super) fn p95(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times[times.len() * 95 / 100]
}
