//! Measures the selection of an endpoint for requests of 10 KB: 3 endpoints, and 100 endpoints that are all in the subset hint
//! of the request; for the default policy, and for an EndpointPickerConfig with queue, KV cache and prefix scorers.
//!
//! `cargo run --release -p picker --example bench_endpoint_selection [--small]`. `--small` measures few rounds.

use std::{
    error::Error,
    hint::black_box,
    io::Write,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use picker::{Endpoint, EndpointSubset, ParsedBody, Pool, PromptTokenRange, Scheduler, SchedulingPolicy, parse_config};

/// Size of a prompt in bytes. Its first half is shared by all prompts.
const PROMPT_BYTES: usize = 10_000;
const PROMPTS: usize = 64;
const PATH: &str = "/v1/completions";

const ROUNDS: usize = 20_000;
const WARM_UP_ROUNDS: usize = 10_000;
/// Both with `--small`.
const SMALL_ROUNDS: usize = 200;

/// Scorers and weights of the configuration that the Inference Extension ships.
const CONFIG: &str = "
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
  - {pluginRef: max-score-picker}
";

/// Gauges of an idle vLLM engine.
const METRICS: &str = "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0.1\n";

fn main() -> Result<(), Box<dyn Error>> {
    let is_small = std::env::args().any(|argument| argument == "--small");
    let rounds = if is_small { [SMALL_ROUNDS, SMALL_ROUNDS] } else { [WARM_UP_ROUNDS, ROUNDS] };
    let mut stdout = std::io::stdout().lock();
    for (name, policy) in
        [("cost", SchedulingPolicy::default()), ("queue, KV cache, prefix", parse_config(CONFIG)?.policy)]
    {
        for (endpoints, has_subset, target) in [(3, false, 5), (100, true, 20)] {
            let measurement = measure(policy.clone(), endpoints, has_subset, rounds)?;
            let subset = if has_subset { format!(", subset of {endpoints}") } else { String::new() };
            let case = format!("{name}: 10 KB, {endpoints} endpoints{subset}");
            writeln!(stdout, "decision, {case:<62} {measurement}   target {target} µs")?;
        }
    }
    let entries: Vec<String> = (0..100).map(|number| address(number).to_string()).collect();
    let parse = || drop(black_box(EndpointSubset::parse(entries.iter().map(String::as_str))));
    writeln!(stdout, "{:<72} {}", "parsing a subset hint of 100 endpoints", Measurement::of(rounds[1], |_| parse()))?;
    Ok(())
}

/// Measures decisions whose permits are dropped before the next one.
fn measure(
    policy: SchedulingPolicy,
    endpoints: u16,
    has_subset: bool,
    [warm_up_rounds, rounds]: [usize; 2],
) -> Result<Measurement, Box<dyn Error>> {
    let scheduler = scheduler(policy, endpoints);
    let entries: Vec<String> = (0..endpoints).map(|number| address(number).to_string()).collect();
    let subset = has_subset.then(|| EndpointSubset::parse(entries.iter().map(String::as_str)));
    let bodies: Vec<String> = (0..PROMPTS).map(body).collect();
    let requests = bodies.iter().map(|body| ParsedBody::parse(body.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut decide = |_| {
        if let Some(request) = rng.choice(&requests) {
            drop(black_box(scheduler.admit_parsed(PATH, request, subset.as_ref())));
        }
    };
    Measurement::of(warm_up_rounds, &mut decide);
    Ok(Measurement::of(rounds, decide))
}

fn scheduler(policy: SchedulingPolicy, endpoints: u16) -> Scheduler {
    let scheduler = Scheduler::new(policy, 1);
    let endpoints: Vec<Arc<Endpoint>> =
        (0..endpoints).map(|number| Arc::new(endpoint(&scheduler, address(number)))).collect();
    for endpoint in &endpoints {
        // Nothing else scrapes the endpoints.
        endpoint.state.begin_scraping();
        endpoint.state.record_metrics_page(METRICS, tokio::time::Instant::now());
    }
    let key = cluster::NamespacedName::new("default", "pool");
    let mut pool = Pool::new(key, scheduler.default_scheduling(), endpoints);
    pool.allows_implicit_use_cases = true;
    scheduler.replace(vec![pool]);
    scheduler
}

fn endpoint(scheduler: &Scheduler, address: SocketAddr) -> Endpoint {
    Endpoint {
        address,
        pod: address.to_string(),
        uid: String::new(),
        labels: [("app".to_owned(), "engine".to_owned())].into(),
        prompt_tokens: PromptTokenRange::default(),
        state: scheduler.endpoint_state(address, ""),
    }
}

fn address(number: u16) -> SocketAddr {
    ([10, 0, 0, 1], 8_000 + number).into()
}

fn body(number: usize) -> String {
    let half = PROMPT_BYTES / 2;
    format!(r#"{{"model":"m","prompt":"{}{}"}}"#, "shared ".repeat(half / 7), format!("{number:06} ").repeat(half / 7))
}

struct Measurement {
    p50: Duration,
    p99: Duration,
}

// === impl Measurement ===

impl Measurement {
    /// Measures each of `rounds` calls of `run`.
    fn of(rounds: usize, mut run: impl FnMut(usize)) -> Self {
        let mut times: Vec<Duration> = Vec::with_capacity(rounds);
        for round in 0..rounds {
            let start = Instant::now();
            run(round);
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let time_at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        Self { p50: time_at(50), p99: time_at(99) }
    }
}

impl std::fmt::Display for Measurement {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [p50, p99] = [self.p50, self.p99].map(|time| time.as_secs_f64() * 1e6);
        write!(formatter, "p50 {p50:>7.2} µs   p99 {p99:>7.2} µs")
    }
}
