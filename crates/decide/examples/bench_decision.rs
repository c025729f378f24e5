//! How long one decision takes: 500 runtimes × 60 classes. Figures are printed, nothing is asserted.
//!
//! `cargo run --release -p decide --example bench_decision [PART OF A CASE]`

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use decide::{Availability, Class, ClassNode, Demand, Runtime, Scope, Supply};
use serde_json::{Value, json};

const RUNTIMES: usize = 500;
const CLASSES: usize = 60;
const NODES: usize = 8;
const ROUNDS: u32 = 300;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = demand()?;
    let mut out = std::io::stdout().lock();
    let only = std::env::args().nth(1).unwrap_or_default();
    for (name, kind) in KINDS.into_iter().filter(|(name, _)| name.contains(&only)) {
        let supply = supply(kind)?;
        let decision = decide::decide(&service, &supply, None);
        let able = decision.candidates.iter().filter(|candidate| candidate.rank.is_some()).count();
        let decided = measure(|| drop(black_box(decide::decide(&service, &supply, None))));
        let for_status = measure(|| drop(black_box(decide::decide(&service, &supply, None).for_status())));
        writeln!(
            out,
            "decision, {name:<24} {able:>3} of {RUNTIMES} × {CLASSES}   {decided}   with its status {}",
            for_status.shown()
        )?;
    }
    let catalogue = supply(by_architecture)?;
    let helped = measure(|| drop(black_box(decide::find_remedies(&service, &catalogue))));
    writeln!(out, "remedies, nothing to help                              {helped}")?;
    let helpless = Demand { protocol: "openInference-v2".to_owned(), ..service };
    let helped = measure(|| drop(black_box(decide::find_remedies(&helpless, &catalogue))));
    writeln!(out, "remedies, no runtime fits                              {helped}")?;
    Ok(())
}

/// Makes the runtime at an index another one.
type Kind = fn(usize, &mut Value);

/// What the 500 runtimes have in common, and what not.
const KINDS: [(&str, Kind); 9] = [
    ("five fit the model", by_architecture),
    ("all fit, alike", |_, _| {}),
    ("all fit, each its own", each_its_own),
    ("all fit, own selectors", by_selector),
    ("all fit, own affinities", by_affinity),
    ("all fit, own preferences", by_preference),
    ("all fit, with decoders", with_decoder),
    ("no class fits, by memory", |index, spec| {
        each_its_own(index, spec);
        spec["acceleratorRequirements"]["requiredCapabilities"]["memoryGB"] = json!(1000 + index);
    }),
    ("no class fits, by nodes", |index, spec| {
        spec["engineConfig"]["nodeSelector"] = json!({"pool": format!("none-{index}")});
    }),
];

/// A catalogue: runtimes for 100 architectures, five of each.
fn by_architecture(index: usize, spec: &mut Value) {
    spec["supportedModelFormats"][0]["modelArchitecture"] = json!(format!("Architecture{}", index % 100));
}

/// No two ask for the same of classes, in arguments, resources, tuning and placement.
fn each_its_own(index: usize, spec: &mut Value) {
    let engine = &mut spec["engineConfig"];
    engine["runner"]["args"] = json!(["--model", "$(MODEL_PATH)", format!("--max-model-len={}", 1024 + index)]);
    engine["runner"]["resources"] = json!({"limits": {"cpu": 10 + index % 7, "memory": format!("{}Gi", 30 + index)}});
    engine["nodeSelector"] = json!({"pool": format!("pool-{}", index % 4)});
    let tuned = json!({"selector": {"acceleratorClass": format!("class-{}", index % CLASSES)}, "env": [{"name": "A", "value": index.to_string()}]});
    spec["acceleratorConfigurations"] = json!([tuned]);
    spec["acceleratorRequirements"]["requiredCapabilities"]["memoryBandwidthGBps"] = json!(1 + index);
}

fn by_selector(index: usize, spec: &mut Value) {
    spec["engineConfig"]["nodeSelector"] = json!({"pool": format!("pool-{}", index % 4)});
}

fn by_affinity(index: usize, spec: &mut Value) {
    let elsewhere = json!({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": [format!("pool-{index}"), "pool-0"]}]});
    spec["engineConfig"]["affinity"] =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [elsewhere]}}});
}

fn by_preference(index: usize, spec: &mut Value) {
    let entry = |class: usize| json!({"class": format!("class-{}", (index + class) % CLASSES), "score": 10 * class});
    spec["acceleratorRequirements"]["preferenceOrder"] = (1..9).map(entry).collect();
}

fn with_decoder(index: usize, spec: &mut Value) {
    each_its_own(index, spec);
    spec["decoderConfig"] = spec["engineConfig"].clone();
}

struct Measured {
    best: Duration,
    median: Duration,
    worst: Duration,
}

impl Measured {
    fn shown(&self) -> String {
        format!("{:>9.1?}", self.median)
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "best {:>9.1?}   median {:>9.1?}   worst {:>9.1?} of {ROUNDS}", self.best, self.median, self.worst)
    }
}

fn measure(mut decide: impl FnMut()) -> Measured {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        decide();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let at = |index: usize| times.get(index).copied().unwrap_or_default();
    Measured { best: at(0), median: at(times.len() / 2), worst: at(times.len().saturating_sub(1)) }
}

fn demand() -> Result<Demand, Box<dyn std::error::Error>> {
    let service = json!({"metadata": {"name": "s", "namespace": "default"}, "spec": {"model": {"name": "m"}}});
    let model = json!({"modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelFramework": {"name": "transformers", "version": "4.45.0"},
        "modelArchitecture": "Architecture7", "modelParameterSize": "30B"});
    Ok(Demand::from_api(&serde_json::from_value(service)?, Some(("m", &serde_json::from_value(model)?)))?)
}

fn supply(kind: Kind) -> Result<Supply, Box<dyn std::error::Error>> {
    Ok(Supply {
        runtimes: (0..RUNTIMES).map(|index| runtime(index, kind)).collect::<Result<_, _>>()?,
        classes: (0..CLASSES).map(class).collect::<Result<_, _>>()?,
        accelerator_aware: true,
    })
}

fn runtime(index: usize, kind: Kind) -> Result<Arc<Runtime>, Box<dyn std::error::Error>> {
    let mut spec = json!({
        "supportedModelFormats": [{"modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelFramework": {"name": "transformers", "version": "4.45.0"},
            "modelArchitecture": "Architecture7", "autoSelect": true, "priority": 1 + index % 3}],
        "modelSizeRange": {"min": "1B", "max": format!("{}B", 40 + index)},
        "acceleratorRequirements": {"requiredCapabilities": {"memoryGB": 16, "computeCapability": "8.0", "features": ["tensor-cores"]}},
        "acceleratorConfigurations": [{"selector": {"acceleratorClass": "class-7"}, "env": [{"name": "A", "value": "b"}]}],
        "engineConfig": {"runner": {"image": "i", "args": ["--model", "$(MODEL_PATH)"], "resources": {"limits": {"cpu": 10, "memory": "30Gi"}}}},
    });
    kind(index, &mut spec);
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
        schedulable: true,
        total: 8,
        free: 8,
    };
    let availability = Availability { nodes: (0..NODES).map(node).collect() };
    Ok(Arc::new(Class::from_api(&serde_json::from_value(object)?, Some(availability))?))
}
