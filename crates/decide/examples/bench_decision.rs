//! Measures decisions over 500 runtimes × 60 classes and prints the results.
//!
//! `cargo run --release -p decide --example bench_decision [--small] [FILTER]`. `--small` measures few rounds.

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use decide::{Availability, Class, ClassNode, Demand, Runtime, Scope, Supply};
use mimalloc::MiMalloc;
use serde_json::{Value, json};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const RUNTIMES: usize = 500;
const CLASSES: usize = 60;
const NODES: usize = 8;
const ROUNDS: usize = 300;
/// Rounds with `--small`.
const SMALL_ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = demand()?;
    let mut stdout = std::io::stdout().lock();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = if arguments.iter().any(|argument| argument == "--small") { SMALL_ROUNDS } else { ROUNDS };
    let filter = arguments.iter().find(|argument| !argument.starts_with("--")).map_or("", String::as_str);
    for (name, vary) in VARIATIONS.into_iter().filter(|(name, _)| name.contains(filter)) {
        let supply = supply(vary)?;
        let decision = decide::decide(&service, &supply, None);
        let compatible = decision.candidates.iter().filter(|candidate| candidate.rank.is_some()).count();
        let decision_time = measure(rounds, || drop(black_box(decide::decide(&service, &supply, None))));
        writeln!(stdout, "decision, {name:<24} {compatible:>3} of {RUNTIMES} × {CLASSES}   {decision_time}")?;
        // As the operator, which counts the rejected runtimes by reason.
        let read_time = measure(rounds, || {
            black_box(decide::decide(&service, &supply, None).candidates.len());
        });
        writeln!(stdout, "  with all candidates                                 {read_time}")?;
    }
    if !"remedies".contains(filter) {
        return Ok(());
    }
    let catalog = supply(by_architecture)?;
    let remedies = measure(rounds, || drop(black_box(decide::find_remedies(&service, &catalog, None))));
    writeln!(stdout, "remedies, feasible decision                            {remedies}")?;
    let infeasible = Demand { protocol: "openInference-v2".to_owned(), ..service };
    let remedies = measure(rounds, || drop(black_box(decide::find_remedies(&infeasible, &catalog, None))));
    writeln!(stdout, "remedies, no compatible runtime                          {remedies}")?;
    Ok(())
}

/// Function that varies a runtime's spec by the runtime's index.
type Variation = fn(usize, &mut Value);

/// Variations of the runtimes.
const VARIATIONS: [(&str, Variation); 9] = [
    ("five compatible runtimes", by_architecture),
    ("all equal", |_, _| {}),
    ("all different", with_different_fields),
    ("different node selectors", by_selector),
    ("different affinities", by_affinity),
    ("different preferences", by_preference),
    ("with decoders", with_decoder),
    ("no class, by memory", |index, spec| {
        with_different_fields(index, spec);
        spec["acceleratorRequirements"]["requiredCapabilities"]["memoryGB"] = json!(1000 + index);
    }),
    ("no class, by nodes", |index, spec| {
        spec["engineConfig"]["nodeSelector"] = json!({"pool": format!("none-{index}")});
    }),
];

/// Distributes the runtimes evenly over 100 architectures, as in a catalog.
fn by_architecture(index: usize, spec: &mut Value) {
    spec["supportedModelFormats"][0]["modelArchitecture"] = json!(format!("Architecture{}", index % 100));
}

/// Sets different arguments, resources, configurations and placement.
fn with_different_fields(index: usize, spec: &mut Value) {
    let engine = &mut spec["engineConfig"];
    engine["runner"]["args"] = json!(["--model", "$(MODEL_PATH)", format!("--max-model-len={}", 1024 + index)]);
    engine["runner"]["resources"] = json!({"limits": {"cpu": 10 + index % 7, "memory": format!("{}Gi", 30 + index)}});
    engine["nodeSelector"] = json!({"pool": format!("pool-{}", index % 4)});
    let configuration = json!({"selector": {"acceleratorClass": format!("class-{}", index % CLASSES)}, "env": [{"name": "A", "value": index.to_string()}]});
    spec["acceleratorConfigurations"] = json!([configuration]);
    spec["acceleratorRequirements"]["requiredCapabilities"]["memoryBandwidthGBps"] = json!(1 + index);
}

fn by_selector(index: usize, spec: &mut Value) {
    spec["engineConfig"]["nodeSelector"] = json!({"pool": format!("pool-{}", index % 4)});
}

fn by_affinity(index: usize, spec: &mut Value) {
    let term = json!({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": [format!("pool-{index}"), "pool-0"]}]});
    spec["engineConfig"]["affinity"] =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
}

fn by_preference(index: usize, spec: &mut Value) {
    let preference =
        |class: usize| json!({"class": format!("class-{}", (index + class) % CLASSES), "score": 10 * class});
    spec["acceleratorRequirements"]["preferenceOrder"] = (1..9).map(preference).collect();
}

fn with_decoder(index: usize, spec: &mut Value) {
    with_different_fields(index, spec);
    spec["decoderConfig"] = spec["engineConfig"].clone();
}

struct Measurement {
    best: Duration,
    median: Duration,
    worst: Duration,
    rounds: usize,
}

impl std::fmt::Display for Measurement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "best {:>9.1?}   median {:>9.1?}   worst {:>9.1?} of {}",
            self.best, self.median, self.worst, self.rounds
        )
    }
}

fn measure(rounds: usize, mut decide: impl FnMut()) -> Measurement {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        decide();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let time_at = |index: usize| times.get(index).copied().unwrap_or_default();
    Measurement { best: time_at(0), median: time_at(times.len() / 2), worst: time_at(rounds.saturating_sub(1)), rounds }
}

fn demand() -> Result<Demand, Box<dyn std::error::Error>> {
    let service = json!({"metadata": {"name": "s", "namespace": "default"}, "spec": {"model": {"name": "m"}}});
    let model = json!({"modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelFramework": {"name": "transformers", "version": "4.45.0"},
        "modelArchitecture": "Architecture7", "modelParameterSize": "30B"});
    Ok(Demand::from_api(&serde_json::from_value(service)?, Some(("m", &serde_json::from_value(model)?)))?)
}

fn supply(vary: Variation) -> Result<Supply, Box<dyn std::error::Error>> {
    Ok(Supply {
        runtimes: (0..RUNTIMES).map(|index| runtime(index, vary)).collect::<Result<_, _>>()?,
        classes: (0..CLASSES).map(class).collect::<Result<_, _>>()?,
        nodes: None,
        accelerator_aware: true,
    })
}

fn runtime(index: usize, vary: Variation) -> Result<Arc<Runtime>, Box<dyn std::error::Error>> {
    let mut spec = json!({
        "supportedModelFormats": [{"modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelFramework": {"name": "transformers", "version": "4.45.0"},
            "modelArchitecture": "Architecture7", "autoSelect": true, "priority": 1 + index % 3}],
        "modelSizeRange": {"min": "1B", "max": format!("{}B", 40 + index)},
        "acceleratorRequirements": {"requiredCapabilities": {"memoryGB": 16, "computeCapability": "8.0", "features": ["tensor-cores"]}},
        "acceleratorConfigurations": [{"selector": {"acceleratorClass": "class-7"}, "env": [{"name": "A", "value": "b"}]}],
        "engineConfig": {"runner": {"image": "i", "args": ["--model", "$(MODEL_PATH)"], "resources": {"limits": {"cpu": 10, "memory": "30Gi"}}}},
    });
    vary(index, &mut spec);
    let spec = serde_json::from_value(spec)?;
    Ok(Arc::new(Runtime::from_api(&format!("runtime-{index}"), Scope::Cluster, "", None, &spec)?))
}

fn class(index: usize) -> Result<Arc<Class>, Box<dyn std::error::Error>> {
    let (product, memory) = (format!("GPU-{index}"), 16 * (1 + index % 12));
    let object = json!({"metadata": {"name": format!("class-{index}")}, "spec": {"vendor": "nvidia",
        "discovery": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": [product]}]}]},
        "capabilities": {"memoryGB": memory, "computeCapability": "9.0", "memoryBandwidthGBps": 1000 + index, "features": ["tensor-cores", "nvlink"],
            "performance": {"fp16TFLOPS": 300 + index}},
        "resources": [{"name": "nvidia.com/gpu"}], "cost": {"perHour": format!("{}.5", 1 + index % 7)}}});
    let labels = |n: usize| {
        let pairs = [("nvidia.com/gpu.product", product.clone()), ("pool", format!("pool-{}", n % 4))];
        pairs.map(|(key, value)| (key.to_owned(), value))
    };
    let node = |n: usize| ClassNode {
        name: format!("node-{index}-{n}"),
        labels: Some(std::collections::BTreeMap::from(labels(n)).into()),
        total: 8,
        free: 8,
        ..ClassNode::default()
    };
    let availability = Availability { nodes: (0..NODES).map(node).collect() };
    Ok(Arc::new(Class::from_api(&serde_json::from_value(object)?, Some(availability))?))
}
