//! Latencies of a client outside of the measured runtime.

use std::fmt::{Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::result::Result;

/// A client outside of the runtime that repeats a round trip until it is stopped.
pub(crate) struct LatencyProbe {
    stop: Arc<AtomicBool>,
    client: JoinHandle<std::io::Result<Vec<Duration>>>,
}

/// Percentiles of the latencies of a probe.
#[derive(Clone, Copy)]
pub(crate) struct Latencies {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) worst: Duration,
}

// === impl LatencyProbe ===

impl LatencyProbe {
    /// Repeats `round_trip` in a thread, with pauses of `interval`.
    pub(crate) fn start(interval: Duration, round_trip: impl FnMut() -> std::io::Result<()> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || probe(interval, round_trip, &stop)
        });
        Self { stop, client }
    }

    pub(crate) fn finish(self) -> Result<Latencies> {
        self.stop.store(true, Ordering::Relaxed);
        let mut latencies = self.client.join().map_err(|_| "the probe panicked")??;
        latencies.sort_unstable();
        let percentile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        Ok(Latencies { p50: percentile(0.5), p99: percentile(0.99), worst: percentile(1.0) })
    }
}

fn probe(
    interval: Duration,
    mut round_trip: impl FnMut() -> std::io::Result<()>,
    stop: &AtomicBool,
) -> std::io::Result<Vec<Duration>> {
    // The first round trip establishes the connections behind it.
    round_trip()?;
    let mut latencies = Vec::new();
    while latencies.is_empty() || !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        round_trip()?;
        // A round trip that takes several intervals delays the following ones, which would have taken the rest of it.
        latencies.extend(std::iter::successors(Some(start.elapsed()), |rest| rest.checked_sub(interval)));
        std::thread::sleep(interval);
    }
    Ok(latencies)
}

// === impl Latencies ===

impl Display for Latencies {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        let [p50, p99, worst] = [self.p50, self.p99, self.worst].map(|latency| latency.as_secs_f64() * 1000.0);
        write!(formatter, "{p50:>6.2} {p99:>6.2} {worst:>6.2}")
    }
}
