//! Measures one step of a node with 8 accelerators, 8 servers and 64 sleepers, and one derivation of a provider.
//!
//! `cargo run --release -p actuation --example bench_step [--small]`. `--small` measures few rounds.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use actuation::{
    Activity, Demand, Derivation, Engine, EngineId, GpuMap, MemoryUsage, NodeState, Provider, Requester, Server,
    Settings, nominal_provider, step,
};
use jiff::Timestamp;
use serde_json::{Value, json};

const ROUNDS: usize = 2000;
/// Rounds with `--small`.
const SMALL_ROUNDS: usize = 20;
const ACCELERATORS: usize = 8;
const SLEEPERS: usize = 64;
const EXAMPLE: &str = include_str!("../tests/data/requester.yaml");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = if std::env::args().any(|argument| argument == "--small") { SMALL_ROUNDS } else { ROUNDS };
    let mut stdout = std::io::stdout().lock();
    let (settings, now) = (Settings { sleeper_limit: SLEEPERS, ..Settings::default() }, Timestamp::UNIX_EPOCH);
    for (name, is_bound) in [("serving", true), ("all servers need a provider", false)] {
        let node = node(is_bound)?;
        let next = step(&node, &settings, now);
        let action = if next.action.is_some() { "one action" } else { "no action" };
        let time = measure(rounds, || drop(black_box(step(black_box(&node), &settings, now))));
        writeln!(stdout, "step, 8 servers, 64 sleepers, {name:<28} {action}   {time}")?;
    }
    let (requester, map) = (requester(0)?, gpu_map());
    let accelerators = [uuid(0)].into();
    let derivation = derivation(&requester, &accelerators, &map);
    let time = measure(rounds, || drop(black_box(nominal_provider(black_box(&derivation)))));
    writeln!(stdout, "derivation of the specification's example                              {time}")?;
    Ok(())
}

fn uuid(index: usize) -> String {
    format!("GPU-5a4b3c2d-1e0f-4a5b-8c7d-{index:012}")
}

fn gpu_map() -> GpuMap {
    let indexes: BTreeMap<String, usize> = (0..ACCELERATORS).map(|index| (uuid(index), index)).collect();
    GpuMap::from_config_map(&json!({"data": {"node-1": json!(indexes).to_string()}}))
}

fn derivation<'a>(
    requester: &'a Value,
    accelerators: &'a std::collections::BTreeSet<String>,
    map: &'a GpuMap,
) -> Derivation<'a> {
    static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::default);
    let settings = &SETTINGS;
    Derivation {
        requester,
        node: "node-1",
        hostname: "node-1",
        accelerators,
        gpu_map: Some(map),
        owner: None,
        settings,
    }
}

/// Returns a requester that has claimed the accelerator of this index.
fn requester(index: usize) -> Result<Value, Box<dyn std::error::Error>> {
    let mut pod: Value = serde_saphyr::from_str(EXAMPLE)?;
    let metadata = &mut pod["metadata"];
    metadata["namespace"] = json!("default");
    metadata["name"] = json!(format!("requester-{index}"));
    metadata["uid"] = json!(format!("5f0c5f0c-0000-4000-8000-{index:012}"));
    metadata["resourceVersion"] = json!("1");
    metadata["finalizers"] = json!(["dual-pods.llm-d.ai/requester"]);
    metadata["annotations"]["dual-pods.llm-d.ai/accelerators"] = json!(uuid(index));
    metadata["annotations"]["dual-pods.llm-d.ai/accelerators-container"] = json!("c");
    metadata["labels"] = json!({"dual-pods.llm-d.ai/dual": format!("provider-{index}")});
    pod["status"] = json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
        {"name": "inference-server", "containerID": "c", "ready": true, "state": {"running": {}}}]});
    Ok(pod)
}

/// Returns a provider; a bound one is awake and published.
fn provider(name: &str, identity: &str, accelerator: usize, requester: Option<&Value>) -> Value {
    let mut annotations = json!({
        "dual-pods.llm-d.ai/nominal": identity,
        "dual-pods.llm-d.ai/accelerators": uuid(accelerator),
        "dual-pods.llm-d.ai/server-port": "8000",
        "dual-pods.llm-d.ai/last-awake": "1970-01-01T00:00:00Z",
        "dual-pods.llm-d.ai/pool-labels": r#"{"model":"m"}"#,
    });
    let mut metadata = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"});
    let mut labels = json!({"dual-pods.llm-d.ai/sleeping": "true"});
    if let Some(requester) = requester {
        let (uid, name) = (&requester["metadata"]["uid"], &requester["metadata"]["name"]);
        let binding = format!("{} {}", uid.as_str().unwrap_or_default(), name.as_str().unwrap_or_default());
        annotations["dual-pods.llm-d.ai/requester"] = json!(binding);
        metadata["finalizers"] = json!(["dual-pods.llm-d.ai/provider"]);
        labels = json!({"dual-pods.llm-d.ai/sleeping": "false", "model": "m"});
    }
    metadata["annotations"] = annotations;
    metadata["labels"] = labels;
    let status = json!({"phase": "Running", "podIP": "10.0.0.2", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "inference-server", "containerID": "c", "ready": true, "state": {"running": {}}}]});
    json!({"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status})
}

fn engine(pod: &Value, activity: Activity) -> Engine {
    let mut engine = Engine::new(Provider::from_pod(pod));
    engine.facts.activity = Some(activity);
    engine.facts.verification = Some(actuation::Verification { completion: None });
    engine
}

fn node(is_bound: bool) -> Result<NodeState, Box<dyn std::error::Error>> {
    let (mut node, map) = (NodeState { name: "node-1".to_owned(), ..NodeState::default() }, gpu_map());
    for index in 0..ACCELERATORS {
        let pod = requester(index)?;
        let accelerators = [uuid(index)].into();
        let nominal = nominal_provider(&derivation(&pod, &accelerators, &map))?;
        if is_bound {
            let name = format!("provider-{index}");
            let provider = provider(&name, &nominal.identity, index, Some(&pod));
            node.engines.insert(EngineId::of_pod(&name), engine(&provider, Activity::Awake));
        }
        let mut server = Server { requester: Some(Requester::from_pod(&pod)), ..Server::default() };
        server.demand = Demand::Nominal(Arc::new(nominal));
        server.facts.relayed = Some(true);
        server.facts.memory =
            Some(MemoryUsage::Known { used_mib: [(uuid(index), 8000)].into(), at: Timestamp::UNIX_EPOCH });
        node.servers.insert(pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), server);
    }
    for index in 0..SLEEPERS {
        let name = format!("sleeper-{index:02}");
        let provider = provider(&name, &format!("{index:040}"), index % ACCELERATORS, None);
        node.engines.insert(EngineId::of_pod(&name), engine(&provider, Activity::Asleep));
    }
    Ok(node)
}

struct Measurement {
    best: Duration,
    median: Duration,
    rounds: usize,
}

impl std::fmt::Display for Measurement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "best {:>9.1?}   median {:>9.1?} of {}", self.best, self.median, self.rounds)
    }
}

fn measure(rounds: usize, mut run: impl FnMut()) -> Measurement {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let at = |index: usize| times.get(index).copied().unwrap_or_default();
    Measurement { best: at(0), median: at(rounds / 2), rounds }
}
