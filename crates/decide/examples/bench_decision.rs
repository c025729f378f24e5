//! How long one decision takes: 500 runtimes × 60 classes. Figures are printed, nothing is asserted.

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use decide::inventory::{Availability, ClassNode};
use decide::{Class, Demand, Runtime, Scope, Supply};
use serde_json::json;

const RUNTIMES: usize = 500;
const CLASSES: usize = 60;
const ROUNDS: u32 = 300;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = demand()?;
    // A catalogue: runtimes for 100 architectures, five of each.
    let catalogue = supply(|index| (format!("Architecture{}", index % 100), 1))?;
    // Every runtime may serve the model, on every class that is large enough; as many ways of asking for classes as a
    // catalogue has, and the worst case, where no two runtimes ask alike.
    let universal = |ways| supply(move |index| ("Architecture7".to_owned(), 1 + index % ways));
    let (alike, several, unlike) = (universal(1)?, universal(10)?, universal(RUNTIMES)?);
    let mut out = std::io::stdout().lock();
    let cases = [
        ("catalogue", &catalogue),
        ("asking alike", &alike),
        ("ten ways of asking", &several),
        ("none alike", &unlike),
    ];
    for (name, supply) in cases {
        let decision = decide::decide(&service, supply, None);
        let able = decision.candidates.iter().filter(|candidate| candidate.rank.is_some()).count();
        let (median, worst) = measure(|| drop(black_box(decide::decide(&service, supply, None))));
        writeln!(
            out,
            "decision, {name:<20} {able:>3} of {RUNTIMES} × {CLASSES}   median {median:>9.1?}   worst {worst:>9.1?} of {ROUNDS}"
        )?;
    }
    let (median, worst) = measure(|| drop(black_box(decide::remedy::remedies(&service, &catalogue))));
    writeln!(out, "remedies, nothing to help                   median {median:>9.1?}   worst {worst:>9.1?}")?;
    let helpless = Demand { protocol: "openInference-v2".to_owned(), ..service };
    let (median, worst) = measure(|| drop(black_box(decide::remedy::remedies(&helpless, &catalogue))));
    writeln!(out, "remedies, no runtime fits                   median {median:>9.1?}   worst {worst:>9.1?}")?;
    Ok(())
}

fn measure(mut decide: impl FnMut()) -> (Duration, Duration) {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        decide();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let at = |index: usize| times.get(index).copied().unwrap_or_default();
    (at(times.len() / 2), at(times.len().saturating_sub(1)))
}

fn demand() -> Result<Demand, Box<dyn std::error::Error>> {
    let service = json!({"metadata": {"name": "s", "namespace": "default"}, "spec": {"model": {"name": "m"}}});
    let model = json!({"modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelFramework": {"name": "transformers", "version": "4.45.0"},
        "modelArchitecture": "Architecture7", "modelParameterSize": "30B"});
    Ok(Demand::of(&serde_json::from_value(service)?, Some(("m", &serde_json::from_value(model)?)))?)
}

fn supply(kind: impl Fn(usize) -> (String, usize)) -> Result<Supply, Box<dyn std::error::Error>> {
    let runtimes = (0..RUNTIMES).map(|index| runtime(index, kind(index)));
    Ok(Supply {
        runtimes: runtimes.collect::<Result<_, _>>()?,
        classes: (0..CLASSES).map(class).collect::<Result<_, _>>()?,
        accelerator_aware: true,
    })
}

fn runtime(index: usize, (architecture, way): (String, usize)) -> Result<Arc<Runtime>, Box<dyn std::error::Error>> {
    let spec = json!({
        "supportedModelFormats": [{"modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelFramework": {"name": "transformers", "version": "4.45.0"},
            "modelArchitecture": architecture, "autoSelect": true, "priority": 1 + index % 3}],
        "modelSizeRange": {"min": "1B", "max": format!("{}B", 40 + index)},
        "acceleratorRequirements": {"requiredCapabilities": {"memoryGB": 24, "computeCapability": "8.0", "memoryBandwidthGBps": way, "features": ["tensor-cores"]}},
        "acceleratorConfigurations": [{"selector": {"acceleratorClass": "class-7"}, "env": [{"name": "A", "value": "b"}]}],
        "engineConfig": {"runner": {"image": "i", "args": ["--model", "$(MODEL_PATH)"], "resources": {"limits": {"cpu": 10, "memory": "30Gi"}}}},
    });
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
    let node = |n: usize| ClassNode {
        name: format!("node-{index}-{n}"),
        labels: Some(std::collections::BTreeMap::from([("nvidia.com/gpu.product".to_owned(), product.clone())]).into()),
        schedulable: true,
        total: 8,
        free: 8,
    };
    let availability = Availability { nodes: (0..4).map(node).collect() };
    Ok(Arc::new(Class::from_api(&serde_json::from_value(object)?, Some(availability))?))
}
