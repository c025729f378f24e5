//! Measures how long a changed Pod takes from the API server to the snapshot that requests read, with 100 pools and with 10,000, of 10
//! endpoints each.
//!
//! `cargo run --release -p picker --example bench_pool_update [--small]`. `--small` measures few rounds, with at most 1,000 pools.

use std::{
    error::Error,
    io::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver::{Server, ports::ServerPorts};
use cluster::NamespacedName;
use picker::{Scheduler, parse_config, watch_pools};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const POOLS: &str = "backendpools.inference.networking.x-k8s.io";
const NAMESPACE: &str = "default";
const ENDPOINTS_PER_POOL: usize = 10;
/// A configuration without metrics, because there are no engines.
const CONFIG: &str = "{apiVersion: inference.networking.x-k8s.io/v1alpha1, kind: EndpointPickerConfig,
    plugins: [{type: random-picker}]}";
/// Time after which the status of the pool is written, so that a round measures one change.
const PAUSE: Duration = Duration::from_millis(20);
const TARGET_MS: f64 = 1.0;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let is_small = std::env::args().any(|argument| argument == "--small");
    let (pool_counts, rounds) = if is_small { ([100, 1_000], 20) } else { ([100, 10_000], 200) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for pools in pool_counts {
        let [p50, p99] = runtime.block_on(measure(pools, rounds))?;
        writeln!(
            std::io::stdout(),
            "changed Pod, {pools:>6} pools of {ENDPOINTS_PER_POOL} endpoints: p50 {p50:.2} ms, p99 {p99:.2} ms   target {TARGET_MS} ms"
        )?;
    }
    Ok(())
}

/// Returns the median and the 99th percentile in milliseconds.
async fn measure(pools: usize, rounds: usize) -> Result<[f64; 2]> {
    let server = cluster_with_pools(pools)?;
    let (scheduler, shutdown) = (Arc::new(Scheduler::new(parse_config(CONFIG)?.policy, 0)), CancellationToken::new());
    let client = kube::Client::new(apiserver::router(&server), NAMESPACE);
    let watch = tokio::spawn(watch_pools(
        client,
        Arc::clone(&scheduler),
        picker::WatchOptions::new(Arc::new(cluster::SystemClock)),
        shutdown.clone(),
    ));
    for pool in (0..pools).map(pool_name) {
        while server.get(POOLS, NAMESPACE, &pool).is_none_or(|pool| pool["status"]["readyEndpoints"].is_null()) {
            sleep(PAUSE).await;
        }
    }
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let (pool, is_ready) = (round / 2 * 97 % pools, round % 2 == 1);
        let expected = if is_ready { ENDPOINTS_PER_POOL } else { ENDPOINTS_PER_POOL - 1 };
        server.update_status("pods", pod(pool, 0, is_ready))?;
        let start = Instant::now();
        let key = NamespacedName::new(NAMESPACE, &pool_name(pool));
        while scheduler.snapshot().pools.get(&key).is_none_or(|pool| pool.ready_endpoints.len() != expected) {
            tokio::task::yield_now().await;
        }
        times.push(start.elapsed().as_secs_f64() * 1e3);
        sleep(PAUSE).await;
    }
    shutdown.cancel();
    watch.await??;
    times.sort_by(f64::total_cmp);
    let percentile = |percent: usize| times.get((times.len() - 1) * percent / 100).copied().unwrap_or_default();
    Ok([percentile(50), percentile(99)])
}

/// Returns an API server with ready Pods of all pools.
fn cluster_with_pools(pools: usize) -> Result<Server> {
    let server = Server::new(&ServerPorts::default());
    for definition in api::crds() {
        server.create("customresourcedefinitions.apiextensions.k8s.io", definition)?;
    }
    for pool in 0..pools {
        let name = pool_name(pool);
        let spec = json!({"selector": {"app": name}, "targetPorts": [8000]});
        server.create(POOLS, json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}))?;
        for index in 0..ENDPOINTS_PER_POOL {
            server.create("pods", pod(pool, index, true))?;
            server.update_status("pods", pod(pool, index, true))?;
        }
    }
    Ok(server)
}

fn pool_name(pool: usize) -> String {
    format!("pool-{pool}")
}

fn pod(pool: usize, index: usize, is_ready: bool) -> Value {
    let (name, ready) = (pool_name(pool), if is_ready { "True" } else { "False" });
    let ip = format!("10.{}.{}.{index}", pool / 256, pool % 256);
    json!({
        "metadata": {"name": format!("{name}-{index}"), "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"containers": [{"name": "engine", "image": "example.com/engine"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}
