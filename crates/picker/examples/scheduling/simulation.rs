//! Discrete-event simulation: gateways that select an engine for each request, and engines. Time is virtual.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::Range,
    time::Duration,
};

use fastrand::Rng;
use picker::PEER_UPDATE_INTERVAL;

use crate::{
    engine::{Engine, Gauges, Output},
    policies::{Policy, PolicyKind},
    replicas::Replicas,
    trace::Trace,
    workloads::{ENGINES, Workload},
};

/// Time from a gateway to an engine.
const NETWORK_DELAY: Duration = Duration::from_millis(1);

/// Something that happens at a time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival {
        request: usize,
    },
    Delivery {
        request: usize,
        engine: usize,
    },
    StepEnd {
        engine: usize,
    },
    ScrapeStart {
        gateway: usize,
        engine: usize,
    },
    ScrapeEnd {
        gateway: usize,
        engine: usize,
    },
    /// A replica sends its state to the others.
    PeerUpdate {
        gateway: usize,
    },
    PeerMessage {
        gateway: usize,
        message: Vec<u8>,
    },
    Kill {
        gateway: usize,
    },
}

/// State of a simulation.
struct Simulation<'a> {
    trace: &'a Trace,
    engines: Vec<Engine>,
    gateways: Vec<Box<dyn Policy>>,
    /// Events by time, then by the order in which they were added.
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    event_count: u64,
    now: Duration,
    rng: Rng,
    metrics_delay: (f64, f64),
    /// Time between replicas, and when it is infinite.
    peer_delay: Duration,
    partition: Range<Duration>,
    is_killed: Vec<bool>,
    /// Gateway of each request.
    gateway_of: Vec<usize>,
    arrived: Vec<Duration>,
    /// Metrics on their way to a gateway, by gateway and engine.
    pages: Vec<VecDeque<Gauges>>,
    unfinished: usize,
    /// Times to first token in seconds.
    first_token_seconds: Vec<f64>,
}

/// Runs `trace` until all requests are finished, with gateways that select engines by policies of `kind`. Returns the times to
/// first token in seconds, except for requests in flight at a killed replica.
pub(crate) fn simulate(
    workload: &Workload,
    replicas: &Replicas,
    trace: &Trace,
    kind: PolicyKind,
    seed: u64,
) -> std::io::Result<Vec<f64>> {
    // Policies that read the clock see the time of the simulation.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(async {
        let mut simulation = Simulation::new(workload, replicas, trace, kind, seed);
        while simulation.unfinished > 0 {
            let Some(Reverse((time, _, event))) = simulation.events.pop() else { break };
            if time > simulation.now {
                tokio::time::advance(time - simulation.now).await;
                simulation.now = time;
            }
            simulation.handle(event);
        }
        simulation.first_token_seconds
    }))
}

// === impl Simulation ===

impl<'a> Simulation<'a> {
    fn new(workload: &Workload, replicas: &Replicas, trace: &'a Trace, kind: PolicyKind, seed: u64) -> Self {
        let engines: Vec<Engine> =
            (0..ENGINES).map(|index| Engine::new(if index == 0 { workload.slowdown } else { 1.0 })).collect();
        let kv_blocks = engines.first().map_or(0, Engine::kv_blocks);
        let mut rng = Rng::with_seed(seed);
        let gateway_count = replicas.count;
        let gateways = (0..gateway_count).map(|index| kind.policy(ENGINES, kv_blocks, index, rng.u64(..))).collect();
        let count = trace.requests.len();
        let last_arrival = trace.arrivals.iter().map(|(time, _)| *time).max().unwrap_or_default();
        let at = |percent: u32| last_arrival * percent / 100;
        let partition = replicas
            .partition
            .clone()
            .map_or(Duration::ZERO..Duration::ZERO, |Range { start, end }| at(start)..at(end));
        let mut simulation = Self {
            trace,
            engines,
            gateways,
            events: BinaryHeap::new(),
            event_count: 0,
            now: Duration::ZERO,
            metrics_delay: workload.metrics_delay,
            peer_delay: replicas.delay.unwrap_or_default(),
            partition,
            is_killed: vec![false; gateway_count],
            gateway_of: (0..count).map(|_| rng.usize(..gateway_count)).collect(),
            arrived: vec![Duration::ZERO; count],
            pages: vec![VecDeque::new(); gateway_count * ENGINES],
            unfinished: count,
            first_token_seconds: Vec::new(),
            rng,
        };
        for (time, request) in &trace.arrivals {
            simulation.add(*time, Event::Arrival { request: *request });
        }
        if let Some(percent) = replicas.killed {
            simulation.add(at(percent), Event::Kill { gateway: 0 });
        }
        for gateway in 0..gateway_count {
            if replicas.delay.is_some() {
                let start = PEER_UPDATE_INTERVAL.mul_f64(simulation.rng.f64());
                simulation.add(start, Event::PeerUpdate { gateway });
            }
            if let Some(interval) = simulation.gateways[gateway].scrape_interval() {
                for engine in 0..ENGINES {
                    let start = interval.mul_f64(simulation.rng.f64());
                    simulation.add(start, Event::ScrapeStart { gateway, engine });
                }
            }
        }
        simulation
    }

    fn add(&mut self, time: Duration, event: Event) {
        self.event_count += 1;
        self.events.push(Reverse((time, self.event_count, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { request } => {
                self.arrived[request] = self.now;
                let gateway_of = &mut self.gateway_of[request];
                while self.is_killed[*gateway_of] {
                    *gateway_of = self.rng.usize(..self.is_killed.len());
                }
                let engine = self.gateways[self.gateway_of[request]].select(request, &self.trace.requests[request]);
                self.add(self.now + NETWORK_DELAY, Event::Delivery { request, engine });
            }
            Event::Delivery { request, engine } => {
                self.engines[engine].enqueue(request, &self.trace.requests[request]);
                self.start_step(engine);
            }
            Event::StepEnd { engine } => {
                for output in self.engines[engine].finish_step() {
                    self.handle_output(output);
                }
                self.start_step(engine);
            }
            Event::PeerUpdate { gateway } if self.is_killed[gateway] => {}
            Event::PeerUpdate { gateway } => {
                if let Some(message) = self.gateways[gateway].peer_message() {
                    for peer in (0..self.gateways.len()).filter(|peer| *peer != gateway) {
                        let message = message.clone();
                        self.add(self.now + self.peer_delay, Event::PeerMessage { gateway: peer, message });
                    }
                }
                self.add(self.now + PEER_UPDATE_INTERVAL, Event::PeerUpdate { gateway });
            }
            Event::PeerMessage { gateway, message } => {
                if !self.partition.contains(&self.now) {
                    self.gateways[gateway].record_peer_message(&message);
                }
            }
            Event::Kill { gateway } => self.is_killed[gateway] = true,
            Event::ScrapeStart { gateway, engine } => {
                self.pages[gateway * ENGINES + engine].push_back(self.engines[engine].gauges());
                let (min, max) = self.metrics_delay;
                let delay = Duration::from_secs_f64(min + (max - min) * self.rng.f64());
                self.add(self.now + delay, Event::ScrapeEnd { gateway, engine });
            }
            Event::ScrapeEnd { gateway, engine } => {
                let gauges = self.pages[gateway * ENGINES + engine].pop_front().unwrap_or_default();
                self.gateways[gateway].scraped(engine, &gauges);
                if let Some(interval) = self.gateways[gateway].scrape_interval() {
                    self.add(self.now + interval, Event::ScrapeStart { gateway, engine });
                }
            }
        }
    }

    fn start_step(&mut self, engine: usize) {
        if let Some(duration) = self.engines[engine].start_step(&self.trace.requests) {
            self.add(self.now + duration, Event::StepEnd { engine });
        }
    }

    fn handle_output(&mut self, output: Output) {
        match output {
            Output::FirstToken(request) => {
                if !self.is_killed[self.gateway_of[request]] {
                    self.first_token_seconds.push((self.now - self.arrived[request]).as_secs_f64());
                }
                self.gateways[self.gateway_of[request]].first_token(request);
            }
            Output::Finished(request) => {
                self.unfinished -= 1;
                self.gateways[self.gateway_of[request]].finished(request);
                if let Some((next, pause)) = self.trace.requests[request].next {
                    self.add(self.now + pause, Event::Arrival { request: next });
                }
            }
        }
    }
}
